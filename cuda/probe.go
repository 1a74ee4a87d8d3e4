package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/gpu"
	"bookend/internal/routine"
	"bookend/internal/safefile"
	"bookend/internal/serve"
	"bookend/internal/wire"
)

// prober answers one request for test allocations.
type prober struct {
	serve.Session
	end   time.Duration // when no further attempt is begun
	wait  time.Duration // what is left of the time for locks
	init  time.Duration // what CUDA took to start
	lib   *library
	known map[int]bool // processes that may be on a card
	lost  error        // of the answer
}

// serveProbe tests every device that was asked for, one after another: the driver would serialise them anyway. Each
// result is sent when it is known, so that a crash or hang at a later device costs none.
func serveProbe(s serve.Session) error {
	p := &prober{Session: s, end: s.End(), wait: s.Req.Probe.LockWait}
	p.known = map[int]bool{os.Getpid(): true}
	for _, pid := range s.Req.Probe.Known {
		p.known[pid] = true
	}
	path, err := libraryPath(s.Req.Options[optionCUDA], cudaSoname)
	if err != nil {
		return err
	}
	asked, err := p.admit()
	if err != nil {
		return err
	}
	if len(asked) == 0 {
		return p.skipAll(nil, "")
	}
	begin := s.Boot()
	starting, err := p.start(path, asked)
	if err != nil {
		return err
	}
	over := time.NewTimer(p.end - s.Boot())
	defer over.Stop()
	select {
	case s := <-starting:
		return p.testAll(asked, s)
	case <-over.C:
		// The thread that waits in the driver ends with this process. A start that takes long is no fault: cuInit
		// serialises (1.2 s for four at once, measured), and without persistence mode it attaches the cards first,
		// which was reported to take 1-3 s each.
		return p.skipAll(asked, fmt.Sprintf("CUDA did not start within %v (persistence mode is off, or several start "+
			"at once?)", (s.Boot()-begin).Round(100*time.Millisecond)))
	}
}

// admit refuses what can be refused without asking any driver.
func (p *prober) admit() (asked []gpu.Device, err error) {
	seen := map[gpu.ID]bool{}
	folder := empty(p.Req.Probe.Empty)
	for _, d := range p.Req.Devices {
		switch {
		case d.ID == "":
			return nil, fmt.Errorf("probe the GPU at %q: it has no id", d.BusID)
		case seen[d.ID]:
		case isInstance(d.ID):
			p.tell(skipped(d.ID, "MIG instances are not tested"))
		case folder != "":
			p.tell(skipped(d.ID, folder))
		case p.Req.Probe.Locks[d.ID] == "":
			p.tell(skipped(d.ID, "no lock was named for it"))
		default:
			asked = append(asked, d)
		}
		seen[d.ID] = true
	}
	slices.SortFunc(asked, func(a, b gpu.Device) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return asked, nil
}

// empty says why a folder is no place to keep away from MPS. Threat: a daemon in it, or whoever could put one there:
// the driver would become a client of it, with root's rights.
func empty(folder string) string {
	if folder == "" {
		return "no empty directory was named to keep away from MPS"
	}
	fd, err := unix.Open(folder, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Sprintf("open directory %q: %v", folder, err)
	}
	f := os.NewFile(uintptr(fd), folder)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Sprintf("look at directory %q: %v", folder, err)
	}
	if st.Uid != 0 && st.Uid != uint32(os.Geteuid()) || st.Mode&0o022 != 0 {
		return fmt.Sprintf("directory %q: others may write to it", folder)
	}
	if names, _ := f.Readdirnames(1); len(names) > 0 {
		return fmt.Sprintf("directory %q: not empty, so that MPS may be in it", folder)
	}
	return ""
}

// started is what became of the start of what tests need: CUDA, NVML, and the devices through NVML.
type started struct {
	failed *outcome // of CUDA
	took   time.Duration
	lib    *library
	fault  *gpu.Fault // of NVML
	opened []opened
	err    error
}

// start starts the driver's libraries on threads of their own, as nobody knows when they come back.
func (p *prober) start(path string, asked []gpu.Device) (<-chan started, error) {
	var ids []string
	for _, d := range asked {
		ids = append(ids, string(d.ID))
	}
	if err := prepareCUDA(strings.Join(ids, ","), p.Req.Probe.Empty); err != nil {
		return nil, err
	}
	// CUDA maps far more than it uses: under a limit that slurmd may have handed on it fails to start as on a sick
	// card.
	none := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	_ = unix.Setrlimit(unix.RLIMIT_AS, &none) // else CUDA says what it lacks
	starting := make(chan started, 1)
	routine.Go(func(defect *routine.Panic) { starting <- started{err: defect} },
		func() { starting <- p.load(path, asked) })
	return starting, nil
}

// load starts CUDA beside NVML: of all that a probe does this takes the longest. The devices are opened after CUDA has
// started, which attaches them: both at once wait for each other.
func (p *prober) load(path string, asked []gpu.Device) (s started) {
	cuda := make(chan started, 1)
	routine.Go(func(defect *routine.Panic) { cuda <- started{err: defect} }, func() {
		begin := p.Boot()
		failed := startCUDA(path)
		cuda <- started{failed: failed, took: p.Boot() - begin}
	})
	lib, fault, err := openLibrary(p.Req.Options[optionNVML])
	if err != nil || fault != nil {
		return started{fault: fault, err: err}
	}
	if s = <-cuda; s.err != nil {
		return s
	}
	s.lib = lib
	s.opened, s.err = inParallel(len(asked), func(i int) opened { return lib.openAsked(asked[i]) })
	return s
}

// testAll tests the cards, in the order of their ids, which all who lock several share. NVML tells what CUDA does not:
// free memory without a context, and who is there. Cards that cannot be judged by it, or that their state forbids to
// test, are told first.
func (p *prober) testAll(asked []gpu.Device, s started) error {
	switch {
	case s.err != nil:
		return s.err
	case s.fault != nil:
		return p.skipAll(asked, s.fault.Detail, *s.fault)
	}
	p.lib, p.init = s.lib, s.took
	var cards []device
	for i, o := range s.opened {
		if o.fault != nil {
			p.tell(skipped(asked[i].ID, o.fault.Detail))
		} else if why := p.untestable(o.devices[0]); why != "" {
			p.tell(skipped(asked[i].ID, why))
		} else {
			cards = append(cards, o.devices[0])
		}
	}
	for _, d := range cards {
		result := skipped(d.ID, "")
		if s.failed != nil {
			p.unseen(&result, *s.failed)
		} else {
			p.test(d, &result)
		}
		result.Times.Init = p.init
		p.tell(result)
	}
	return p.skipAll(nil, "")
}

// unseen is a device that CUDA did not show. CUDA's list ends with the first that it does not know, so that whose fault
// it is shows only where one was asked for alone.
func (p *prober) unseen(result *gpu.Probe, o outcome) {
	if len(p.Req.Devices) > 1 && (o.code == cudaNoDevice || o.code == cudaInvalidDevice) {
		skip(result, "CUDA does not show it, or not one that was asked for together with it: ask for it "+
			"alone. "+o.words())
		return
	}
	fail(result, o)
}

// lock takes a device's lock, or says why it was not to be had. Threat: a lock file of another's making would be held
// for ever: safefile takes none but root's own, in root's own folder.
func (p *prober) lock(id gpu.ID) (release func(), why string) {
	begin := p.Boot()
	wait := max(0, min(p.wait, p.end-begin))
	unlock, err := safefile.Lock(p.Req.Probe.Locks[id], wait, true)
	p.wait -= p.Boot() - begin
	if errors.Is(err, safefile.ErrLocked) {
		err = fmt.Errorf("somebody else was testing or judging it for %v", wait.Round(time.Millisecond))
	}
	if err != nil {
		return nil, err.Error()
	}
	return unlock, ""
}

// skipped is a test that was not made.
func skipped(id gpu.ID, why string) gpu.Probe {
	no := gpu.Unknown("not tested")
	p := gpu.Probe{Device: id, Free: no, Largest: no}
	skip(&p, why)
	return p
}

// tell sends a result; an answer that nobody takes any more ends the tests.
func (p *prober) tell(result gpu.Probe) {
	result.At = p.Boot()
	if p.lost == nil {
		p.lost = p.Out.Write(wire.Reply{Kind: wire.KindProbe, Probe: &result})
	}
}

// skipAll ends the answer, without a test of these.
func (p *prober) skipAll(asked []gpu.Device, why string, faults ...gpu.Fault) error {
	for _, d := range asked {
		p.tell(skipped(d.ID, why))
	}
	if p.lost != nil {
		return p.lost
	}
	return p.Finish(faults...)
}
