package main

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"bookend/internal/finding"
	"bookend/internal/slurm"
	"bookend/test/faultinject"
	"bookend/test/rig"
)

// nodeName is what slurmd calls every node here.
const nodeName = "n1"

// node is one machine in a folder of its own: a driver with five cards, a /proc of its own, a configuration and what
// the hooks keep. Nothing in it moves but what a step moves, so that two runs of one history differ in times alone.
type node struct {
	dir      string
	programs string        // the folder of the hooks under test
	leaked   time.Duration // CLOCK_BOOTTIME when the orphan began
}

// The buses of every node's cards.
var busIDs = []string{"0000:17:00.0", "0000:3d:00.0", "0000:60:00.0", "0000:70:00.0", "0000:80:00.0"}

func cardID(i int) string { return fmt.Sprintf("GPU-5a0c9f3e-0000-4000-8000-%012d", i) }

const information = "Model: \t\t A GPU\nGPU UUID: \t %s\nBus Location: \t %s\nDevice Minor: \t %d\n" +
	"GPU Excluded:\t No\n"

//go:embed bookend.yaml
var configuration string

// newNode makes a machine in a folder, of root's all the way up, that does not exist, and beside it the one in which
// images are decoded; extra are further lines of its configuration.
func newNode(dir, programs, extra string) *node {
	n := &node{dir: dir, programs: programs}
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
	var numbers []string // of Slurm's: what is tried here is not how Slurm is asked
	for i, bus := range busIDs {
		files["driver/gpus/"+bus+"/information"] = fmt.Sprintf(information, cardID(i), bus, i)
		numbers = append(numbers, fmt.Sprintf("%d: %s", i, cardID(i)))
	}
	values := map[string]string{"dir": dir, "numbers": strings.Join(numbers, ", ")}
	files["bookend.yaml"] = os.Expand(configuration, func(name string) string { return values[name] }) + extra
	for name, text := range files {
		n.put(name, text)
	}
	rig.Try(os.Link(filepath.Join(programs, "backend"), n.in("backend/backend")))
	rig.Try(os.Mkdir(dir+"-decoded", 0o755))
	return n
}

func (n *node) in(name string) string { return filepath.Join(n.dir, name) }

// put writes a file of the node's that nobody must be able to damage halfway: nothing under test writes it.
func (n *node) put(name, text string) {
	rig.Try(os.MkdirAll(filepath.Dir(n.in(name)), 0o755))
	rig.Try(os.WriteFile(n.in(name), []byte(text), 0o644))
}

// kept are the folders of what the hooks keep: they alone differ between two points of a history.
var kept = []string{"run", "var", "log"}

// holder is a process on a card, as the node's /proc has it.
type holder struct {
	pid    int
	card   int
	bytes  uint64
	uid    int
	cgroup string
	start  time.Duration // CLOCK_BOOTTIME
}

// processes puts these processes, and no others, on the node's cards.
func (n *node) processes(all ...holder) {
	var cards strings.Builder
	for _, path := range rig.Have(filepath.Glob(n.in("proc/[0-9]*"))) {
		rig.Try(os.RemoveAll(path))
	}
	for _, h := range all {
		fmt.Fprintf(&cards, "%s %d %d\n", cardID(h.card), h.pid, h.bytes)
		entry := "proc/" + strconv.Itoa(h.pid)
		for name, text := range map[string]string{
			"/stat": fmt.Sprintf("%d (python) S 1 1 1 0 -1 0%s %d 0 0\n", h.pid, strings.Repeat(" 0", 12),
				h.start/finding.Tick),
			"/status": fmt.Sprintf("Name:\tpython\nUid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d\n", h.uid),
			"/cgroup": h.cgroup, "/environ": "", "/maps": "",
		} {
			n.put(entry+name, text)
		}
		rig.Try(errors.Join(os.MkdirAll(n.in(entry+"/fd"), 0o755), os.MkdirAll(n.in(entry+"/ns"), 0o755)))
		rig.Try(os.Symlink(n.in(fmt.Sprintf("dev/nvidia%d", h.card)), n.in(entry+"/fd/3")))
	}
	n.put("backend/cards", cards.String())
}

type outcome struct {
	exit   int // -1: ended by a signal
	output string
}

// tooLong is more than any hook here, and what it has started, may take: the sum of its deadlines.
const tooLong = 5 * time.Minute

// call runs a step's hook to its end, and with decide to that of all it started, as slurmd does: in a process group of
// its own, with one pipe for all output. decide is asked before calls of these kinds.
func (n *node) call(s step, kinds []faultinject.Filter, decide func(hook int, c faultinject.Call) faultinject.Answer) outcome {
	cmd := exec.Command(filepath.Join(n.programs, "bookend-"+string(s.hook)))
	var output bytes.Buffer
	context := map[hookName]slurm.Context{prolog: slurm.Prolog, epilog: slurm.Epilog}[s.hook]
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = s.run.job().Environ(n.in("bookend.yaml"), context), "/", &output, &output
	if decide == nil {
		kinds, decide = nil, func(int, faultinject.Call) faultinject.Answer { return faultinject.Answer{} }
	}
	late, err := faultinject.Run(cmd, tooLong, kinds, func(c faultinject.Call) faultinject.Answer {
		return decide(cmd.Process.Pid, c)
	})
	if err != nil || late {
		panic(fmt.Errorf("%s: late %v: %w", s.name, late, err))
	}
	return outcome{cmd.ProcessState.ExitCode(), output.String()}
}

// begin makes the node as it is when a step's hook starts.
func (n *node) begin(s step) {
	if s.arrange != nil {
		s.arrange(n)
	}
	s.world(n)
}

func (n *node) whole(s step) outcome {
	n.begin(s)
	return n.call(s, nil, nil)
}
