//go:build cgo

package fakegpu

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"bookend/test/must"
)

func status(pid int, field string) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func signalSet(pid int, field string) (set uint64) {
	_, _ = fmt.Sscanf(status(pid, field), "%x", &set)
	return set
}

func TestFrozenSurvivesKill(t *testing.T) {
	w := newWorld(t)
	set(t, w, "on.nvmlDeviceGetCount_v2", "freeze")
	c := attach(t, w)
	c.ask()
	pid := c.cmd.Process.Pid
	awaitState(t, pid, "D")
	must.Do(t, c.cmd.Process.Kill())
	if pending := signalSet(pid, "ShdPnd") | signalSet(pid, "SigPnd"); pending&(1<<(syscall.SIGKILL-1)) == 0 {
		t.Errorf("SIGKILL is not pending: %#x", pending)
	}
	if state := status(pid, "State"); !strings.HasPrefix(state, "D") {
		t.Errorf("state %q after SIGKILL", state)
	}
	must.Do(t, w.Thaw())
	if _ = c.cmd.Wait(); c.cmd.ProcessState.ExitCode() != -1 {
		t.Errorf("%v, want death by signal", c.cmd.ProcessState)
	}
}

func TestSetRefusesWhatNobodyUnderstands(t *testing.T) {
	w := newWorld(t)
	for key, value := range map[string]string{
		"extra_mib": "1", "gpu0.extra": "1", "on.nvmlInit_v9": "hang", "on.nvmlInit_v2": "explode",
		"gpu64.list": "1:1", "gpu0.list": "a=b", "gpus": "65",
	} {
		if err := w.Set(key, value); err == nil {
			t.Errorf("%s = %s was taken", key, value)
		}
	}
	if got := attach(t, w).look(); len(got.Cards) != 4 {
		t.Errorf("the world changed: %+v", got)
	}
}

func TestTrees(t *testing.T) {
	w := newWorld(t, Minors(1, 0, 2), GPUs(3), Excluded(2))
	text, err := os.ReadFile(filepath.Join(w.DriverProc(), "gpus", w.BusID(0), "information"))
	if err != nil || !strings.Contains(string(text),
		"Device Minor: \t 1\nGPU Firmware: \t 580.159.04\nGPU Excluded:\t No\n") {
		t.Errorf("%q, %v", text, err)
	}
	if w.Node(0) != filepath.Join(w.Dev(), "nvidia1") || !w.RealNodes() {
		t.Errorf("node %s, real %v", w.Node(0), w.RealNodes())
	}
	module := filepath.Join(w.Sys(), "module/nvidia")
	inodeOf := func() uint64 {
		st := must.Have(os.Stat(module))(t)
		return inode(st)
	}
	before := inodeOf()
	set(t, w, "module_version", "590.10")
	if v, _ := os.ReadFile(filepath.Join(module, "version")); string(v) != "590.10\n" || inodeOf() != before {
		t.Errorf("version %q", v)
	}
	if err := w.ReloadModule(); err != nil || inodeOf() == before {
		t.Errorf("reload: %v", err)
	}
}
