package doctor

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/rogpeppe/go-internal/txtar"
	"golang.org/x/sys/unix"
	"gopkg.in/yaml.v3"

	"bookend/internal/child"
	"bookend/internal/config"
	"bookend/test/must"
)

// TestMain serves as the children that look: they are this program again.
func TestMain(m *testing.M) {
	if exit, done := (child.Env{Args: os.Args, Stdin: os.Stdin, Stdout: os.Stdout,
		Stderr: os.Stderr, Exit: os.Exit}).Serve(); done {
		os.Exit(exit)
	}
	os.Exit(m.Run())
}

const user = 65534 // stands for any unprivileged user

func mount(t *testing.T, dir, options string) {
	t.Helper()
	must.Do(t, unix.Mount("none", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options))
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
}

func put(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must.Do(t, os.WriteFile(path, []byte(text), 0o600))
	must.Do(t, os.Chmod(path, mode))
}

type testNode struct {
	*testing.T
	dir    string
	site   *Site
	failed map[string]bool // checks that a line has shown failing
}

func (n testNode) in(name string) string { return filepath.Join(n.dir, name) }

func newNode(t *testing.T) testNode {
	t.Helper()
	unix.Umask(0o022)
	dir := must.RootsDir(t)
	mount(t, dir, "mode=0755")
	n := testNode{T: t, dir: dir}
	c := config.Default()
	c.Paths.Run = n.in("run")
	c.Paths.Proc, c.Paths.Sys, c.Paths.Dev, c.NVIDIA.DriverProc = n.in("proc"), n.in("sys"), n.in("dev"),
		n.in("proc/driver/nvidia")
	c.Backend, c.Slurm.Scontrol, c.Drain.ReasonBy = n.in("libexec/bookend-gpu"), n.in("bin/scontrol"),
		config.ReasonByHook
	n.site = &Site{Clock: child.SystemClock(), Config: c, ConfigPath: n.in("etc/bookend.yaml"),
		Self: n.in("bin/bookend"), Programs: []string{n.in("libexec")},
		Version: "test", Root: n.in("root"), SlurmConf: n.in("slurm/slurm.conf"), NodeName: "n1"}
	n.install()
	return n
}

// install makes the files of testdata/node.txtar, and what is no file.
func (n testNode) install() {
	for _, f := range txtar.Parse([]byte(must.Read(n.T, "testdata/node.txtar"))).Files {
		mode := os.FileMode(0o644)
		if strings.HasPrefix(string(f.Data), "#!") {
			mode = 0o755
		}
		put(n.T, n.in(f.Name), strings.ReplaceAll(string(f.Data), "DIR", n.dir), mode)
	}
	for _, hook := range []string{"prolog", "epilog"} {
		put(n.T, n.in("hooks/"+hook), must.Read(n.T, "../../deploy/slurm/hooks/"+hook), 0o755)
	}
	must.Do(n.T, os.MkdirAll(n.in("run/drop"), 0o755))
	mount(n.T, n.in("run/drop"), "mode=0711")
}

// examine is Examine on a machine that may be busy, where everything answers in the end.
func (n testNode) examine() []Result {
	return Examine(*n.site, time.Minute, Checks())
}

// notWell returns the results that are not well.
func notWell(results []Result) []Result {
	var bad []Result
	for _, r := range results {
		if r.Level != OK {
			bad = append(bad, r)
		}
	}
	return bad
}

func (n testNode) do(command string) {
	n.Helper()
	c := exec.Command("/bin/sh", "-ec", command)
	if text, err := c.CombinedOutput(); err != nil {
		n.Fatalf("%s: %v: %s", command, err, text)
	}
}

func (n testNode) said(check string) []Result {
	others := func(c Check) bool { return c.Name != check }
	return Examine(*n.site, time.Minute, slices.DeleteFunc(Checks(), others))
}

// hang mounts a FUSE file system that nothing serves over a folder: whatever asks it anything waits.
func hang(t *testing.T, dir string) {
	t.Helper()
	fuse := must.Have(os.OpenFile("/dev/fuse", os.O_RDWR, 0))(t)
	options := "fd=" + strconv.Itoa(int(fuse.Fd())) + ",rootmode=40000,user_id=0,group_id=0"
	must.Do(t, unix.Mount("none", dir, "fuse.none", 0, options))
	t.Cleanup(func() {
		must.Do(t, fuse.Close()) // whatever waits is told that the connection is gone
		must.Do(t, unix.Unmount(dir, unix.MNT_DETACH))
	})
}

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
//	says CHECK LEVEL SEEN [FIX]   is what doctor says, in part; of the fix "run", all is well after it
func TestLines(t *testing.T) {
	files := must.Have(filepath.Glob("testdata/lines/*.txtar"))(t)
	failed := map[string]bool{}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			n := testNode{T: t, failed: failed}
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
		must.Not(t, !failed[c.Name], "no line shows %q failing", c.Name)
	}
}

var commands = map[string]func(n *testNode, ts *testscript.TestScript, args []string){
	"node": func(n *testNode, ts *testscript.TestScript, _ []string) {
		failed := n.failed
		*n = newNode(n.T)
		n.failed = failed
		ts.Setenv("DIR", n.dir)
	},
	"edit": func(n *testNode, ts *testscript.TestScript, args []string) {
		was := ts.ReadFile(n.in(args[0]))
		if !strings.Contains(was, args[1]) {
			ts.Fatalf("%s has no %q", args[0], args[1])
		}
		ts.Check(os.WriteFile(n.in(args[0]), []byte(strings.Replace(was, args[1], args[2], 1)), 0o644))
	},
	"write": func(n *testNode, ts *testscript.TestScript, args []string) {
		mode, err := strconv.ParseUint(append(args, "644")[2], 8, 12)
		ts.Check(err)
		put(n.T, n.in(args[0]), args[1], os.FileMode(mode))
	},
	"own": func(n *testNode, ts *testscript.TestScript, args []string) {
		ts.Check(os.Chown(n.in(args[0]), user, 0))
	},
	"fifo": func(n *testNode, ts *testscript.TestScript, args []string) {
		ts.Check(unix.Mkfifo(n.in(args[0]), 0o600))
	},
	"socket": func(n *testNode, ts *testscript.TestScript, args []string) { // whose program has ended
		ts.Check(os.MkdirAll(filepath.Dir(n.in(args[0])), 0o755))
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		ts.Check(err)
		ts.Check(unix.Bind(fd, &unix.SockaddrUnix{Name: n.in(args[0])}))
		ts.Check(unix.Close(fd))
	},
	"unmount": func(n *testNode, ts *testscript.TestScript, args []string) {
		ts.Check(unix.Unmount(n.in(args[0]), unix.MNT_DETACH))
	},
	"moved": func(n *testNode, ts *testscript.TestScript, args []string) {
		to := n.in("home/" + filepath.Base(args[0]))
		ts.Check(os.MkdirAll(n.in("home"), 0o755))
		ts.Check(os.Chown(n.in("home"), user, 0))
		ts.Check(os.Rename(n.in(args[0]), to))
		ts.Check(os.Symlink(to, n.in(args[0])))
	},
	"config": func(n *testNode, ts *testscript.TestScript, args []string) {
		ts.Check(yaml.Unmarshal([]byte(args[0]), &n.site.Config))
	},
	"mistake": func(n *testNode, _ *testscript.TestScript, args []string) { n.site.Mistake = args[0] },
	"slurm": func(n *testNode, _ *testscript.TestScript, args []string) {
		for _, program := range []string{"sbin/slurmd", "bin/scontrol"} {
			put(n.T, n.in(program), "#!/bin/sh\necho slurm "+args[0]+"\n", 0o755)
		}
	},
	"says": func(n *testNode, ts *testscript.TestScript, args []string) {
		n.failed[args[0]] = n.failed[args[0]] || args[1] != OK
		if why := n.says(args[0], args[1], args[2], append(args, "")[3]); why != "" {
			ts.Fatalf("%q: %s", args, why)
		}
	},
}

// says tries a line, and returns what is not as it says.
func (n testNode) says(check, level, seen, fix string) (why string) {
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
