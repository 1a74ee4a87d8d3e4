package holders

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/test/must"
)

// The test binary is also the process the tests look at: with BOOKEND_TEST_ROLE set it plays a role, says so in
// one line, and stays until its standard input ends.
func init() { // before the runtime may move the main goroutine to another thread
	if os.Getenv("BOOKEND_TEST_ROLE") != "" {
		runtime.LockOSThread()
	}
}

func TestMain(m *testing.M) {
	role := os.Getenv("BOOKEND_TEST_ROLE")
	if role == "" {
		os.Exit(m.Run())
	}
	play(role)
}

func play(role string) {
	for _, name := range os.Args[1:] {
		if _, err := os.Open(name); err != nil { // stays open: there is no variable left to collect
			panic(err)
		}
	}
	switch role {
	case "maps":
		mapAndClose(os.Getenv("BOOKEND_TEST_PATH"))
	case "container":
		contain(os.Getenv("BOOKEND_TEST_PATH"))
	case "odd name":
		check(os.WriteFile("/proc/self/comm", []byte(oddName), 0))
	case "first thread ends":
		go stay() // the only other goroutine: it ends the process
		unix.Syscall(unix.SYS_EXIT, 0, 0, 0)
	}
	stay()
}

// mapAndClose keeps a file by its mapping alone.
func mapAndClose(name string) {
	file, err := os.Open(name)
	check(err)
	_, err = unix.Mmap(int(file.Fd()), 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_PRIVATE)
	check(err)
	check(file.Close())
}

// contain makes dir the root of this process, with a /dev of its own, as an engine for containers does. It holds
// nvidia2 there, and nvidia3, which has lost its name, and nvidia4, whose file system was taken away.
func contain(dir string) {
	check(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	check(unix.Mount("none", dir, "tmpfs", 0, ""))
	check(unix.Chroot(dir))
	check(unix.Chdir("/"))
	check(os.MkdirAll("/dev", 0o755))
	check(unix.Mount("none", "/dev", "tmpfs", 0, ""))
	for _, name := range []string{"/dev/nvidia2", "/dev/nvidia3"} {
		check(os.WriteFile(name, nil, 0o644))
		_, err := unix.Open(name, unix.O_RDONLY, 0)
		check(err)
	}
	check(os.Remove("/dev/nvidia3"))
	check(os.MkdirAll("/gone/away", 0o755))
	check(unix.Mount("none", "/gone/away", "tmpfs", 0, ""))
	check(os.WriteFile("/gone/away/nvidia4", nil, 0o644))
	_, err := unix.Open("/gone/away/nvidia4", unix.O_RDONLY, 0)
	check(err)
	check(unix.Unmount("/gone/away", unix.MNT_DETACH))
}

const oddName = "a) R (\n1 (b"

func stay() {
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// start runs the test binary in a role, with the named files open, and returns its PID once it is ready.
func start(t *testing.T, role string, set func(*exec.Cmd), files ...string) int {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", files...)
	cmd.Env = []string{"BOOKEND_TEST_ROLE=" + role}
	if set != nil {
		set(cmd)
	}
	stdin := must.Have(cmd.StdinPipe())(t)
	stdout := must.Have(cmd.StdoutPipe())(t)
	must.Do(t, cmd.Start())
	t.Cleanup(func() {
		stdin.Close()
		cmd.Wait()
	})
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
		t.Fatalf("role %q: %q, %v", role, line, err)
	}
	return cmd.Process.Pid
}

// zombie returns the PID of a process that has ended and is not waited for before the test's end.
func zombie(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("/bin/true")
	must.Do(t, cmd.Start())
	t.Cleanup(func() { cmd.Wait() })
	must.Do(t, unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil))
	return cmd.Process.Pid
}

// devices makes a folder of plain files with the names of device nodes: only the names count.
func devices(t *testing.T, names ...string) (dev string) {
	t.Helper()
	dev = must.Have(filepath.EvalSymlinks(t.TempDir()))(t)
	for _, name := range names {
		put(t, filepath.Join(dev, name), "")
	}
	must.Do(t, os.Chmod(filepath.Dir(dev), 0o755))
	return dev
}

func put(t *testing.T, path, text string) {
	t.Helper()
	must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must.Do(t, os.WriteFile(path, []byte(text), 0o644))
}
