package faults

import (
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/ledger"
	"bookend/internal/slurm"
)

// gate holds up whoever opens, or executes, a file of a folder, until the test has had its say: the kernel asks before
// it lets the process go on.
type gate struct {
	*node
	file *os.File
	done chan struct{}
}

// gate asks pass of each process that does so. What it does to the process has come into force when that goes on.
func (n *node) gate(folder string, when uint64, pass func(pid int, path string)) *gate {
	n.Helper()
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_CONTENT|unix.FAN_CLOEXEC|unix.FAN_NONBLOCK,
		unix.O_RDONLY|unix.O_LARGEFILE)
	must(n, err)
	must(n, unix.FanotifyMark(fd, unix.FAN_MARK_ADD, when|unix.FAN_EVENT_ON_CHILD, unix.AT_FDCWD, folder))
	n.gated = true
	g := &gate{node: n, file: os.NewFile(uintptr(fd), "gate"), done: make(chan struct{})}
	go g.keep(pass)
	n.Cleanup(g.open)
	return g
}

// open ends it: all who wait may go on.
func (g *gate) open() {
	_ = g.file.Close()
	<-g.done
}

func (g *gate) keep(pass func(pid int, path string)) {
	defer close(g.done)
	buffer := make([]byte, 4096)
	for {
		got, err := g.file.Read(buffer)
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil {
			g.Errorf("read gate: %v", err)
			return
		}
		for rest := buffer[:got]; len(rest) >= eventSize; {
			event := rest[:binary.NativeEndian.Uint32(rest)]
			rest = rest[len(event):]
			g.answer(event, pass)
		}
	}
}

// eventSize is the kernel's struct fanotify_event_metadata: length, version, mask, then descriptor and process.
const eventSize = 24

func (g *gate) answer(event []byte, pass func(pid int, path string)) {
	fd := int32(binary.NativeEndian.Uint32(event[16:]))
	pid := int32(binary.NativeEndian.Uint32(event[20:]))
	path, _ := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(fd)))
	if int(pid) != os.Getpid() {
		pass(int(pid), path)
	}
	reply := binary.NativeEndian.AppendUint32(nil, uint32(fd))
	if _, err := g.file.Write(binary.NativeEndian.AppendUint32(reply, unix.FAN_ALLOW)); err != nil &&
		!errors.Is(err, os.ErrClosed) { // closing it lets all go
		g.Errorf("answer at the gate: %v", err)
	}
	_ = unix.Close(int(fd))
}

// stopping stops each child of this node's hooks that does op, as soon as it is there and before its first own
// instruction, and lets all others go. It returns what tells who was stopped, and ends the stopping.
func (n *node) stopping(op string) (stopped func() []int) {
	n.Helper()
	var all sync.WaitGroup
	var mu sync.Mutex
	var found []int
	g := n.gate(n.in("bin"), unix.FAN_OPEN_EXEC_PERM, func(pid int, _ string) {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			n.Errorf("stop process %d: %v", pid, err)
		}
		all.Go(func() {
			// It stops once it is the new program; one that its hook gave up before never does.
			for s := stateOf(pid); s != "T" && s != "Z" && s != ""; s = stateOf(pid) {
				time.Sleep(time.Millisecond)
			}
			if doing(pid) != op {
				_ = syscall.Kill(pid, syscall.SIGCONT)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			found = append(found, pid)
		})
	})
	return func() []int {
		g.open()
		all.Wait()
		return found
	}
}

// stops are the children of root's hooks, each stopped for good: with which hooks, in which circumstances it is started
// at all, and what must come of it.
var stops = map[string]struct {
	hooks []hook
	harm  func(n *node) (undo func())
	job   func(n *node) job
	finds code.Code // on record
	says  []string  // in one line of the log, or of what slurmd logs, where it is not on record
	exit  int
	roomy bool // the deadlines are: an end that has little time does not begin to clean up, nor to search
}{
	"backend":   {hooks: hooks, finds: code.Hang},
	"inventory": {hooks: hooks, finds: code.Hang},
	"kernel":    {hooks: hooks},
	"processes": {hooks: hooks, harm: aLeftover, finds: code.Untraced},
	"holders":   {hooks: hooks, harm: aResidue, finds: code.Untraced},
	"sharing":   {hooks: []hook{epilog}, harm: aLeftover, finds: code.Orphan},
	"cleanup":   {hooks: []hook{epilog}, harm: aProvenLeftover, finds: code.Orphan, exit: 10, roomy: true},
	"tail":      {hooks: []hook{epilog}, job: withOutput, says: []string{"job_log=failed", string(code.Output)}},
	"append":    {hooks: []hook{epilog}, job: withOutput, says: []string{"job_log=failed", string(code.Output)}},
	"disk":      {hooks: hooks, says: []string{`bookend: child "disk": hung`}},
}

func aLeftover(n *node) (undo func()) { return n.leftover().End }

func aResidue(n *node) (undo func()) {
	n.extra("2048")
	return func() { n.extra("0") }
}

func aProvenLeftover(n *node) (undo func()) {
	p := n.leftover()
	n.inCgroup(p, "100")
	return p.End
}

func withOutput(n *node) job { return newJob().With("SLURM_JOB_STDOUT", n.home()) }

// A child that stops for good, whichever it is, costs its hook the time it was given, and nothing else: it is killed,
// what it was to find out is unknown, nothing drains for it, and the next hook is as always.
func TestStoppedChild(t *testing.T) {
	for op, tt := range stops {
		for _, h := range tt.hooks {
			t.Run(op+" "+h.program, func(t *testing.T) { t.Parallel(); stopChild(t, op, h) })
		}
	}
}

// stopChild stops a hook's child for an operation.
func stopChild(t *testing.T, op string, h hook) {
	tt := stops[op]
	n := newNode(t, "enforce")
	n.ownPrograms()
	j := newJob()
	if tt.job != nil {
		j = tt.job(n)
	}
	n.clean(n.own(prolog), bystanding())
	if h == epilog {
		n.clean(n.own(prolog), j)
	}
	others := n.record()
	n.configure(func(c *conf) {
		c.onUnknown = "drain"
		c.extra = map[string]string{"append": "job_log: {read: false}\n",
			"cleanup": "clean_up: {enabled: true, grace: 100ms}\n"}[op]
		c.shards = map[string]string{"sharing": "auto"}[op]
	})
	undo := func() {}
	if tt.harm != nil {
		undo = tt.harm(n)
	}
	roomy := tt.roomy || op == "holders" && h == epilog
	n.configure(func(c *conf) { c.tight = !roomy })
	stopped := n.stopping(op)
	o := n.hook(n.own(h), j)
	if o.exit != tt.exit {
		t.Errorf("%v\n%s", o, n.log())
	}
	if len(stopped()) == 0 {
		t.Error("no one was stopped")
	}
	n.none()
	noTime := len(lines(o.output, `bookend: child "disk": : no time left`)) > 0 // on a busy machine
	if len(tt.says) > 0 && !noTime && len(lines(n.log()+o.output, tt.says...)) == 0 {
		t.Errorf("want %q in the log:\n%s%s", tt.says, n.log(), o.output)
	}
	if found := n.findings(h); tt.finds != "" && !has(found, tt.finds) || tt.finds != code.Hang &&
		hung(found, op) {
		t.Errorf("recorded %+v, want %q", found, tt.finds)
	}
	if e := n.ending(h); (e.Kernel == nil || e.Kernel.Unknown != "") != (op == "kernel") {
		t.Errorf("the kernel's log: %+v", e.Kernel)
	}
	undo()
	n.configure(func(c *conf) { c.extra, c.shards = "", "" })
	n.sound(others)
}

// hung reports whether the driver is blamed for a child that did not answer. On a busy machine another may not, in the
// little time that it has.
func hung(found []finding.Finding, op string) bool {
	return has(found, code.Stuck) || slices.ContainsFunc(found, func(f finding.Finding) bool {
		return f.Code == code.Hang && strings.Contains(f.Observed, strconv.Quote(op))
	})
}

// ending is what a hook of job 100 recorded.
func (n *node) ending(h hook) ledger.End {
	n.Helper()
	if r := n.run(100); h.context == slurm.Prolog && r.Start != nil {
		return *r.Start
	}
	return n.endOf(100)
}
