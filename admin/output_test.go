package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bookend/internal/operation"
	"bookend/internal/routine"
)

// An answer that does not get out, as onto a full disk, is no answer: it is said, and the exit code says so too.
func TestAnswersThatDoNotGetOut(t *testing.T) {
	n := busy(t)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	must(t, err)
	defer full.Close()
	for _, args := range [][]string{
		{"status"}, {"status", "--json"}, {"status", "--exit-code"}, {"show", "42"}, {"show", "42", "--json"},
		{"history"}, {"history", "--repeat-offenders"}, {"snapshot"}, {"explain", "orphan"},
		{"baseline"}, {"config", "check"}, {"doctor"}, {"doctor", "--json"}, {"report", "--html", "-"}, {"version"}, {"--help"}, {"show", "--help"}, {"--version"},
		{"completion", "bash"}, {"completion", "zsh"}, {"completion", "fish"},
	} {
		var said strings.Builder
		env := operation.Env{
			Args: append([]string{"bookend"}, args...), Stdout: full, Stderr: &said, Clock: routine.SystemClock(),
			Version: "1.2",
			Getenv:  func(name string) string { return map[string]string{"BOOKEND_CONFIG": n.config}[name] },
		}
		if exit := run(env, args); exit != exitTrouble || strings.Count(said.String(), "no space left on device") != 1 {
			t.Errorf("%q: exit %d: %s", args, exit, said.String())
		}
	}
}

// A heap of damaged records does not bury the rest.
func TestDamagedRecords(t *testing.T) {
	n := busy(t)
	history := filepath.Join(n.dir, "var/history/n1")
	must(t, os.MkdirAll(history, 0o700))
	for i := range 100 {
		write(t, filepath.Join(history, fmt.Sprintf("%d-w1.json", 1000+i)), "{", 0o600)
	}
	got := bookend(0, n.config, "status", "--records")
	if strings.Count(got.out, "damaged record set aside") != 10 || !strings.Contains(got.out, "damaged records "+
		"more: 90 (bookend history names them all)\n") {
		t.Errorf("%+v", got)
	}
	if got := bookend(0, n.config, "history"); strings.Count(got.err, "damaged record: ") != 100 {
		t.Errorf("%+v", got)
	}
}
