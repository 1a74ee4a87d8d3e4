package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"bookend/internal/slurm"
)

// Nodes are the nodes of this host that have state below run, or a history below varDir; an empty one is not looked
// into. They are sorted.
func Nodes(run, varDir string) ([]string, error) {
	var folders, nodes []string
	if run != "" {
		folders = append(folders, filepath.Join(run, "state"))
	}
	if varDir != "" {
		folders = append(folders, filepath.Join(varDir, "history"))
	}
	for _, dir := range folders {
		// Threat: none from users, who cannot write here; names that are no node's are passed over.
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("find the node's records: %w", err)
		}
		for _, e := range entries {
			if e.IsDir() && slurm.ValidNode(e.Name()) {
				nodes = append(nodes, e.Name())
			}
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes), nil
}
