package state

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bookend/internal/ledger"
	"bookend/internal/slurm"
	"bookend/test/must"
)

// A copy is read whatever of it was copied, whoever owns it, and each run once.
func TestCopied(t *testing.T) {
	wall := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	run := func(node string, id slurm.JobID, ends int) string {
		r := ledger.Run{Job: slurm.Job{ID: id, Node: node}, Key: "w5",
			Start: &ledger.End{Wall: wall.Add(time.Duration(id) * time.Hour)}}
		for range ends {
			r.Ends = append(r.Ends, ledger.End{Wall: wall.Add(time.Duration(id+1) * time.Hour)})
		}
		data := must.Have(encode(r))(t)
		return string(data)
	}
	for name, tt := range map[string]struct {
		files   map[string]string
		want    string
		damaged int
	}{
		"of /var/lib/bookend": {map[string]string{"history/n1/7-w5.json": run("n1", 7, 1),
			"history/n1/8-w5.json": run("n1", 8, 1), "metrics/book.json": "{}"}, "map[n1:[8 7]]", 0},
		"of its history": {map[string]string{"n1/7-w5.json": run("n1", 7, 1),
			"n2/9-w5.json": run("n2", 9, 1)}, "map[n1:[7] n2:[9]]", 0},
		"of one node's": {map[string]string{"7-w5.json": run("n1", 7, 1)}, "map[n1:[7]]", 0},
		"of /run/bookend": {map[string]string{"state/n1/7/w5.json": run("n1", 7, 0),
			"state/n1/check.json": "{}", "state/n1/damaged/7-w5.json.damaged-0": "x"}, "map[n1:[7]]", 0},
		"of both": {map[string]string{"run/state/n1/7/w5.json": run("n1", 7, 0),
			"var/history/n1/7-w5.json": run("n1", 7, 1)}, "map[n1:[7]]", 0},
		"with damage": {map[string]string{"7-w5.json": run("n1", 7, 1)[:40], "8-w5.json": run("n1", 8, 1),
			"9-w5.json": ""}, "map[n1:[8]]", 2},
		"with one of any size": {map[string]string{"7-w5.json": run("n1", 7, 1) + strings.Repeat(" ", maxRecord),
			"8-w5.json": run("n1", 8, 1)}, "map[n1:[8]]", 1},
		"of a node with no name":  {map[string]string{"7-w5.json": run("../n1", 7, 1)}, "map[]", 1},
		"of something else":       {map[string]string{"a.json": "{}", "7/8.json": "{}", "README": "x"}, "map[]", 0},
		"of nothing":              {nil, "map[]", 0},
		"deeper than any copy is": {map[string]string{"1/2/3/4/5/6/7/8/7-w5.json": run("n1", 7, 1)}, "map[]", 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range tt.files {
				must.Do(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o777))
				must.Do(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o666))
				must.Do(t, os.Chown(filepath.Join(dir, file), 65534, 65534))
			}
			runs, damage, err := Copied(dir)
			must.Do(t, err)
			got := map[string][]slurm.JobID{}
			for node, list := range runs {
				for _, r := range list {
					got[node] = append(got[node], r.Job.ID)
					if name == "of both" && len(r.Ends) != 1 {
						t.Errorf("the older one was taken: %+v", r)
					}
				}
			}
			if fmt.Sprint(got) != tt.want || len(damage) != tt.damaged {
				t.Errorf("%v, damage %v; want %s, %d", got, damage, tt.want, tt.damaged)
			}
		})
	}
	if _, _, err := Copied(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a directory that is not there has records")
	}
}
