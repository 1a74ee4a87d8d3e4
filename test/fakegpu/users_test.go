//go:build cgo

package fakegpu

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestOrphanOfAnotherUser(t *testing.T) {
	w := newWorld(t)
	p, err := w.StartAs(&syscall.Credential{Uid: 65534, Gid: 65534}, nil, "alloc", "--mib", "64", "--orphan", "--name", "a) R\n(b")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.End)
	if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.PID)); err != nil || string(comm) != "a) R\n(b\n" {
		t.Errorf("comm %q, %v", comm, err)
	}
	if sid, err := syscall.Getpgid(p.PID); err != nil || sid == syscall.Getpgrp() {
		t.Errorf("process group %d, %v", sid, err)
	}
	if l := attach(t, w).look().Cards[0]; len(l.Compute) != 1 || l.Compute[0].PID != pid(p) {
		t.Errorf("%+v", l)
	}
}

func TestDeniedNodeIsNoDevice(t *testing.T) {
	w := newWorld(t)
	if err := os.Chmod(w.Node(0), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := w.StartAs(&syscall.Credential{Uid: 65534, Gid: 65534}, []string{"CUDA_VISIBLE_DEVICES=1"}, "alloc", "--mib", "2")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.End)
	if l := attach(t, w).look(); len(l.Cards[2].Compute) != 1 {
		t.Errorf("the second reachable card is not in use: %+v", l.Cards)
	}
	if got := heldNodes(t, w, p.PID); !slices.Equal(got, []string{"nvidia-uvm", "nvidia2", "nvidiactl"}) {
		t.Errorf("holds %v", got)
	}
}

func TestForeignPIDNamespaceListsTheHostsPID(t *testing.T) {
	w := newWorld(t)
	cmd := exec.Command(w.FakeCUDA(), "alloc", "--mib", "2")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	attach(t, w).eventually("the process", func(l look) bool {
		return len(l.Cards[0].Compute) == 1 && l.Cards[0].Compute[0].PID == uint32(cmd.Process.Pid)
	})
}

func runInhabitant(dir string) {
	w, err := New(dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := w.StartKeeper(); err != nil {
		fmt.Println(err)
		return
	}
	p, err := w.Start("alloc", "--mib", "10")
	if err != nil {
		fmt.Println(err)
		return
	}
	used, err := w.Used(0)
	maps, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", p.PID))
	mapped := strings.Contains(string(maps), " "+w.Node(0)+"\n")
	fmt.Printf("real nodes %v, mapped %v, used %d, %v\n", w.RealNodes(), mapped, used, err)
	p.End()
	if err := w.Close(); err != nil {
		fmt.Println(err)
	}
}

func TestWithoutRights(t *testing.T) {
	dir := newWorld(t).Dir()
	binary := filepath.Join(dir, "inhabitant")
	content, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := replace(binary, content, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, inhabit, filepath.Join(dir, "alloc/mine")) // alloc is open to all
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	text, err := cmd.CombinedOutput()
	// Plain files can be mapped, as the driver's nodes are; consoles cannot.
	if want := fmt.Sprintf("real nodes false, mapped true, used %d, <nil>\n", 537*MiB); err != nil || string(text) != want {
		t.Errorf("%q, %v; want %q", text, err, want)
	}
}
