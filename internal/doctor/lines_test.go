package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
	"gopkg.in/yaml.v3"
)

// TestLines tells in testdata/lines what doctor says of nodes on which one thing is not as it must be; every check fails
// at least once. Beside testscript's own commands they have these, in which DIR stands for the node's folder and \n
// for a line feed:
//
//	node                          makes one on which all is well
//	edit FILE OLD NEW             replaces a part of a file
//	write FILE TEXT [MODE]        makes a file
//	own, moved, fifo, unmount FILE    lets it be a user's; lie in a user's folder, behind a link; makes one; unmounts it
//	config YAML, mistake TEXT     changes the configuration, or says what is wrong with it
//	slurm VERSION                 lets slurmd and scontrol be of it
//	holds NAME CGROUP             lets process 50 keep the driver open
//	says CHECK LEVEL SEEN [FIX]   is what doctor says, in part; of the fix "run", all is well after it
func TestLines(t *testing.T) {
	files, err := filepath.Glob("testdata/lines/*.txtar")
	must(t, err)
	failed := map[string]bool{}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			n := node{T: t, failed: failed}
			p := testscript.Params{Files: []string{file}, Cmds: map[string]func(*testscript.TestScript, bool, []string){}}
			for name, do := range commands {
				p.Cmds[name] = func(ts *testscript.TestScript, _ bool, args []string) {
					for i, a := range args {
						args[i] = strings.NewReplacer("DIR", n.dir, `\n`, "\n", `\t`, "\t").Replace(a)
					}
					do(&n, ts, args)
				}
			}
			testscript.Run(t, p)
		})
	}
	for _, c := range Checks() {
		if !failed[c.Name] {
			t.Errorf("no line shows %q failing", c.Name)
		}
	}
}

var commands = map[string]func(n *node, ts *testscript.TestScript, args []string){
	"node": func(n *node, ts *testscript.TestScript, _ []string) {
		failed := n.failed
		*n = newNode(n.T)
		n.failed = failed
		ts.Setenv("DIR", n.dir)
	},
	"edit": func(n *node, ts *testscript.TestScript, args []string) {
		was := ts.ReadFile(n.in(args[0]))
		if !strings.Contains(was, args[1]) {
			ts.Fatalf("%s has no %q", args[0], args[1])
		}
		ts.Check(os.WriteFile(n.in(args[0]), []byte(strings.Replace(was, args[1], args[2], 1)), 0o644))
	},
	"write": func(n *node, ts *testscript.TestScript, args []string) {
		mode, err := strconv.ParseUint(append(args, "644")[2], 8, 12)
		ts.Check(err)
		put(n.T, n.in(args[0]), args[1], os.FileMode(mode))
	},
	"own": func(n *node, ts *testscript.TestScript, args []string) { ts.Check(os.Chown(n.in(args[0]), user, 0)) },
	"fifo": func(n *node, ts *testscript.TestScript, args []string) {
		ts.Check(unix.Mkfifo(n.in(args[0]), 0o600))
	},
	"unmount": func(n *node, ts *testscript.TestScript, args []string) {
		ts.Check(unix.Unmount(n.in(args[0]), unix.MNT_DETACH))
	},
	"moved": func(n *node, ts *testscript.TestScript, args []string) {
		to := n.in("home/" + filepath.Base(args[0]))
		ts.Check(os.MkdirAll(n.in("home"), 0o755))
		ts.Check(os.Chown(n.in("home"), user, 0))
		ts.Check(os.Rename(n.in(args[0]), to))
		ts.Check(os.Symlink(to, n.in(args[0])))
	},
	"config": func(n *node, ts *testscript.TestScript, args []string) {
		ts.Check(yaml.Unmarshal([]byte(args[0]), &n.site.Config))
	},
	"mistake": func(n *node, _ *testscript.TestScript, args []string) { n.site.Mistake = args[0] },
	"slurm": func(n *node, _ *testscript.TestScript, args []string) {
		for _, program := range []string{"sbin/slurmd", "bin/scontrol"} {
			put(n.T, n.in(program), "#!/bin/sh\necho slurm "+args[0]+"\n", 0o755)
		}
	},
	"holds": func(n *node, _ *testscript.TestScript, args []string) { n.holds(50, args[0], args[1]) },
	"says": func(n *node, ts *testscript.TestScript, args []string) {
		n.failed[args[0]] = n.failed[args[0]] || args[1] != OK
		if why := n.says(args[0], args[1], args[2], append(args, "")[3]); why != "" {
			ts.Fatalf("%q: %s", args, why)
		}
	},
}

// says tries a line, and returns what is not as it says.
func (n node) says(check, level, seen, fix string) (why string) {
	said := n.said(check)
	i := slices.IndexFunc(said, func(r Result) bool { return r.Level == level && strings.Contains(r.Seen, seen) })
	switch {
	case i < 0:
		return fmt.Sprintf("%+v", said)
	case level == OK:
	case said[i].Fix == "" || said[i].Why == "":
		return fmt.Sprintf("no fix, or no reason: %+v", said[i])
	case fix == "run":
		for _, r := range said {
			n.do(r.Fix)
		}
		for _, r := range notWell(n.examine()) {
			why += fmt.Sprintf("after %q: %+v", said[0].Fix, r)
		}
	case !strings.Contains(said[i].Fix, fix):
		return fmt.Sprintf("fix %q", said[i].Fix)
	}
	return why
}
