// Package allocation answers requests for test allocations with a vendor's library: it asks for the largest block of
// memory that one call gives, if no other process is on the GPU, and releases it at once. It creates no context, which
// would take 500 MiB, holds the GPU's lock while it has memory, and never asks for more than is free. Only a pattern
// test has a context, and the memory for as long as it lasts.
package allocation

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/backendkit"
	"bookend/internal/child"
	"bookend/internal/gpu"
	"bookend/internal/safefile"
)

// Vendor is what differs between the vendors' test allocations.
type Vendor struct {
	*Library
	Path   string                 // of the library
	Refuse func(id gpu.ID) string // why a device is not tested, empty if it may be
	Setenv func(visible string)   // sets the variables that the library reads, given the devices' ids
	// Open prepares what reads the devices while the library starts, and returns them in order, or the driver's fault.
	Open func(asked []gpu.Device) ([]Device, *gpu.Fault, error)
}

// Device is a GPU to test.
type Device struct {
	gpu.Device
	Skip string // why it cannot be tested, if so
	// Read samples it right before a block is taken, or returns why none may be.
	Read func() (r gpu.Reading, no string)
}

// tests is one request being answered.
type tests struct {
	backendkit.Session
	Vendor
	known map[int]bool  // processes that may be on a GPU
	until time.Duration // when no further attempt begins
	wait  time.Duration // what is left of the time for locks
	init  time.Duration // what the library took to start
	lost  error         // a failure to write the answer
}

// Serve tests the requested devices one after another, in the order of their ids, as every program that locks several
// does; the driver would not overlap them anyway. It sends each result immediately.
func (v Vendor) Serve(s backendkit.Session) error {
	if !s.Probes() {
		return fmt.Errorf("serve %q: only test allocations", s.Req.Op)
	}
	known := map[int]bool{os.Getpid(): true}
	t := &tests{Session: s, Vendor: v, until: s.End(), wait: s.Req.Probe.LockWait, known: known}
	for _, pid := range s.Req.Probe.Known {
		t.known[pid] = true
	}
	asked, err := t.admit()
	if err != nil {
		return err
	}
	if len(asked) == 0 {
		return t.finish(nil, "")
	}
	begin := s.Boot()
	ready, ok, err := await(t, func() (started, error) { return t.start(asked) })
	switch {
	case err != nil:
		return err
	case !ok:
		// A slow start is no fault: cuInit serialises (1.2 s for four at once, measured), and without persistence mode
		// it attaches the GPUs first, which was reported to take 1-3 s each.
		const why = "%s did not start within %v%s"
		return t.finish(asked, fmt.Sprintf(why, v.Name, (s.Boot()-begin).Round(100*time.Millisecond), v.Slow))
	case ready.fault != nil:
		return t.finish(asked, ready.fault.Detail, *ready.fault)
	}
	return t.testAll(ready)
}

// admit returns the devices to test, in order of id. It skips those that are refused or have no lock.
func (t *tests) admit() (asked []gpu.Device, err error) {
	seen := map[gpu.ID]bool{}
	for _, d := range t.Req.Devices {
		if d.ID == "" {
			return nil, fmt.Errorf("probe the GPU at %q: it has no id", d.BusID)
		}
		if why := t.Refuse(d.ID); seen[d.ID] {
			continue
		} else if why != "" {
			t.tell(skipped(d.ID, why))
		} else if t.Req.Probe.Locks[d.ID] == "" {
			t.tell(skipped(d.ID, "no lock was named for it"))
		} else {
			asked = append(asked, d)
		}
		seen[d.ID] = true
	}
	slices.SortFunc(asked, func(a, b gpu.Device) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return asked, nil
}

// started is the result of starting what tests need: the library, and the devices as they are read without it.
type started struct {
	failed  *outcome // of the library
	took    time.Duration
	fault   *gpu.Fault
	devices []Device
}

// start starts the library, which takes longest, in parallel with the vendor's own preparation.
func (t *tests) start(asked []gpu.Device) (s started, err error) {
	var ids []string
	for _, d := range asked {
		ids = append(ids, string(d.ID))
	}
	t.Setenv(strings.Join(ids, ",")) // before any other thread runs the vendor's code
	// CUDA maps far more than it uses. Under an address-space limit inherited from slurmd it fails as on a broken GPU.
	none := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	_ = unix.Setrlimit(unix.RLIMIT_AS, &none) // if it fails, the library reports what it lacks
	library := child.Async(func() (started, error) {
		begin := t.Boot()
		failed := t.Library.start(t.Path)
		return started{failed: failed, took: t.Boot() - begin}, nil
	})
	devices, fault, err := t.Open(asked)
	if err != nil || fault != nil {
		return started{fault: fault}, err
	}
	s, err = library()
	s.devices = devices
	return s, err
}

// await runs what may hang in a vendor's library in a goroutine. ok is false if the time is up first.
func await[T any](t *tests, do func() (T, error)) (value T, ok bool, err error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	child.Go(func(defect *child.Panic) { done <- result{err: defect} }, func() {
		v, err := do()
		done <- result{v, err}
	})
	over := time.NewTimer(t.until - t.Boot())
	defer over.Stop()
	select {
	case r := <-done:
		return r.value, true, r.err
	case <-over.C:
		return value, false, nil
	}
}

// testAll writes patterns last: a driver that is slow or crashes there affects no other device's result.
func (t *tests) testAll(ready started) error {
	t.init = ready.took
	can := slices.DeleteFunc(ready.devices, func(d Device) bool {
		if d.Skip != "" {
			t.tell(skipped(d.ID, d.Skip))
		}
		return d.Skip != ""
	})
	var patterns []func() gpu.Probe
	for _, d := range can {
		result := skipped(d.ID, "")
		if ready.failed != nil {
			t.unseen(&result, *ready.failed)
		} else if v := t.test(d, &result); result.Result == gpu.ProbeOK && slices.Contains(t.Req.Probe.Pattern, d.ID) {
			patterns = append(patterns, func() gpu.Probe { return v.pattern(result) })
		}
		result.Times.Init = t.init
		t.tell(result)
	}
	for _, pattern := range patterns {
		t.tell(pattern())
	}
	return t.finish(nil, "")
}

// unseen skips a device that may be hidden by another: CUDA's list ends at the first unknown one.
func (t *tests) unseen(result *gpu.Probe, o outcome) {
	if len(t.Req.Devices) > 1 && (o.code == noDevice || o.code == invalidDevice) {
		skip(result, t.Name+" does not show it, or not one that was asked for together with it: ask for it alone. "+
			o.words())
		return
	}
	fail(result, o)
}

// test tests a device and returns its free memory, nil if it was not tested.
func (t *tests) test(d Device, result *gpu.Probe) *vacancy {
	if !t.more() {
		skip(result, fmt.Sprintf("%s: %s took %v to start", outOfTime, t.Name, t.init.Round(time.Millisecond)))
		return nil
	}
	if d.BusID == "" {
		skip(result, "its bus id is not known")
		return nil
	}
	number, failed := t.byBus(string(d.BusID))
	if failed != nil {
		t.unseen(result, *failed)
		return nil
	}
	if other := t.strange(d, number); other != "" {
		skip(result, other)
		return nil
	}
	release, why := t.lock(d.ID)
	if why != "" {
		skip(result, why)
		return nil
	}
	defer release()
	v := &vacancy{t, d, number, &result.Times}
	v.test(result)
	return v
}

// strange returns how CUDA contradicts a device's id. HIP gives no id: it was restricted to those that were asked for.
func (t *tests) strange(d Device, number device) string {
	if t.Prefix == "hip" {
		return ""
	}
	uuid, failed := t.uuid(number)
	if failed != nil {
		return failed.words()
	}
	if _, id, _ := strings.Cut(string(d.ID), "-"); !strings.EqualFold(id, uuid) {
		return fmt.Sprintf("CUDA has another GPU at its place: %s", uuid)
	}
	return ""
}

// lock takes a device's lock, or returns why not. Threat: a user's lock file, held forever: safefile takes only root's.
func (t *tests) lock(id gpu.ID) (release func(), why string) {
	begin := t.Boot()
	wait := max(0, min(t.wait, t.until-begin))
	unlock, err := safefile.Lock(t.Req.Probe.Locks[id], wait, true)
	t.wait -= t.Boot() - begin
	if errors.Is(err, safefile.ErrLocked) {
		err = fmt.Errorf("somebody else was testing or judging it for %v", wait.Round(time.Millisecond))
	}
	if err != nil {
		return nil, err.Error()
	}
	return unlock, ""
}

// tell sends a result. If it cannot be sent, no further test is made.
func (t *tests) tell(result gpu.Probe) {
	result.At = t.Boot()
	if t.lost == nil {
		t.lost = t.SendProbe(result)
	}
}

// finish reports that these devices are not tested, and completes the answer.
func (t *tests) finish(asked []gpu.Device, why string, faults ...gpu.Fault) error {
	for _, d := range asked {
		t.tell(skipped(d.ID, why))
	}
	if t.lost != nil {
		return t.lost
	}
	return t.Finish(faults...)
}

// more reports whether there is time for another attempt, and the answer can still be sent.
func (t *tests) more() bool { return t.lost == nil && t.Boot() < t.until }

// restTime is the pause between two searches of a device.
const restTime = 100 * time.Millisecond

// rest waits between two searches of a device, or reports that there is no time for it.
func (t *tests) rest() bool {
	if t.Boot()+restTime >= t.until {
		return false
	}
	time.Sleep(restTime)
	return true
}

// vacancy is a device's free memory, as long as no other process is on the device.
type vacancy struct {
	*tests
	device Device
	number device
	times  *gpu.ProbeTimes
}

func (v *vacancy) test(result *gpu.Probe) {
	can, failed := v.contextless(v.number)
	var step uint64
	if failed == nil && can {
		step, failed = v.granularity(v.number)
	}
	switch {
	case failed != nil:
		fail(result, *failed)
	case can:
		result.Method = gpu.Contextless
		step = max(step, 1)
		step = (searchStep + step - 1) / step * step // rounded up to the driver's granularity
		search(v, step, v.Req.Probe.Gap, result)
	}
	if failed == nil && !can || result.Error != nil && result.Error.Code == notSupported {
		*result = skipped(v.device.ID, "its memory cannot be had without a context, which a test does not make")
	}
}

func (v *vacancy) free() (uint64, string) {
	r, no := v.device.Read()
	if no == "" && r.ProcessesUnknown != "" {
		no = "who is on the GPU is not known: " + r.ProcessesUnknown
	}
	for _, p := range r.Processes {
		if no == "" && !v.known[p.PID] {
			no = fmt.Sprintf("another process is on the GPU: %d", p.PID)
		}
	}
	if no != "" {
		return 0, no
	}
	return r.Memory.Free.Bytes, r.Memory.Free.Unknown
}

func (v *vacancy) take(bytes uint64) *outcome {
	begin := v.Boot()
	handle, failed := v.create(v.number, bytes)
	taken := v.Boot()
	v.times.Search += taken - begin
	if failed != nil {
		return failed
	}
	failed = v.release(handle)
	v.times.Release += v.Boot() - taken
	return failed
}
