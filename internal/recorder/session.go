package recorder

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"bookend/internal/child"
	"bookend/internal/gpu"
	"bookend/internal/node"
	"bookend/internal/record"
)

type session struct {
	vendor  string
	devices []gpu.Device
	stop    chan struct{}
	last    time.Duration // CLOCK_BOOTTIME when its last sample arrived
	sampled time.Duration // and when that was taken; 0 before the first
}

func (s *session) sees(run record.Run) bool {
	another := func(d record.Assigned) bool { return gpu.VendorOf(d.Device).Name != s.vendor }
	return !slices.ContainsFunc(run.Devices, another)
}

type pause struct {
	until time.Duration // CLOCK_BOOTTIME
	in    string        // inUse at the end of a session: none begins until that changes
}

type taken struct {
	of   *session
	look gpu.Snapshot
}

type end struct {
	of     *session
	answer node.Answer
}

// follow keeps one session for each vendor with GPUs in open runs, and ends the others.
func (r *recorder) follow(runs []record.Run) {
	wanted := map[string][]gpu.Device{}
	for _, run := range runs {
		for _, d := range run.Devices {
			device := gpu.Device{
				ID: d.Device.ID, BusID: d.Device.BusID, Parent: d.Device.Parent, Vendor: d.Device.Vendor,
			}
			vendor := gpu.VendorOf(device).Name
			known := slices.ContainsFunc(wanted[vendor], func(o gpu.Device) bool { return o.ID == device.ID })
			if device.ID != "" && !known {
				wanted[vendor] = append(wanted[vendor], device)
			}
		}
	}
	late := time.Duration(r.a.Config.Record.Every) + time.Duration(r.a.Times.Driver) + silence
	for _, v := range gpu.Vendors {
		switch s := r.sessions[v.Name]; {
		case s == nil:
		case r.env.Clock.Boot()-s.last > late:
			r.endSession(s)
			r.kept.Problem = node.Silent(late).String()
			r.pauses[v.Name] = pause{until: r.env.Clock.Boot() + restart}
		case !slices.Equal(s.devices, wanted[v.Name]):
			r.endSession(s)
		}
		if r.sessions[v.Name] == nil && len(wanted[v.Name]) > 0 {
			r.begin(v.Name, wanted[v.Name])
		}
	}
}

// begin starts a session if it may: no child is stuck in the driver, and no pause is in effect.
func (r *recorder) begin(vendor string, devices []gpu.Device) {
	now, wait := r.env.Clock.Boot(), r.pauses[vendor]
	if now < wait.until || wait.in != "" && wait.in == r.inUse() {
		return
	}
	if answers, _ := r.a.Answers(); !answers { // the next hook reports it
		return
	}
	r.pauses[vendor] = pause{until: now + restart}
	s := &session{vendor: vendor, devices: devices, stop: make(chan struct{}), last: now}
	a := r.a // a new configuration ends the session, and may come before its end
	child.Go(func(p *child.Panic) { r.ended <- end{s, node.Answer{Panic: p}} }, func() {
		r.ended <- end{s, a.Record(vendor, devices, s.stop, func(look gpu.Snapshot) {
			select {
			case r.looks <- taken{s, look}:
			case <-s.stop:
			}
		})}
	})
	r.sessions[vendor] = s
}

// endSession stops a session, and waits until it has ended: a call of the driver may take a while.
func (r *recorder) endSession(s *session) {
	close(s.stop)
	for e := range r.ended {
		over := r.leave(e)
		if e.of == s {
			delete(r.pauses, s.vendor)
			r.broken = r.broken || over
			return
		}
	}
}

// leave handles the end of a session. A backend that could not be killed is recorded, so that no hook asks the driver
// meanwhile. over means that the recorder must end too.
func (r *recorder) leave(e end) (over bool) {
	delete(r.sessions, e.of.vendor)
	r.kept.Problem = ""
	switch a := e.answer; {
	case a.Abandoned != nil:
		r.a.Troubles(a, "")
		return true
	case a.Panic != nil:
		return true
	case len(a.Troubles) > 0:
		r.kept.Problem = a.Troubles[0].String()
	default:
		wait := pause{in: r.inUse()}
		if wait.in == "" {
			wait.until = r.env.Clock.Boot() + later
		}
		r.pauses[e.of.vendor] = wait
	}
	return false
}

// inUse returns the use counts of the drivers' modules, which change when a process opens a GPU; empty if unknown.
func (r *recorder) inUse() (counts string) {
	for _, v := range gpu.Vendors {
		// Threat: none, the kernel's own file.
		text, err := os.ReadFile(filepath.Join(r.a.Config.Paths.Sys, "module", v.Module, "refcnt"))
		if err == nil {
			counts += v.Module + "=" + strings.TrimSpace(string(text)) + " "
		}
	}
	return counts
}
