package state

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"bookend/internal/ledger"
	"bookend/internal/safefile"
	"bookend/internal/slurm"
)

func historyFolder(varDir, node string) string { return filepath.Join(varDir, "history", node) }

func makeHistory(varDir, node string) (string, error) {
	if err := makeFolder(varDir, 0o755, true); err != nil {
		return "", err
	}
	history := historyFolder(varDir, node)
	for _, folder := range []string{filepath.Dir(history), history} {
		if err := makeFolder(folder, 0o700, false); err != nil {
			return "", err
		}
	}
	return history, nil
}

// prune removes from the history what is too old, and the oldest while it is too large. A killed writer's files
// go too: Archive is the only one, and holds its lock.
func prune(history string, now time.Time, keep Limits) error {
	files := byAge(history)
	total := int64(0)
	for _, f := range files {
		total += f.Size()
	}
	var all []error
	for _, f := range files {
		stale := strings.HasPrefix(f.Name(), safefile.TempPrefix)
		if !stale && now.Sub(f.ModTime()) <= keep.Age && total <= keep.Bytes {
			continue
		}
		all = append(all, removeOwn(history, f.Name()))
		total -= f.Size()
	}
	return errors.Join(all...)
}

// History returns a node's archived runs, the latest first, and the files there that cannot be used.
func History(varDir, node string) ([]ledger.Run, []Damage) {
	if !slurm.ValidNode(node) {
		return nil, []Damage{{Path: varDir, Why: fmt.Sprintf("node %q: %v", node, ErrName)}}
	}
	folder := historyFolder(varDir, node)
	runs, damage, err := Copied(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		damage = append(damage, Damage{Path: folder, Why: err.Error()})
	}
	return runs[node], damage
}

// wall is when a run was last seen: across boots, boot times do not compare.
func wall(r ledger.Run) time.Time {
	if r.Closed() {
		return r.Ends[len(r.Ends)-1].Wall
	}
	if r.Start != nil {
		return r.Start.Wall
	}
	return time.Time{}
}
