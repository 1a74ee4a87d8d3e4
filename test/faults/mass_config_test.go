package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/internal/slurm"
)

// A site pushes a configuration to all its nodes with which something is wrong. Where its paths cannot be used either, what
// holds is as shipped: this process's own, see shadow.
func TestMassConfiguration(t *testing.T) {
	bad := badConfigurations(t)
	if len(bad) < 50 {
		t.Fatalf("only %d bad configurations", len(bad))
	}
	shipped := []string{"/run/bookend", "/var/lib/bookend", "/var/log/bookend"}
	n := newNode(t, "enforce")
	n.configure(func(c *conf) { c.run, c.varDir, c.log = shipped[0], shipped[1], shipped[2] })
	for _, folder := range shipped {
		must(t, os.RemoveAll(folder))
	}
	n.job(1)
	id := slurm.JobID(100)
	for name, push := range bad {
		id++
		counted := n.metric(`bookend_own_errors_total{code="BKD-CONFIG"}`)
		must(t, os.RemoveAll(n.config))
		push(n)
		for _, h := range hooks {
			if output := n.undrained(h, id); !strings.Contains(output, "bookend: config ") {
				t.Errorf("%s: %s says nothing to slurmd: %s", name, h.program, output)
			}
		}
		if found := lines(n.log(), "findings: BKD-CONFIG", fmt.Sprintf("job=%d ", id), "action=warn", "exit=0"); len(found) != 2 {
			t.Errorf("%s: %d lines in the log:\n%s", name, len(found), n.log())
		}
		if now := n.metric(`bookend_own_errors_total{code="BKD-CONFIG"}`); now != counted+2 {
			t.Errorf("%s: counted %v, then %v", name, counted, now)
		}
		if status, exit := n.bookend("status"); exit != 0 || !strings.Contains(status, "mode observe\n  trouble: BKD-CONFIG, configuration is not valid\n    config ") {
			t.Errorf("%s: status: exit %d:\n%s", name, exit, status)
		}
	}
	must(t, os.RemoveAll(n.config))
	n.writeConfig()
	if status, _ := n.bookend("status"); !strings.Contains(status, "  seen before: BKD-CONFIG, ") || strings.Contains(status, "trouble: BKD-CONFIG") {
		t.Errorf("mended, before the next job:\n%s", status)
	}
	n.job(2)
	n.quiet(cause{finds: "BKD-CONFIG"}, 2)
	if len(lines(n.log(), "BKD-CONFIG: ")) != 1 {
		t.Errorf("the same fault was detailed more than once within the hour:\n%s", n.log())
	}
}

// badConfigurations put one each in a node's place: every bad file of the project's, in both modes, and files that are none.
func badConfigurations(t *testing.T) map[string]func(*node) {
	t.Helper()
	all := map[string]func(*node){}
	text := func(s string) func(*node) {
		return func(n *node) { n.Helper(); must(n, os.WriteFile(n.config, []byte(s), 0o644)) }
	}
	files, err := filepath.Glob("../../configs/bad/*.yaml")
	must(t, err)
	for _, file := range files {
		content, err := os.ReadFile(file)
		must(t, err)
		if strings.Contains("\n"+string(content), "\npaths:") {
			continue // where these look for their counts is up to the file: TestDegradedKeepsWhatSaysWhere
		}
		all[filepath.Base(file)] = text(string(content))
		if !strings.Contains("\n"+string(content), "\nmode:") {
			all[filepath.Base(file)+", enforcing"] = text("mode: enforce\n" + string(content))
		}
	}
	for name, push := range map[string]func(*node){
		"next version": text("version: 2\nmode: enforce\n"), "a key of the next version": text("version: 1\nmode: enforce\nhealth_check: {every: 60s}\n"),
		"binary": text("\x7fELF\x00\x01"), "a page of an error": text("<html><title>404 Not Found</title></html>\n"),
		"cut off": text("mode: enforce\npolicy: {epilog: {BKD-LOST"), "merge conflict": text("<<<<<<< HEAD\nmode: enforce\n=======\n"),
		"missing":       func(*node) {},
		"a folder":      func(n *node) { must(n, os.Mkdir(n.config, 0o755)) },
		"a FIFO":        func(n *node) { must(n, unix.Mkfifo(n.config, 0o644)) },
		"leads nowhere": func(n *node) { must(n, os.Symlink(n.in("nowhere"), n.config)) },
		"a user's":      func(n *node) { n.writeConfig(); must(n, os.Chown(n.config, user, 0)) },
		"open to all":   func(n *node) { n.writeConfig(); must(n, os.Chmod(n.config, 0o666)) },
		"too long":      text(strings.Repeat("# long\n", 50000)),
	} {
		all[name] = push
	}
	return all
}
