package state

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"bookend/internal/ledger"
	"bookend/internal/safefile"
	"bookend/internal/slurm"
)

// maxDepth is the depth of folders in a copy.
const maxDepth = 6

// Copied returns the runs in a copy of records: of paths.var or paths.run, or of a folder in them; by node, each run
// once. It writes nothing, and whose the files are does not matter: what they say is their owner's claim.
func Copied(dir string) (map[string][]ledger.Run, []Damage, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("read records: %w", err)
	}
	runs := map[run]ledger.Run{}
	var damage []Damage
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir():
			if strings.Count(strings.TrimPrefix(path, dir), "/") > maxDepth || e.Name() == damagedName {
				return fs.SkipDir
			}
			return nil
		}
		id, key, ok := recordName(path)
		if !ok {
			return nil
		}
		r, err := copied(path, id, key)
		if errors.Is(err, fs.ErrNotExist) { // forgotten meanwhile
			return nil
		}
		if err != nil {
			damage = append(damage, Damage{Path: path, Why: err.Error()})
			return nil
		}
		// It may be in memory and in the history: the one with more ends is the newer.
		one := run{r.Job.Node, r.Job.ID, r.Key}
		if old, met := runs[one]; !met || len(r.Ends) > len(old.Ends) {
			runs[one] = r
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read records: %w", err)
	}
	return byNode(runs), damage, nil
}

// run names one run of a job.
type run struct {
	node string
	job  slurm.JobID
	key  string
}

func byNode(runs map[run]ledger.Run) map[string][]ledger.Run {
	out := map[string][]ledger.Run{}
	for id, r := range runs {
		out[id.node] = append(out[id.node], r)
	}
	for _, list := range out {
		slices.SortFunc(list, func(a, b ledger.Run) int {
			return cmp.Or(wall(b).Compare(wall(a)), cmp.Compare(b.Job.ID, a.Job.ID), cmp.Compare(b.Key, a.Key))
		})
	}
	return out
}

// recordName tells by its name which run's record a file is: JOB-KEY.json in a history, JOB/KEY.json in memory.
func recordName(path string) (id slurm.JobID, key string, ok bool) {
	base, ok := strings.CutSuffix(filepath.Base(path), suffix)
	number, key, archived := strings.Cut(base, "-")
	if !archived {
		number, key = filepath.Base(filepath.Dir(path)), base
	}
	id, isJob := slurm.ParseJobID(number)
	return id, key, ok && isJob && validKey(key)
}

func copied(path string, id slurm.JobID, key string) (ledger.Run, error) {
	data, err := safefile.ReadGiven(path, maxRecord)
	if err != nil {
		return ledger.Run{}, err
	}
	r, err := decode(data, func(r ledger.Run) string {
		if !slurm.ValidNode(r.Job.Node) {
			return fmt.Sprintf("of node %q", r.Job.Node)
		}
		return wrongRun(r, r.Job.Node, id, key)
	})
	return orNone(r), err
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

// Nodes are the nodes of this host that have state below run, or a history below varDir; an empty one is not looked
// into. They are sorted.
func Nodes(run, varDir string) ([]string, error) {
	var nodes []string
	for root, name := range map[string]string{run: "state", varDir: "history"} {
		if root == "" {
			continue
		}
		// Threat: none from users, who cannot write here; names that are no node's are passed over.
		entries, err := os.ReadDir(filepath.Join(root, name))
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
