package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/backendkit"
	"bookend/internal/child"
	"bookend/internal/gpu"
)

type prober struct {
	*backendkit.Tests
	init time.Duration // what CUDA took to start
	lib  *library
}

// serveProbe tests devices one after another, as the driver would do anyway. It sends each result immediately.
func serveProbe(s backendkit.Session) error {
	p := &prober{Tests: s.Tests()}
	path, err := libraryPath(s.Req.Options[optionCUDA], cudaSoname)
	if err != nil {
		return err
	}
	folder := empty(s.Req.Probe.Empty)
	asked, err := p.Admit(func(id gpu.ID) string {
		if isInstance(id) {
			return "MIG instances are not tested"
		}
		return folder
	})
	if err != nil {
		return err
	}
	if len(asked) == 0 {
		return p.Skip(nil, "")
	}
	if err := p.prepare(asked); err != nil {
		return err
	}
	begin := s.Boot()
	started, ok, err := backendkit.Await(p.Tests, func() (started, error) { return p.load(path, asked) })
	switch {
	case err != nil:
		return err
	case !ok:
		// A slow start is no fault: cuInit serialises (1.2 s for four at once, measured), and without persistence mode
		// it attaches the GPUs first, which was reported to take 1-3 s each.
		return p.Skip(asked, fmt.Sprintf("CUDA did not start within %v (persistence mode is off, or several start "+
			"at once?)", (s.Boot()-begin).Round(100*time.Millisecond)))
	}
	return p.testAll(asked, started)
}

// empty returns why a directory may contain MPS. Threat: with a daemon in it the driver becomes its client, as root.
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

// started is the result of starting what tests need: CUDA, NVML, and the devices opened through NVML.
type started struct {
	failed *outcome // of CUDA
	took   time.Duration
	lib    *library
	fault  *gpu.Fault // of NVML
	opened []opened
}

func (p *prober) prepare(asked []gpu.Device) error {
	var ids []string
	for _, d := range asked {
		ids = append(ids, string(d.ID))
	}
	if err := prepareCUDA(strings.Join(ids, ","), p.Req.Probe.Empty); err != nil {
		return err
	}
	// CUDA maps far more than it uses. Under an address-space limit inherited from slurmd it fails as on a broken GPU.
	none := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	_ = unix.Setrlimit(unix.RLIMIT_AS, &none) // if it fails, CUDA reports what it lacks
	return nil
}

// load starts CUDA, which takes longest, in parallel with NVML.
func (p *prober) load(path string, asked []gpu.Device) (started, error) {
	type answer struct {
		failed *outcome
		took   time.Duration
		err    error
	}
	starting := make(chan answer, 1)
	child.Go(func(defect *child.Panic) { starting <- answer{err: defect} }, func() {
		begin := p.Boot()
		failed := startCUDA(path)
		starting <- answer{failed: failed, took: p.Boot() - begin}
	})
	lib, fault, err := openLibrary(p.Req.Options[optionNVML])
	if err != nil || fault != nil {
		return started{fault: fault}, err
	}
	all, err := child.Parallel(len(asked), func(i int) opened { return lib.openAsked(asked[i]) })
	cuda := <-starting
	return started{failed: cuda.failed, took: cuda.took, lib: lib, opened: all}, errors.Join(err, cuda.err)
}

// testAll tests GPUs in the order of their ids, as every program that locks several does. NVML provides what CUDA does
// not: the free memory without a context, and the processes. Devices that cannot be tested are reported first.
func (p *prober) testAll(asked []gpu.Device, s started) error {
	if s.fault != nil {
		return p.Skip(asked, s.fault.Detail, *s.fault)
	}
	p.lib, p.init = s.lib, s.took
	var cards []device
	for i, o := range s.opened {
		if o.fault != nil {
			p.Tell(backendkit.Skipped(asked[i].ID, o.fault.Detail))
		} else if why := p.untestable(o.devices[0]); why != "" {
			p.Tell(backendkit.Skipped(asked[i].ID, why))
		} else {
			cards = append(cards, o.devices[0])
		}
	}
	for _, d := range cards {
		result := backendkit.Skipped(d.ID, "")
		if s.failed != nil {
			p.unseen(&result, *s.failed)
		} else {
			p.test(d, &result)
		}
		result.Times.Init = p.init
		p.Tell(result)
	}
	return p.Skip(nil, "")
}

// unseen skips a device that CUDA does not show if another may be the cause: its list ends at the first unknown one.
func (p *prober) unseen(result *gpu.Probe, o outcome) {
	if len(p.Req.Devices) > 1 && (o.Code == cudaNoDevice || o.Code == cudaInvalidDevice) {
		backendkit.Skip(result, "CUDA does not show it, or not one that was asked for together with it: ask for it "+
			"alone. "+o.Words())
		return
	}
	backendkit.Fail(result, o)
}
