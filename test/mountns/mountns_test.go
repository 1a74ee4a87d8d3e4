package mountns

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The test program started again plays one that enters: it hides its folder and says what it finds there.
func TestMain(m *testing.M) {
	if len(os.Args) != 3 || os.Args[1] != "enter" {
		os.Exit(m.Run())
	}
	err := Enter()
	if err == nil {
		err = unix.Mount("none", os.Args[2], "tmpfs", 0, "")
	}
	names, _ := os.ReadDir(os.Args[2])
	fmt.Println(os.Getpid(), len(names), err)
}

func TestEnter(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	if err := os.Mkdir(dir+"/there", 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "enter", dir)
	out, err := cmd.CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != fmt.Sprint(cmd.Process.Pid, " 0 <nil>") {
		t.Errorf("%v: %s", err, out)
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 1 {
		t.Errorf("outside there is %v, %v", names, err)
	}
}
