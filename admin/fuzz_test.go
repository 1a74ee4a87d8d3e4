package main

import (
	"slices"
	"strings"
	"testing"
)

// Whatever is typed, or put into a command line by a script, gives a documented exit code and a text for a terminal;
// one that is not right for a command never gets to what the command does.
func FuzzCommandLine(f *testing.F) {
	for _, seed := range []string{
		"", "help", "show", "show 1234", "show 1234_7 --node n1", "show --node", "show \x1b[2J", "show 1 2",
		"show -- -1", "show 0x1", "status --node ../..",
		"status --force", "baseline accept GPU-1 --force", "baseline reset all", "baseline\n", "version --help",
		"--version", "-h", "\x1b]0;x\x07", "show sCHNM7Y8WBK900",
		"--child inventory", "config check", "doctor --json", "history --limit -1", "history --since 3x",
		"explain orfan", "explain 10", "completion bash", "__complete show ", "show 1_2 --json",
		"show 1 -\xff\x1b[31m", "status --node=n1 --node=n2", "show --node= 1", "show 1234 --node n1",
		"baseline accept --force GPU-1", "status --node=a --json --", "history --gpu=0 --limit 3",
		"status 0 0 -h", "status 0 0 0", "doctor 0 0 0", "baseline 0 0 0",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		args := strings.Split(line, " ")
		if touches(args[0]) {
			return
		}
		got := bookend(65534, "/nonexistent/bookend.yaml", args...)
		if !slices.Contains([]int{exitOK, exitTrouble, exitNotFound, exitDenied, exitUsage}, got.exit) {
			t.Fatalf("%q: exit %d", args, got.exit)
		}
		raw := args[0] == "completion" || strings.HasPrefix(args[0], "__") // for shells
		for _, text := range []string{got.out, got.err} {
			if !raw && strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && (r < ' ' || r > '~') }) {
				t.Fatalf("%q: %q", args, text)
			}
		}
		if !raw && (got.exit == exitOK && got.out == "" || got.exit != exitOK && got.err == "") {
			t.Fatalf("%q: exit %d, %q, %q", args, got.exit, got.out, got.err)
		}
		if got.exit == exitUsage && (got.out != "" || strings.Count(got.err, "usage: bookend") != 1) {
			t.Fatalf("%q: %+v", args, got)
		}
		if got.exit == exitDenied && (got.out != "" || !strings.Contains(got.err, "needs root") &&
			!strings.Contains(got.err, "no report of job ")) {
			t.Fatalf("%q: somebody else got as far as %q", args, got.err)
		}
	})
}

// touches: anybody may run these, and they read the file that is named.
func touches(name string) bool { return name == "config" }
