package stage

import (
	"os"
	"path/filepath"
	"testing"

	"bookend/internal/clock"
	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/operation"
	"bookend/internal/session"
	"bookend/internal/slurm"
	"bookend/internal/state"
)

// Records that are read again may be damaged by then: that is told, and once.
func TestDamageSinceTheFirstReading(t *testing.T) {
	dir := t.TempDir()
	store, err := state.Open(dir, "n1")
	if err != nil {
		t.Fatal(err)
	}
	d := session.New(operation.Env{Clock: clock.System()}, slurm.Epilog)
	d.Store = store
	node := readNode(d)
	if found := d.Take(); len(found) > 0 {
		t.Fatalf("%+v", found)
	}
	folders, err := filepath.Glob(filepath.Join(dir, "state", "n1"))
	if err != nil || len(folders) != 1 {
		t.Fatalf("%v, %v", folders, err)
	}
	job := filepath.Join(folders[0], "100")
	if err := os.Mkdir(job, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(job, "r1.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	var told []finding.Finding
	for range 2 {
		again(d, *node)
		told = append(told, session.Once(d.Take(), told)...)
		if len(told) != 1 || told[0].Code != code.StateDamage {
			t.Errorf("got %+v, want the damage once", told)
		}
	}
}
