package stage

import (
	"os"
	"path/filepath"
	"testing"

	"bookend/internal/backend"
	"bookend/internal/code"
	"bookend/internal/state"
)

// Two processes that test may say the same, which is told once; what they say differently is told twice.
func TestFailuresAreToldOnce(t *testing.T) {
	unsure := func(detail string) backend.Answer {
		return backend.Answer{Troubles: []backend.Trouble{{Code: code.Hang, Detail: detail, Unsure: true}}}
	}
	test := tester{hook: &hook{frame: &frame{}}}
	for _, a := range []backend.Answer{unsure("no answer in 1 s"), unsure("no answer in 1 s"), unsure("stopped by a signal")} {
		test.failures(a)
	}
	if len(test.found) != 2 {
		t.Errorf("%+v", test.found)
	}
}

// Records that are read again may be damaged by then: that is told, and once.
func TestDamageSinceTheFirstReading(t *testing.T) {
	dir := t.TempDir()
	store, err := state.Open(dir, "n1")
	if err != nil {
		t.Fatal(err)
	}
	h := &hook{frame: &frame{}, store: store}
	if h.records(); len(h.found) > 0 {
		t.Fatalf("%+v", h.found)
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
	for range 2 {
		h.reread()
		if len(h.found) != 1 || h.found[0].Code != code.StateDamage {
			t.Errorf("%+v", h.found)
		}
	}
}
