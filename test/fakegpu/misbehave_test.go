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
	"time"
)

func TestMisbehaviour(t *testing.T) {
	const unavailable = ^uint64(0)
	many := make([]string, 300)
	for i := range many {
		many[i] = fmt.Sprintf("%d:1", 1000+i)
	}
	for name, c := range map[string]struct {
		set  map[string]string
		want func(cards []card) bool
	}{
		"lost card": {map[string]string{"on.any.gpu1": "rc 15"}, func(c []card) bool {
			return c[0].Handle == 0 && c[1].Handle == 15 && c[2].Memory == 0
		}},
		"lost after three calls": {map[string]string{"on.nvmlDeviceGetMemoryInfo.gpu2": "rc 15 after 1 times 1"}, func(c []card) bool {
			return c[2].Memory1 == 15 // the second look
		}},
		"memory not supported": {map[string]string{"on.nvmlDeviceGetMemoryInfo_v2": "rc 3", "on.nvmlDeviceGetMemoryInfo": "rc 3"}, func(c []card) bool {
			return c[0].Memory == 3 && c[0].Memory1 == 3
		}},
		"slow card": {map[string]string{"on.nvmlDeviceGetMemoryInfo_v2.gpu1": "sleep 50"}, func(c []card) bool {
			return c[1].Took >= 50*time.Millisecond && c[1].Memory == 0
		}},
		"used by nobody": {map[string]string{"gpu1.extra_mib": "700"}, func(c []card) bool {
			return c[1].Used == 700*MiB && c[1].Compute == nil && c[0].Used == 0
		}},
		"used by nobody, now and then": {map[string]string{"gpu1.extra_mib": "700", "gpu1.moving_mib": "64"}, func(c []card) bool {
			return (c[1].Used == 700*MiB || c[1].Used == 764*MiB) && c[0].Used == 0
		}},
		"dead and impossible processes": {map[string]string{"gpu0.list": "0:1 999999999:2:graphics 77:-1"}, func(c []card) bool {
			return slices.Equal(c[0].Compute, []process{{0, MiB}, {77, unavailable}}) &&
				slices.Equal(c[0].Graphics, []process{{999999999, 2 * MiB}})
		}},
		"growing list": {map[string]string{
			"gpu0.list": strings.Join(many, " "), "on.nvmlDeviceGetComputeRunningProcesses_v3.gpu0": "rc 7 times 3",
		}, func(c []card) bool { return len(c[0].Compute) == 300 && c[0].Compute[299].PID == 1299 }},
		"wrong stride": {map[string]string{"process_stride": "32", "gpu0.list": "11:1 12:2 13:3"}, func(c []card) bool {
			return c[0].Compute[0] == process{11, MiB} && c[0].Compute[1].PID != 12
		}},
		"health": {map[string]string{"gpu3.recovery_action": "2"}, func(c []card) bool { return c[3].Recovery == 2 }},
		"excluded card": {map[string]string{"gpu1.excluded": "1"}, func(c []card) bool {
			return len(c) == 3 && c[1].Minor == 2
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			consumer := attach(t, w)
			for key, value := range c.set { // while the consumer runs
				set(t, w, key, value)
			}
			consumer.look()
			if got := consumer.look().Cards; !c.want(got) {
				t.Errorf("%+v", got)
			}
		})
	}
}

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
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if pending := signalSet(pid, "ShdPnd") | signalSet(pid, "SigPnd"); pending&(1<<(syscall.SIGKILL-1)) == 0 {
		t.Errorf("SIGKILL is not pending: %#x", pending)
	}
	if state := status(pid, "State"); !strings.HasPrefix(state, "D") {
		t.Errorf("state %q after SIGKILL", state)
	}
	if err := w.Thaw(); err != nil {
		t.Fatal(err)
	}
	if code, _ := c.exit(); code != -1 {
		t.Errorf("exit %d, want death by signal", code)
	}
}

// cuda runs fakecuda for a moment and returns what it printed.
func cuda(w *World, env []string, args ...string) (string, error) {
	cmd := exec.Command(w.FakeCUDA(), append([]string{"alloc", "--sleep", "0"}, args...)...)
	cmd.Env = append([]string{}, env...)
	text, err := cmd.CombinedOutput()
	return string(text), err
}

func TestCUDA(t *testing.T) {
	const free = 143771 - 615
	w := newWorld(t, With("gpu3.largest_mib", "1000"))
	uuid := w.UUID(2)
	for name, c := range map[string]struct {
		env  []string
		rule string // of cuInit
		args []string
		want string
	}{
		"all of free fails":       {args: []string{"--no-context", "--mib", fmt.Sprint(free)}, want: "2 CUDA_ERROR_OUT_OF_MEMORY"},
		"2 MiB less succeeds":     {args: []string{"--no-context", "--mib", fmt.Sprint(free - 2)}, want: "bytes=150107848704"},
		"a context takes its own": {args: []string{"--mib", fmt.Sprint(free - 2)}, want: "2 CUDA_ERROR_OUT_OF_MEMORY"},
		"and leaves the rest":     {args: []string{"--mib", fmt.Sprint(free - 527 - 3)}, want: "ready"},
		"fragmented":              {args: []string{"--no-context", "--gpu", "3", "--mib", "1002"}, want: "2 CUDA_ERROR_OUT_OF_MEMORY"},
		"up to the largest piece": {args: []string{"--no-context", "--gpu", "3", "--mib", "1000"}, want: "ready"},
		"index":                   {env: []string{"CUDA_VISIBLE_DEVICES=2,0"}, args: []string{"--mib", "2"}, want: "gpu=" + uuid},
		"uuid":                    {env: []string{"CUDA_VISIBLE_DEVICES=" + uuid}, args: []string{"--mib", "2"}, want: "gpu=" + uuid},
		"beyond the visible":      {env: []string{"CUDA_VISIBLE_DEVICES=2"}, args: []string{"--mib", "2", "--gpu", "1"}, want: "101 CUDA_ERROR_INVALID_DEVICE"},
		"none visible":            {env: []string{"CUDA_VISIBLE_DEVICES="}, args: []string{"--mib", "2"}, want: "100 CUDA_ERROR_NO_DEVICE"},
		"broken":                  {rule: "rc 999", args: []string{"--mib", "2"}, want: "cuInit: 999 CUDA_ERROR_UNKNOWN"},
		"slow":                    {rule: "sleep 20", args: []string{"--mib", "2"}, want: "ready"},
		"PyTorch's words":         {args: []string{"--torch", "--mib", "200000"}, want: "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 195.31 GiB. GPU 0 has a total capacity of 139.80 GiB of which 139.29 GiB is free."},
	} {
		t.Run(name, func(t *testing.T) {
			set(t, w, "on.cuInit", c.rule)
			text, err := cuda(w, c.env, c.args...)
			if !strings.Contains(text, c.want) {
				t.Errorf("%q, %v; want %q", text, err, c.want)
			}
		})
	}
	if used, err := w.Used(0); used != 0 || err != nil {
		t.Errorf("left behind: %d, %v", used, err)
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
	if err != nil || !strings.Contains(string(text), "Device Minor: \t 1\nGPU Firmware: \t 580.159.04\nGPU Excluded:\t No\n") {
		t.Errorf("%q, %v", text, err)
	}
	if w.Node(0) != filepath.Join(w.Dev(), "nvidia1") || !w.RealNodes() {
		t.Errorf("node %s, real %v", w.Node(0), w.RealNodes())
	}
	module := filepath.Join(w.Sys(), "module/nvidia")
	inodeOf := func() uint64 {
		st, err := os.Stat(module)
		if err != nil {
			t.Fatal(err)
		}
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
