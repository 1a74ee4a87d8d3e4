package stage

import (
	"time"

	"bookend/internal/attrib"
	"bookend/internal/backend"
	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/holders"
	"bookend/internal/settle"
	"bookend/internal/slurm"
	"bookend/internal/wire"
)

// processesRequest crosses the pipe of opProcesses.
type processesRequest struct {
	Proc string `json:"proc"`
	PIDs []int  `json:"pids"`
}

var serveProcesses = served(func(r processesRequest) ([]attrib.Process, error) {
	return holders.Processes(r.Proc, r.PIDs), nil
})

// look watches the job's cards until they are at rest, and reads who is on them.
func (h *hook) look(expect map[gpu.ID]gpu.Expected) finding.Side {
	side := finding.Side{Curves: map[gpu.ID]settle.Curve{}, Processes: map[int]attrib.Process{}}
	rule := gpu.WatchRule{
		Max: time.Duration(h.settle.Max), Flat: time.Duration(h.settle.Flat),
		SlackBytes: uint64(h.cfg.Thresholds.Report), Expect: expect,
	}
	looks := h.watch(rule)
	if len(looks) == 0 {
		return side
	}
	side.Snapshot = looks[len(looks)-1]
	h.identify(side.Snapshot)
	for _, c := range h.cards {
		side.Curves[c.Device.ID] = settle.JudgeDevice(rule, c.Device, looks)
	}
	side.Processes = h.processes(side.Snapshot)
	if h.phase == slurm.Epilog && flat(side) {
		h.confirm(&side, rule, looks)
	}
	return side
}

func flat(side finding.Side) bool {
	for _, c := range side.Curves {
		if c.State == settle.Flat {
			return true
		}
	}
	return false
}

// confirm looks again after /proc was read, since what was listed may have ended meanwhile: then its memory is on
// its way back. A listed PID that was gone already has to stay listed for the whole flat time after that.
func (h *hook) confirm(side *finding.Side, rule gpu.WatchRule, looks []gpu.Snapshot) {
	again := rule
	again.Max = 0 // one look
	for _, p := range side.Processes {
		if p.Gone {
			again.Max, looks = rule.Max, nil
		}
	}
	more := h.watch(again)
	looks = append(looks, more...)
	if len(more) > 0 {
		side.Snapshot = more[len(more)-1]
	}
	ended := h.endedSince(*side)
	for _, c := range h.cards {
		id := c.Device.ID
		curve := side.Curves[id]
		if len(more) > 0 { // every card: what the new look says of one must not be read with the old verdict
			curve = settle.JudgeDevice(rule, c.Device, looks)
		}
		if curve.State == settle.Flat && (len(more) == 0 || ended[id]) {
			curve.State, curve.Steady = settle.Moving, false // nobody can say that it is still so
		}
		side.Curves[id] = curve
	}
}

// endedSince names the cards on which a process ended since /proc was read, or can no longer be read: for a
// moment the driver lists the memory of one that ended still.
func (h *hook) endedSince(side finding.Side) map[gpu.ID]bool {
	ended := map[gpu.ID]bool{}
	now := h.processes(side.Snapshot)
	for _, r := range side.Snapshot.Readings {
		for _, p := range r.Processes {
			before, after := side.Processes[p.PID], now[p.PID]
			same := after.Why == "" && after.Gone == before.Gone && after.Start == before.Start
			ended[r.Device.ID] = ended[r.Device.ID] || before.Why == "" && !same
		}
	}
	return ended
}

// watch asks the backend to look at the job's cards as long as the rule says, or the hook's time allows.
func (h *hook) watch(rule gpu.WatchRule) []gpu.Snapshot {
	if len(h.cards) == 0 {
		return nil
	}
	timeout := h.left(time.Duration(h.times.Driver), h.reserve())
	// The backend ends by itself before it would be killed, so that what it saw arrives.
	rule.Max = max(0, min(rule.Max, timeout-backendReserve))
	answer := backend.Ask(backend.Params{Path: h.cfg.Backend, Root: h.env.EUID == 0}, h.request(rule, timeout))
	h.looks += len(answer.Snapshots)
	h.troubles(answer)
	return answer.Snapshots
}

// backendReserve is the time a backend has for one last look after the rule's Max: attaching a GPU without
// persistence was reported to take 1-3 s, a call during another's teardown measured 0.4 s.
const backendReserve = 500 * time.Millisecond

func (h *hook) request(rule gpu.WatchRule, timeout time.Duration) wire.Request {
	r := wire.Request{
		Bookend: wire.Version, Op: wire.Watch, DeadlineMillis: timeout.Milliseconds(), Watch: rule,
		Options: options(h.cfg.NVIDIA),
	}
	for _, c := range h.cards {
		r.Devices = append(r.Devices, c.Device)
	}
	return r
}

// troubles turns what went wrong below the readings into findings.
func (h *hook) troubles(a backend.Answer) {
	if a.Abandoned != nil {
		h.abandoned("backend", a.Abandoned.PID, a.Abandoned.StartTicks)
	}
	if a.Panic != nil {
		h.panicked(a.Panic)
	}
	for _, t := range a.Troubles {
		h.add(finding.Finding{Code: t.Code, Observed: t.Detail, Expected: "a whole answer from the backend"})
	}
	for _, f := range a.Faults {
		found := finding.FromFault(f)
		if found.Code == code.Lost {
			found.Doubts = []string{"said of the driver as a whole, not of this job's GPUs"}
		}
		h.add(found)
	}
}

// identify fills in ids that only the driver knew: the inventory may name a card by its bus id alone.
func (h *hook) identify(s gpu.Snapshot) {
	for i, c := range h.cards {
		for _, r := range s.Readings {
			if r.Device.BusID != "" && r.Device.BusID == c.Device.BusID || r.Device.ID == c.Device.ID {
				h.cards[i].Device, h.devices[i].Device = r.Device, r.Device
			}
		}
	}
}

// processes reads what /proc says of the listed PIDs; on a card without processes nothing is read.
func (h *hook) processes(s gpu.Snapshot) map[int]attrib.Process {
	out := map[int]attrib.Process{}
	var pids []int
	for _, r := range s.Readings {
		for _, p := range r.Processes {
			if _, twice := out[p.PID]; !twice {
				out[p.PID] = attrib.Process{PID: p.PID, Why: "not looked up"}
				pids = append(pids, p.PID)
			}
		}
	}
	if len(pids) == 0 {
		return out
	}
	read, err := ask[[]attrib.Process](opProcesses, processesRequest{h.cfg.Paths.Proc, pids}, h.left(time.Duration(h.times.Scan), h.reserve()))
	if err != nil {
		h.childFault(opProcesses, err)
	}
	for _, p := range read {
		out[p.PID] = p
	}
	return out
}

// reserve is what the steps after looking need.
func (h *hook) reserve() time.Duration {
	return time.Duration(h.times.Outputs) + time.Duration(h.times.Append)
}
