package main

import (
	"slices"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/settle"
	"bookend/test/soak/world"
)

// What seeing costs. A look's own time was measured at half a millisecond a card, the first at 15-45.
const (
	firstLook = 15 * time.Millisecond
	oneLook   = time.Millisecond
	// backendReserve is the time a hook leaves its backend for one last look.
	backendReserve = 500 * time.Millisecond
	// stepEnds is how long a step's daemon outlives the processes of its job that it has killed.
	stepEnds = 100 * time.Millisecond
)

// Watch looks at the job's cards on the real schedule.
func (h *hook) Watch(cards []record.Assigned, rule gpu.WatchRule) []gpu.Snapshot {
	h.seen.watches++
	if h.damage.kind == noFirstWatch && h.seen.watches == 1 || h.damage.kind == noLaterWatch && h.seen.watches > 1 {
		h.sleep(200 * time.Millisecond)
		h.Faults = append(h.Faults, record.Finding{Code: catalog.BackendCrash, Observed: "no answer"})
		return nil
	}
	h.node.Watching++
	defer func() { h.node.Watching-- }()
	timeout := h.left(time.Duration(h.times.Driver))
	rule.Max = max(0, min(rule.Max, timeout-backendReserve))
	var devices []gpu.Device
	for _, c := range cards {
		devices = append(devices, c.Device)
	}
	end := h.node.Now + timeout
	var looks []gpu.Snapshot
	h.sleep(firstLook)
	if h.seen.watches == 1 {
		h.seen.first = h.node.Now
	}
	for {
		h.stall(len(looks))
		if h.node.Now > end && len(looks) > 0 {
			break // killed; what it saw counts
		}
		s := h.node.Snapshot(h.job.Cards)
		h.seen.last = h.node.Now
		h.sleep(oneLook)
		if h.damage.kind != whole {
			h.damage.spoil(&s, len(looks))
		}
		if looks = append(looks, s); settle.Done(rule, devices, looks) {
			break
		}
		h.sleep(settle.Pause(len(looks)))
	}
	return looks
}

func (h *hook) stall(look int) {
	switch {
	case h.damage.kind == stalled && h.damage.befalls(look):
		h.sleep(h.between(300*time.Millisecond, 5*time.Second))
	case h.node.Now < h.seen.slowUntil: // another's teardown holds the driver's locks
		h.sleep(380 * time.Millisecond)
	}
}

// Processes reads /proc.
func (h *hook) Processes(pids []int) map[int]record.Process {
	out := make(map[int]record.Process, len(pids))
	if len(pids) == 0 {
		return out
	}
	h.sleep(h.between(time.Millisecond, 10*time.Millisecond))
	for i, pid := range pids {
		out[pid] = record.Process{PID: pid, Gone: true}
		if h.damage.kind == noProc && (h.damage.look == everyLook || i%2 == 0) {
			out[pid] = record.Process{PID: pid, Why: "permission denied"}
		} else if p := h.node.Process(pid); p != nil {
			out[pid] = h.listed(p)
		}
	}
	return out
}

// listed is what /proc says of the process that has a PID which the driver lists. One without a GPU open is not the one
// that is listed.
func (p *pair) listed(of *world.Process) record.Process {
	if !of.Opened() {
		return record.Process{PID: of.PID, Gone: true, Reused: true}
	}
	return p.facts(of)
}

func (p *pair) facts(of *world.Process) record.Process {
	state := of.State
	if of.Exiting {
		state = "X"
	}
	facts := record.Process{
		PID: of.PID, Start: p.node.Started(of), UID: of.UID, Name: of.Name, State: state,
		Cgroup: of.Cgroup, EnvJobID: of.Env, Service: of.Service, Container: of.Container, Exe: of.Exe, OtherPIDs: of.OtherPIDs,
	}
	step := func(j *world.Job) bool {
		return (j.Live || p.node.Now < j.Ended+stepEnds) && (j.ID == of.Env || j.Het == of.Env) && (j.UID == of.UID || facts.Apart())
	}
	if of.Env != 0 && !of.Cgroup.Found() && slices.ContainsFunc(p.node.Jobs, step) {
		facts.EnvJobHere = "a slurmstepd of it runs on this node"
	}
	return facts
}

// Holders searches all of /proc for who has a card open.
func (h *hook) Holders(time.Duration) *record.Scan {
	switch h.damage.kind {
	case forbiddenScan:
		return nil
	case failedScan:
		h.sleep(time.Second)
		return &record.Scan{Partial: "child was killed"}
	}
	h.sleep(h.between(5*time.Millisecond, 800*time.Millisecond))
	scan := &record.Scan{Looked: len(h.node.Processes())}
	for i, p := range h.node.Processes() {
		if !p.Control && !p.UVM && len(p.Minors) == 0 {
			continue
		}
		if h.damage.kind == partialScan && i%2 == 0 {
			scan.Partial = "1 process could not be looked into"
			continue
		}
		held := record.Holding{Process: h.facts(p), Minors: p.Minors, Control: p.Control, UVM: p.UVM}
		if h.node.Site.AMD { // a handle to another's memory is a DMA buffer there
			held = record.Holding{Process: h.facts(p), Renders: p.Minors, Buffers: p.Control && len(p.Minors) == 0}
		}
		scan.Holdings = append(scan.Holdings, held)
	}
	return scan
}

// Quiet waits until no probe is at work.
func (h *hook) Quiet(cards []record.Assigned) (map[gpu.ID]string, func()) {
	h.sleep(h.between(0, 2*time.Millisecond))
	if h.damage.kind == busy {
		return map[gpu.ID]string{cards[0].Device.ID: "a probe is at work on it"}, func() {}
	}
	return nil, func() {}
}
