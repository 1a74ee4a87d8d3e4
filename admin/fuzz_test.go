package main

import (
	"bookend/internal/stage"
	"io"
	"slices"
	"strings"
	"testing"
)

// Whatever is typed, or put into a command line by a script, gives a documented exit code and a text for a terminal; one
// that is not right for a command never gets to what the command does.
func FuzzCommandLine(f *testing.F) {
	for _, seed := range []string{
		"", "help", "show", "show 1234", "show 1234_7 --node n1", "show --node", "show \x1b[2J", "show 1 2", "show -- -1", "show 0x1", "status --node ../..",
		"status --force", "baseline accept GPU-1 --force", "baseline reset all", "baseline\n", "version --help", "--version", "-h", "\x1b]0;x\x07", "show sCHNM7Y8WBK900",
		"--child inventory", "config check", "doctor --json", "show 1 -\xff\x1b[31m", "status --node=n1 --node=n2", "show --node= 1",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		args := strings.Split(line, " ")
		if touches(args[0]) {
			return
		}
		got := bookend(65534, "/nonexistent/bookend.yaml", args...)
		if !slices.Contains([]int{exitOK, exitTrouble, exitNotFound, exitUsage}, got.exit) {
			t.Fatalf("%q: exit %d", args, got.exit)
		}
		for _, text := range []string{got.out, got.err} {
			if strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && (r < ' ' || r > '~') }) {
				t.Fatalf("%q: %q", args, text)
			}
		}
		if got.exit == exitOK && (got.out == "" || got.err != "") || got.exit != exitOK && got.err == "" {
			t.Fatalf("%q: exit %d, %q, %q", args, got.exit, got.out, got.err)
		}
		if got.exit == exitTrouble && !strings.Contains(got.err, "only root may") {
			t.Fatalf("%q: somebody else got as far as %q", args, got.err)
		}
	})
}

// touches: anybody may run these, and they ask the driver or read the file that is named.
func touches(name string) bool { return name == "snapshot" || name == "config" }

// A command's arguments are all there, in order, and as many as it takes; a flag that it does not have is refused.
func FuzzArguments(f *testing.F) {
	f.Add(0, "1234", "--node", "n1")
	f.Add(3, "accept", "--force", "GPU-1")
	f.Add(4, "check", "-x", "")
	f.Add(1, "--node=a", "--json", "--")
	f.Fuzz(func(t *testing.T, which int, a, b, c string) {
		all := commands()
		if which < 0 || which >= len(all) {
			return
		}
		var out, wrong strings.Builder
		env, typed := nowhere(&out, &wrong), []string{a, b, c}
		got, exit, done := all[which].read(env, typed)
		switch {
		case done && exit == exitOK && out.String() != all[which].help(), done && exit == exitUsage && !strings.HasSuffix(wrong.String(), all[which].help()):
			t.Fatalf("%q: %q, %q", typed, out.String(), wrong.String())
		case done && exit != exitOK && exit != exitUsage:
			t.Fatalf("%q: exit %d", typed, exit)
		case done:
			return
		case len(got.args) < all[which].least || len(got.args) > all[which].most || out.Len()+wrong.Len() > 0:
			t.Fatalf("%q: %+v", typed, got)
		case got.node != "" && !all[which].perNode, got.force && !all[which].forced, got.json && !all[which].inJSON:
			t.Fatalf("%q: a flag that the command does not have: %+v", typed, got)
		}
		rest := typed
		for _, arg := range got.args {
			i := slices.Index(rest, arg)
			if i < 0 {
				t.Fatalf("%q: %q was not typed, or before another", typed, arg)
			}
			rest = rest[i+1:]
		}
	})
}

func nowhere(out, err io.Writer) stage.Env {
	return stage.Env{Stdout: out, Stderr: err, EUID: 65534, Getenv: func(string) string { return "" }}
}
