package stage

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"bookend/internal/backend"
	"bookend/internal/code"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/operation"
	"bookend/internal/routine"
	"bookend/internal/wire"
)

// session is one backend at work.
type session struct {
	devices []gpu.Device
	stop    chan struct{}
	ended   chan backend.Answer
	last    time.Duration // CLOCK_BOOTTIME of its last word
}

// follow keeps a session on the GPUs of the open runs, and none where there are none.
func (r *recorder) follow(runs []ledger.Run) {
	var devices []gpu.Device
	for _, run := range runs {
		for _, d := range run.Devices {
			known := slices.ContainsFunc(devices, func(o gpu.Device) bool { return o.ID == d.Device.ID })
			if d.Device.ID != "" && !known {
				devices = append(devices, gpu.Device{ID: d.Device.ID, BusID: d.Device.BusID, Parent: d.Device.Parent})
			}
		}
	}
	late := time.Duration(r.Config.Record.Every) + time.Duration(r.Times.Driver) + silence
	switch s := r.session; {
	case s == nil:
	case r.Clock.Boot()-s.last > late:
		r.endSession()
		r.kept.Problem = fmt.Sprintf("%s: the backend said nothing for %v", code.Slow, late)
		r.retry = r.Clock.Boot() + restart
	case !slices.Equal(s.devices, devices):
		r.endSession()
	}
	if r.session == nil && len(devices) > 0 {
		r.begin(devices)
	}
}

// begin starts a session, where that may be now: no child is stuck in the driver, and nothing says that it is to rest.
func (r *recorder) begin(devices []gpu.Device) {
	now := r.Clock.Boot()
	if now < r.retry || r.rest != "" && r.rest == r.inUse() || !r.answers() {
		return
	}
	r.rest, r.retry = "", now+restart
	s := &session{devices: devices, stop: make(chan struct{}), ended: make(chan backend.Answer, 1), last: now}
	req := wire.Request{
		Op: wire.Record, Devices: devices, DeadlineMillis: time.Duration(r.Times.Driver).Milliseconds(),
		Watch: gpu.WatchRule{Every: time.Duration(r.Config.Record.Every)}, Options: r.Config.NVIDIA.ForLooks(),
	}
	looks := r.looks
	params := backend.Params{Path: r.Config.Backend, Root: r.EUID == 0, Stop: s.stop, Grace: time.Duration(r.Times.Driver),
		OnLook: func(look gpu.Snapshot) {
			select {
			case looks <- look:
			case <-s.stop:
			}
		}}
	routine.Go(func(p *routine.Panic) { s.ended <- backend.Answer{Panic: p} }, func() {
		s.ended <- backend.Ask(params, req)
	})
	r.session = s
}

// endSession ends the session, and waits for its end: a call of the driver may take a while.
func (r *recorder) endSession() {
	s := r.session
	if s == nil {
		return
	}
	close(s.stop)
	r.session, r.retry = nil, 0
	if a := <-s.ended; a.Abandoned != nil {
		r.leave(a)
	}
}

// leave takes a session's end. One that could not be killed goes on record, so that no hook asks the driver beside it;
// over says that it ends the recorder too.
func (r *recorder) leave(a backend.Answer) (over bool) {
	r.kept.Problem = ""
	switch {
	case a.Abandoned != nil:
		r.abandoned(operation.Backend, a.Abandoned.PID, a.Abandoned.StartTicks)
		return true
	case a.Panic != nil:
		return true
	case len(a.Troubles) > 0:
		r.kept.Problem = fmt.Sprintf("%s: %s", a.Troubles[0].Code, a.Troubles[0].Detail)
	default:
		if r.rest = r.inUse(); r.rest == "" {
			r.retry = r.Clock.Boot() + later
		}
	}
	return false
}

// inUse reads how often the drivers' modules are in use: it changes when a process opens a GPU. It is empty where that
// cannot be read.
func (r *recorder) inUse() (counts string) {
	for _, v := range gpu.Vendors {
		// Threat: none, the kernel's own file.
		text, err := os.ReadFile(filepath.Join(r.Config.Paths.Sys, "module", v.Module, "refcnt"))
		if err == nil {
			counts += v.Module + "=" + strings.TrimSpace(string(text)) + " "
		}
	}
	return counts
}
