package doctor

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/config"
	"bookend/internal/operation"
	"bookend/internal/routine"
)

// TestMain serves as the children that look: they are this program again.
func TestMain(m *testing.M) {
	if exit, done := operation.ServeChild(operation.Env{Args: os.Args, Stdin: os.Stdin, Stdout: os.Stdout,
		Stderr: os.Stderr, Exit: os.Exit}, Operations()); done {
		os.Exit(exit)
	}
	os.Exit(m.Run())
}

const user = 65534 // stands for any unprivileged user

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mount(t *testing.T, dir, options string) {
	t.Helper()
	must(t, unix.Mount("none", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options))
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
}

func put(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(text), 0o600))
	must(t, os.Chmod(path, mode))
}

// node is a machine on which all is well: everything is installed, and a job has begun and ended.
type node struct {
	*testing.T
	dir  string
	site *Site
}

func (n node) in(name string) string { return filepath.Join(n.dir, name) }

func newNode(t *testing.T) node {
	t.Helper()
	unix.Umask(0o022)
	dir, err := os.MkdirTemp("/run", "doctor-test-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	mount(t, dir, "mode=0755")
	n := node{T: t, dir: dir}
	c := config.Default()
	c.Paths.Run = n.in("run")
	c.Paths.Proc, c.Paths.Sys, c.Paths.Dev, c.NVIDIA.DriverProc = n.in("proc"), n.in("sys"), n.in("dev"),
		n.in("proc/driver/nvidia")
	c.Backend, c.Slurm.Scontrol, c.Drain.ReasonBy = n.in("libexec/bookend-gpu"), n.in("bin/scontrol"),
		config.ReasonByHook
	c.NVIDIA.NVMLLibrary = n.in("lib/libnvidia-ml.so.1")
	n.site = &Site{Clock: routine.SystemClock(), Config: c, ConfigPath: n.in("etc/bookend.yaml"),
		Self: n.in("bin/bookend"), Programs: []string{n.in("libexec")}, CUDA: []string{n.in("none/libcuda.so.1"),
			n.in("lib/libcuda.so.1")},
		Version: "test", Root: n.in("root"), SlurmConf: n.in("slurm/slurm.conf"), NodeName: "n1"}
	n.install()
	n.surround()
	must(t, os.MkdirAll(n.in("run/drop"), 0o755))
	mount(t, n.in("run/drop"), "mode=0711")
	return n
}

// install installs everything.
func (n node) install() {
	for _, name := range []string{"libexec/bookend-prolog", "libexec/bookend-epilog", "libexec/bookend-healthcheck",
		"bin/bookend"} {
		put(n.T, n.in(name), "#!/bin/sh\necho "+name+" test\n", 0o755)
	}
	put(n.T, n.in("libexec/bookend-gpu"), text(n.T, "testdata/backend.sh"), 0o755)
	put(n.T, n.in("bin/scontrol"), "#!/bin/sh\n[ -n \"$SLURM_CONF\" ] && echo slurm 24.11.5\n", 0o755)
	put(n.T, n.in("etc/bookend.yaml"), "version: 1\n", 0o644)
	for _, name := range []string{"libnvidia-ml.so", "libcuda.so"} {
		put(n.T, n.in("lib/"+name+".580.1"), "", 0o644)
		must(n.T, os.Symlink(name+".580.1", n.in("lib/"+name+".1")))
	}
}

// examine is Examine on a machine that may be busy, where everything answers in the end.
func (n node) examine() []Result {
	return Examine(*n.site, time.Minute)
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

// do runs a fix as an admin does.
func (n node) do(command string) {
	n.Helper()
	c := exec.Command("/bin/sh", "-ec", command)
	if text, err := c.CombinedOutput(); err != nil {
		n.Fatalf("%s: %v: %s", command, err, text)
	}
}

// said is what one check says.
func (n node) said(check string) []Result {
	others := func(c Check) bool { return c.Name != check }
	return examine(*n.site, time.Minute, slices.DeleteFunc(Checks(), others))
}

// hang mounts a FUSE file system that nothing serves over a folder: whatever asks it anything waits.
func hang(t *testing.T, dir string) {
	t.Helper()
	fuse, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	must(t, err)
	options := "fd=" + strconv.Itoa(int(fuse.Fd())) + ",rootmode=40000,user_id=0,group_id=0"
	must(t, unix.Mount("none", dir, "fuse.none", 0, options))
	t.Cleanup(func() {
		must(t, fuse.Close()) // whatever waits is told that the connection is gone
		must(t, unix.Unmount(dir, unix.MNT_DETACH))
	})
}
