// Package backendkit is the part of a backend that is the same for all vendors: it reads the one request of package
// protocol from stdin under an alarm, sends a greeting, samples as the request's rule demands, and exits when its
// caller does.
//
// Exit codes: 0 answered (a fault of the driver is an answer), 1 the request could not be served, 3 stdin was closed
// before the answer was complete; SIGALRM at the deadline.
package backendkit

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"bookend/internal/child"
	"bookend/internal/gpu"
	"bookend/internal/protocol"
	"bookend/internal/settle"
)

const (
	Answered = 0
	Refused  = 1
	Stopped  = 3
)

// patience is how long the request may take to arrive; usually it is in the pipe before the backend starts.
const patience = 5 * time.Second

// reserve is kept between the last sample and the deadline: one call was measured to block for 380 ms while another
// process's memory was torn down, and a watch that is ended by its alarm looks like a hang.
const reserve = 400 * time.Millisecond

// Program is a backend: its name, the vendor in its greeting, its version, and what serves a request.
type Program struct {
	Name, Vendor, Version string
	// Answer serves a request. A fault of the driver is not an error.
	Answer func(Session) error
}

// Session is one request being served. Its deadline is counted from Began.
type Session struct {
	Req   protocol.Request
	Out   *protocol.Writer
	Boot  func() time.Duration
	Began time.Duration
}

// SendProbe writes the result of a device's test allocation.
func (s Session) SendProbe(p gpu.Probe) error {
	return s.Out.Write(protocol.Reply{Kind: protocol.KindProbe, Probe: &p})
}

// Probes reports whether test allocations are asked for.
func (s Session) Probes() bool { return s.Req.Op == protocol.Probe }

// Records reports whether samples are asked for until they are no longer needed.
func (s Session) Records() bool { return s.Req.Op == protocol.Record }

// End returns the time by which the last sample must have been taken.
func (s Session) End() time.Duration { return s.Began + s.Req.Deadline() - reserve }

// Left returns how long it is until End.
func (s Session) Left() time.Duration { return s.End() - s.Boot() }

// Finish reports faults of the driver as a whole, and that the answer is complete.
func (s Session) Finish(faults ...gpu.Fault) error {
	for _, f := range faults {
		if err := s.Out.Write(protocol.Reply{Kind: protocol.KindFault, Fault: &f}); err != nil {
			return err
		}
	}
	return s.Out.Write(protocol.Reply{Kind: protocol.KindDone})
}

func (p Program) Main() { os.Exit(p.run(os.Args[1:])) }

func (p Program) run(args []string) (exit int) {
	if len(args) == 1 && args[0] == "--version" {
		fmt.Println(p.Name, p.Version)
		return Answered
	}
	if len(args) > 0 {
		fmt.Fprintf(os.Stderr, "%s: takes no arguments but --version: it reads a request from stdin\n", p.Name)
		return Refused
	}
	var stopping atomic.Bool
	err := p.serve(&stopping)
	switch {
	case err != nil && stopping.Load(): // the error is of an output that stop closed
		return Stopped
	case err != nil:
		fmt.Fprintf(os.Stderr, "%s: %v\n", p.Name, err)
		return Refused
	}
	return Answered
}

// serve reads the request and serves it, under an alarm from the start.
func (p Program) serve(stopping *atomic.Bool) error {
	runtime.LockOSThread() // the alarm is unblocked on this thread
	if err := alarm(patience); err != nil {
		return err
	}
	out := protocol.NewWriter(os.Stdout)
	child.Go(func(*child.Panic) {}, func() { _, _ = json.Marshal(protocol.Reply{}) }) // the first call takes long
	hello := protocol.Reply{Kind: protocol.KindHello, Hello: &protocol.Hello{Backend: p.Vendor, Version: p.Version}}
	req, err := protocol.ReadRequest(os.Stdin)
	if err != nil {
		if violates(err, protocol.WrongVersion) { // the hook uses another version
			err = errors.Join(err, out.Write(hello))
		}
		return err
	}
	if err := alarm(req.Deadline()); err != nil {
		return err
	}
	exit := func() { stop(stopping) }
	child.Go(func(*child.Panic) { exit() }, func() { awaitHangUp(); exit() })
	// The greeting goes first: without it a hang would not show how far this program came.
	boot := child.SystemClock().Boot
	s := Session{Req: req, Out: out, Boot: boot, Began: boot()}
	if err := out.Write(hello); err != nil {
		return err
	}
	return p.Answer(s)
}

// awaitHangUp returns when stdin ends: the hook that sent the request holds the other end, and waits no longer. This
// thread is never inside the driver, so the alarm always finds one that can take it.
func awaitHangUp() {
	runtime.LockOSThread()
	if err := unblockAlarm(); err == nil {
		_, _ = os.Stdin.Read(make([]byte, 1)) // the end, an error or a second request: all mean stop
	}
}

// stop closes the outputs first: a stuck thread keeps the process and its descriptors alive after the exit.
func stop(stopping *atomic.Bool) {
	stopping.Store(true)
	_ = unix.Close(1)
	_ = unix.Close(2)
	os.Exit(Stopped)
}

// TellHealth sends the devices' health, if the samples left room for it in the answer.
func (s Session) TellHealth(all []gpu.Health) error {
	if len(all) == 0 {
		return nil
	}
	err := s.Out.Write(protocol.Reply{Kind: protocol.KindHealth, Health: all})
	if violates(err, protocol.TooLong) {
		return nil
	}
	return err
}

func violates(err error, what protocol.Problem) bool {
	var problem *protocol.Error
	return errors.As(err, &problem) && problem.Problem == what
}

// Watch samples until the rule is met, the answer is full or the time is up. A snapshot is a watch of one sample.
func (s Session) Watch(sample func() (gpu.Snapshot, error)) error {
	var looks []gpu.Snapshot
	for {
		begin := s.Boot()
		look, err := sample()
		if err != nil {
			return err
		}
		looks = append(looks, look)
		err = s.Out.Write(protocol.Reply{Kind: protocol.KindSnapshot, Snapshot: &look})
		if violates(err, protocol.TooLong) && len(looks) > 1 {
			return nil // the samples sent are valid; the hook sees that they do not settle
		}
		if err != nil {
			return err
		}
		if s.Req.Op != protocol.Watch || settle.Done(s.Req.Watch, s.watched(look), looks) {
			return nil
		}
		now, again := s.Boot(), time.Duration(0)
		if len(look.Faults) > 0 { // a GPU that is slow to fail must not run into the alarm
			again = now - begin
		}
		// The last sample is taken at Max.
		pause := min(settle.Pause(len(looks)), looks[0].At+s.Req.Watch.Max-now)
		if now+pause+again > s.End() {
			return nil
		}
		time.Sleep(pause)
	}
}

// watched returns the devices that have to settle, including those that could not be read so far.
func (s Session) watched(last gpu.Snapshot) (all []gpu.Device) {
	if !s.Req.All {
		return s.Req.Devices
	}
	for _, r := range last.Readings {
		all = append(all, r.Device)
	}
	unread := func(f gpu.Fault) bool { _, read := last.Reading(f.Device); return !read }
	if slices.ContainsFunc(last.Faults, unread) {
		all = append(all, gpu.Device{})
	}
	return all
}

// Record samples repeatedly, each time under a new alarm, until the output fails or over reports the last sample.
func (s Session) Record(sample func() (gpu.Snapshot, error), over func(gpu.Snapshot) bool) error {
	// The thread that waits for the end of stdin can take the alarm. Handing work from a locked thread to another and
	// back takes longer than the work.
	runtime.UnlockOSThread()
	runtime.GOMAXPROCS(1)
	for next := s.Boot(); ; next = max(next+s.Req.Watch.Every, s.Boot()) {
		time.Sleep(next - s.Boot())
		if err := alarm(s.Req.Watch.Every + s.Req.Deadline()); err != nil {
			return err
		}
		seen, err := sample()
		if err != nil {
			return err
		}
		s.Out.Renew()
		if err := s.Out.Write(protocol.Reply{Kind: protocol.KindSnapshot, Snapshot: &seen}); err != nil {
			return err
		}
		if over(seen) {
			return nil
		}
	}
}

// alarm makes the kernel end this process after d, whatever the vendor's code or Go's runtime is doing.
func alarm(d time.Duration) error {
	if err := defaultAlarm(); err != nil {
		return fmt.Errorf("set alarm: %w", err)
	}
	if err := unblockAlarm(); err != nil {
		return err
	}
	once := unix.Itimerval{Value: unix.NsecToTimeval(int64(max(d, time.Millisecond)))}
	if _, err := unix.Setitimer(unix.ITIMER_REAL, once); err != nil {
		return fmt.Errorf("set alarm: %w", err)
	}
	return nil
}

// defaultAlarm gives SIGALRM its default action, which Go's runtime replaces. A zero sigaction is SIG_DFL.
func defaultAlarm() error {
	var action [4]uint64
	const maskBytes = 8
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGALRM), uintptr(unsafe.Pointer(&action)), 0,
		maskBytes, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// unblockAlarm lets the calling thread receive the alarm, which a mask inherited from slurmd may block.
func unblockAlarm() error {
	var set unix.Sigset_t
	set.Val[0] = 1 << (uint(unix.SIGALRM) - 1)
	if err := unix.PthreadSigmask(unix.SIG_UNBLOCK, &set, nil); err != nil {
		return fmt.Errorf("unblock alarm: %w", err)
	}
	return nil
}

// Denied returns why this process may not open a GPU's device nodes, or those of its driver; empty if it may, or if
// they do not exist. The kernel answers for a device cgroup too, without a call of the driver.
func Denied(dev string, d gpu.Device) string {
	nodes := gpu.VendorOf(d).Nodes
	for _, name := range append([]string{nodes.Control, d.Node()}, nodes.Shared...) {
		file := filepath.Join(dev, nodes.Folder, name)
		err := unix.Access(file, unix.R_OK|unix.W_OK)
		if name != "" && (errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES)) {
			return fmt.Sprintf("this process may not open %s: %v", file, err)
		}
	}
	return ""
}

// Bounded cuts a driver's text to a length that fits in a reply.
func Bounded(s string) string {
	const most = 512 // bytes
	return s[:min(len(s), most)]
}
