//go:build cgo

package fakegpu

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// mpsShell runs the lane's own script on this world's MPS.
func mpsShell(t *testing.T, w *World, args ...string) string {
	t.Helper()
	cmd := exec.Command("../gpu/scenarios/mps.sh", args...)
	cmd.Env = []string{"PATH=" + w.Dir() + ":/usr/bin:/bin", "CUDA_VISIBLE_DEVICES=0"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("mps.sh %q: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// mpsDaemon brings a daemon up and returns its folder and PID.
func mpsDaemon(t *testing.T, w *World) (folder string, pid int) {
	t.Helper()
	folder = t.TempDir()
	said := mpsShell(t, w, "mps-up", folder)
	pid, err := strconv.Atoi(strings.TrimPrefix(said, "ready pid="))
	if err != nil {
		t.Fatalf("mps-up said %q", said)
	}
	t.Cleanup(func() { _ = syscall.Kill(-pid, syscall.SIGKILL) }) // its session: the server too
	return folder, pid
}

func mpsClient(t *testing.T, w *World, folder string, mib int) *Program {
	t.Helper()
	p, err := w.StartAs(nil, []string{"CUDA_MPS_PIPE_DIRECTORY=" + folder + "/pipe"}, "alloc", "--mib", fmt.Sprint(mib))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.End)
	return p
}

// As measured: a daemon without memory has its card's node open four times; server and clients are in the compute
// list, the clients in the MPS list too; afterwards the server keeps 66 MiB.
func TestMPS(t *testing.T) {
	w := newWorld(t)
	c := attach(t, w)
	folder, daemon := mpsDaemon(t, w)
	if l := c.look().Cards[0]; l.Used != 0 || l.Compute != nil || times(t, w, daemon, "nvidia0") != 4 {
		t.Errorf("the daemon holds %v; %+v", heldNodes(t, w, daemon), l)
	}
	one, two := mpsClient(t, w, folder, 100), mpsClient(t, w, folder, 200)
	server := mpsServer(t, w, folder)
	l := c.look().Cards[0]
	if got, want := pidsOf(l.Compute), sortedPIDs(server, one.PID, two.PID); !slices.Equal(got, want) {
		t.Errorf("compute list %v, want %v", got, want)
	}
	if got, want := pidsOf(l.MPS), sortedPIDs(one.PID, two.PID); !slices.Equal(got, want) {
		t.Errorf("MPS list %v, want %v", got, want)
	}
	for _, p := range []*Program{one, two} {
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	if l := c.look().Cards[0]; l.Used != 66*MiB || !slices.Equal(pidsOf(l.Compute), sortedPIDs(server)) || l.MPS != nil {
		t.Errorf("after the clients: %+v", l)
	}
	mpsShell(t, w, "mps-down", folder)
	if l := c.look().Cards[0]; l.Used != 0 || l.Compute != nil {
		t.Errorf("after the daemon: %+v", l)
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d/fd/0", daemon)); !os.IsNotExist(err) {
		t.Errorf("the daemon is there: %v", err)
	}
}

func mpsServer(t *testing.T, w *World, folder string) int {
	t.Helper()
	pid, err := strconv.Atoi(strings.TrimPrefix(mpsShell(t, w, "mps-server", folder), "ready pid="))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func pidsOf(list []process) []uint32 {
	var pids []uint32
	for _, p := range list {
		pids = append(pids, p.PID)
	}
	slices.Sort(pids)
	return pids
}

func sortedPIDs(pids ...int) []uint32 {
	var all []uint32
	for _, p := range pids {
		all = append(all, uint32(p))
	}
	slices.Sort(all)
	return all
}

// A folder without a daemon is what a probe gets to stay away from MPS.
func TestNoDaemonNoMPS(t *testing.T) {
	w := newWorld(t)
	p := mpsClient(t, w, filepath.Join(w.Dir(), "empty"), 10)
	if l := attach(t, w).look().Cards[0]; l.MPS != nil || !slices.Equal(pidsOf(l.Compute), sortedPIDs(p.PID)) {
		t.Errorf("%+v", l)
	}
}
