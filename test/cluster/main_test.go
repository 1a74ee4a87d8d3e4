package cluster

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// upOnly in the environment makes this test program start a cluster, say where, and wait for its end.
const upOnly = "BOOKEND_TEST_UP_ONLY=1"

func TestMain(m *testing.M) {
	if os.Getenv("BOOKEND_TEST_UP_ONLY") == "" {
		os.Exit(m.Run())
	}
	dir, err := Scratch()
	if err == nil {
		_, err = Up(Options{Dir: filepath.Join(dir, os.Getenv("BOOKEND_TEST_UP_IN"))})
	}
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	fmt.Println(dir)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// startElsewhere runs a cluster in a process of its own, in its scratch folder or in a folder of that; kill kills that
// process, not the cluster.
func startElsewhere(t *testing.T, in string) (dir string, kill func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), upOnly, "BOOKEND_TEST_UP_IN="+in)
	if _, err := cmd.StdinPipe(); err != nil { // held open until the process is killed
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	t.Cleanup(kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	if dir = strings.TrimSpace(line); err != nil || !strings.HasPrefix(dir, base) {
		t.Fatalf("the other process said %q: %v", line, err)
	}
	return dir, kill
}

func mountTmpfs(dir string) error { return unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k") }
