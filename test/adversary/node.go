package main

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"bookend/internal/record"
	"bookend/test/faultinject"
	"bookend/test/rig"
)

// nodeName is slurmd's name for every node here.
const nodeName = "n1"

// Users: that of the jobs under test, and another one.
const (
	user  = 61234
	other = 61235
)

//go:embed bookend.yaml
var template string

func configuration(values map[string]string) string {
	return os.Expand(template, func(name string) string { return values[name] })
}

// node is one machine in a directory: a driver with five GPUs, a /proc of its own, a configuration and what the hooks
// keep. Nothing in it changes but by a step of the history, so that two plays of it differ in times alone.
type node struct {
	dir    string
	hooks  string        // the directory of the hooks under test
	leaked time.Duration // CLOCK_BOOTTIME when the leftover process began
	steps  []reference   // the history as it goes here without a fault
}

func deviceID(i int) string { return fmt.Sprintf("GPU-5a0c9f3e-0000-4000-8000-%012d", i) }

const information = "Model: \t\t A GPU\nGPU UUID: \t %s\nBus Location: \t %s\nDevice Minor: \t %d\n" +
	"GPU Excluded:\t No\n"

// newNode makes a machine, and next to it the directory in which what the hooks keep is decoded. extra is added to its
// configuration.
func newNode(hooks, extra string) *node {
	n := &node{dir: filepath.Join(newDir("node"), "node"), hooks: hooks}
	files := map[string]string{
		"proc/sys/kernel/random/boot_id": "11111111-2222-3333-4444-555555555555\n",
		"proc/self/cgroup":               "0::/system.slice/slurmd.service\n",
		"proc/uptime":                    "1000.00 1000.00\n",
		"driver/version":                 "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.1  Release Build\n",
		"sys/module/nvidia/version":      "570.1\n",
		"sys/module/nvidia/srcversion":   "533BB7E5866E52F63B9ACCB\n",
		"dev/kmsg":                       "6,1,1000000,-;Linux version fake\n6,2,1000100,-;Command line: quiet\n",
		"backend/cards":                  "",
	}
	var numbers []string // Slurm's numbers of the GPUs: how Slurm is asked is not tried here
	for i, bus := range []string{"0000:17:00.0", "0000:3d:00.0", "0000:60:00.0", "0000:70:00.0", "0000:80:00.0"} {
		files["driver/gpus/"+bus+"/information"] = fmt.Sprintf(information, deviceID(i), bus, i)
		numbers = append(numbers, fmt.Sprintf("%d: %s", i, deviceID(i)))
	}
	files["bookend.yaml"] = extra + configuration(map[string]string{
		"dir": n.dir, "proc": n.dir + "/proc", "backend": n.dir + "/backend/backend",
		"nvidia": fmt.Sprintf(`{driver_proc: "%s/driver", gpu_map: {%s}}`, n.dir, strings.Join(numbers, ", ")),
		"epilog": "{total: 300s, driver: 100s, processes: 50s, probe: 50s, job_log: 10s, records: 60s}", "settle": "50s",
	})
	for name, text := range files {
		n.put(name, text)
	}
	rig.Try(os.Link(filepath.Join(hooks, "backend"), n.in("backend/backend")))
	rig.Try(os.Mkdir(n.dir+"-decoded", 0o755))
	return n
}

func (n *node) in(name string) string { return filepath.Join(n.dir, name) }

// put writes a file of the node's that nothing under test writes.
func (n *node) put(name, text string) {
	rig.Try(os.MkdirAll(filepath.Dir(n.in(name)), 0o755))
	rig.Try(os.WriteFile(n.in(name), []byte(text), 0o644))
}

// holder is a process on GPU 0, as the node's /proc has it.
type holder struct {
	pid    int
	bytes  uint64
	uid    int
	cgroup string
	start  time.Duration // CLOCK_BOOTTIME
}

// processes puts these processes, and no others, on the node's GPUs.
func (n *node) processes(all ...holder) {
	var held strings.Builder
	for _, path := range rig.Have(filepath.Glob(n.in("proc/[0-9]*"))) {
		rig.Try(os.RemoveAll(path))
	}
	for _, h := range all {
		fmt.Fprintf(&held, "%s %d %d\n", deviceID(0), h.pid, h.bytes)
		entry := "proc/" + strconv.Itoa(h.pid)
		for name, text := range map[string]string{
			"/stat": fmt.Sprintf("%d (python) S 1 1 1 0 -1 0%s %d 0 0\n", h.pid, strings.Repeat(" 0", 12),
				h.start/record.Tick),
			"/status": fmt.Sprintf("Name:\tpython\nUid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d\n", h.uid),
			"/cgroup": h.cgroup, "/environ": "", "/maps": "",
		} {
			n.put(entry+name, text)
		}
		rig.Try(errors.Join(os.MkdirAll(n.in(entry+"/fd"), 0o755), os.MkdirAll(n.in(entry+"/ns"), 0o755)))
		rig.Try(os.Symlink(n.in("dev/nvidia0"), n.in(entry+"/fd/3")))
	}
	n.put("backend/cards", held.String())
}

// ending is how a hook ended: exit -1 is a signal.
type ending struct {
	exit   int
	output string
}

// call runs a step's hook until it and all that it started have ended. decide is called before the selected calls.
func (n *node) call(s step, calls []faultinject.Filter, decide func(hook int, c faultinject.Call) faultinject.Answer) ending {
	const tooLong = 5 * time.Minute // the sum of a hook's deadlines
	cmd := exec.Command(filepath.Join(n.hooks, s.program()))
	cmd.Env = s.run.job().Environ(n.in("bookend.yaml"), s.hook)
	output, late := watch(cmd, tooLong, calls, func(c faultinject.Call) faultinject.Answer {
		return decide(cmd.Process.Pid, c)
	})
	if late {
		panic(fmt.Errorf("%s: still running after %v", s.name, tooLong))
	}
	return ending{cmd.ProcessState.ExitCode(), output}
}

// play runs a step, and nothing goes wrong.
func (n *node) play(s step) ending {
	n.begin(s)
	return n.call(s, nil, func(int, faultinject.Call) faultinject.Answer { return faultinject.Answer{} })
}

// begin makes the node as it is when a step's hook starts.
func (n *node) begin(s step) {
	if s.arrange != nil {
		s.arrange(n)
	}
	s.world(n)
}
