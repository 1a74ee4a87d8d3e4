package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bookend/internal/clock"
	"bookend/internal/stage"
)

// An answer that does not get out, as onto a full disk, is no answer: it is said, and the exit code says so too.
func TestAnswersThatDoNotGetOut(t *testing.T) {
	n := busy(t)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	must(t, err)
	defer full.Close()
	for _, args := range [][]string{
		{"status"}, {"status", "--json"}, {"status", "--exit-code"}, {"show", "42"}, {"show", "42", "--json"}, {"history"}, {"history", "--lemons"}, {"snapshot"}, {"explain", "orphan"},
		{"baseline"}, {"config", "check"}, {"doctor"}, {"doctor", "--json"}, {"report", "--html", "-"}, {"version"}, {"--help"}, {"show", "--help"}, {"--version"},
		{"completion", "bash"}, {"completion", "zsh"}, {"completion", "fish"},
	} {
		var said strings.Builder
		env := stage.Env{
			Args: append([]string{"bookend"}, args...), Stdout: full, Stderr: &said, Clock: clock.System(), Version: "1.2",
			Getenv: func(name string) string { return map[string]string{"BOOKEND_CONFIG": n.config}[name] },
		}
		if exit := run(env, args); exit != exitTrouble || strings.Count(said.String(), "no space left on device") != 1 {
			t.Errorf("%q: exit %d: %s", args, exit, said.String())
		}
	}
}

// A record that cannot be used is said where somebody asks for its job, and a heap of them does not bury the rest.
func TestDamagedRecords(t *testing.T) {
	n := busy(t)
	history := filepath.Join(n.dir, "var/history/n1")
	must(t, os.MkdirAll(history, 0o700))
	write(t, filepath.Join(history, "77-w1.json"), "{", 0o600)
	if got := bookend(0, n.config, "show", "77"); got.exit != exitNotFound || !strings.Contains(got.err, "bookend: damaged record: ") || !strings.Contains(got.err, "/77-w1.json") ||
		!strings.Contains(got.err, "no record of job 77 on node n1; 1 record here is damaged (bookend history names it)\n") {
		t.Errorf("%+v", got)
	}
	if got := bookend(0, n.config, "show", "7"); got.exit != exitNotFound || strings.Contains(got.err, "damaged record: ") {
		t.Errorf("another's: %+v", got)
	}
	if got := bookend(0, n.config, "show", "42"); got.exit != exitOK || got.err != "" {
		t.Errorf("another's: %+v", got)
	}
	for i := range 100 {
		write(t, filepath.Join(history, fmt.Sprintf("%d-w1.json", 1000+i)), "{", 0o600)
	}
	got := bookend(0, n.config, "status", "--records")
	if strings.Count(got.out, "damaged record set aside") != 10 || !strings.Contains(got.out, "damaged records more: 91 (bookend history names them all)\n") {
		t.Errorf("%+v", got)
	}
	if got := bookend(0, n.config, "history"); strings.Count(got.err, "damaged record: ") != 101 {
		t.Errorf("%+v", got)
	}
}
