package stage

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/backend"
	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/holders"
	"bookend/internal/look"
	"bookend/internal/slurm"
	"bookend/internal/wire"
)

// processesRequest crosses the pipe of opProcesses.
type processesRequest struct {
	Proc   string            `json:"proc"`
	PIDs   []int             `json:"pids"`
	Budget time.Duration     `json:"budget_ns"`
	Skip   []attrib.Instance `json:"skip,omitempty"`
}

// holdersRequest crosses the pipe of opHolders.
type holdersRequest struct {
	Proc   string            `json:"proc"`
	Dev    string            `json:"dev"`
	Budget time.Duration     `json:"budget_ns"`
	Skip   []attrib.Instance `json:"skip,omitempty"`
}

var serveHolders = served(func(r holdersRequest) (attrib.Scan, error) {
	return holders.Scan(r.Proc, r.Dev, r.Budget, r.Skip...), nil
})

var serveProcesses = served(func(r processesRequest) ([]attrib.Process, error) {
	return within(holders.Processes(r.Proc, r.PIDs, r.Budget, r.Skip...), maxChildReply), nil
})

// within makes an answer about thousands of processes fit: the last of them lose the path of their program, then all but
// their PID.
func within(all []attrib.Process, most int) []attrib.Process {
	size := 0
	for i, p := range all {
		if size > most/2 {
			p.Exe = ""
		}
		text, err := json.Marshal(p)
		if err != nil || size+len(text) > most/4*3 {
			p, text = attrib.Process{PID: p.PID, Why: "too many processes to answer for"}, nil
		}
		size += len(text) + len(",")
		all[i] = p
	}
	return all
}

// look takes stock of the job's cards.
func (h *hook) look() finding.Side {
	expect, known := finding.Expectations(h.before, h.baselines, h.limits())
	order := look.Order{Cards: h.cards, Known: known, Limits: h.limits(), Baselines: h.baselines, Sure: h.phase != slurm.Prolog, Rule: gpu.WatchRule{
		Max: time.Duration(h.settle.Max), Flat: time.Duration(h.settle.Flat),
		SlackBytes: uint64(h.cfg.Thresholds.Report), Expect: expect,
	}}
	side, cards := look.Take(h, order)
	h.cards = cards
	for i, c := range cards {
		h.devices[i].Device = c.Device
	}
	return side
}

// Watch asks the backend to look at the job's cards as long as the rule says, or the hook's time allows.
func (h *hook) Watch(rule gpu.WatchRule) []gpu.Snapshot {
	if len(h.cards) == 0 {
		return nil
	}
	timeout := h.left(time.Duration(h.times.Driver), h.reserve())
	// The backend ends by itself before it would be killed, so that what it saw arrives.
	rule.Max = max(0, min(rule.Max, timeout-backendReserve))
	request := h.request(rule, timeout)
	request.Neighbours = h.cfg.Look.Neighbours && !h.inJob && h.looks == 0
	h.askHealth(&request)
	answer := backend.Ask(backend.Params{
		Path: h.cfg.Backend, Root: h.env.EUID == 0,
		Started: h.started(opBackend), Answered: func() { h.contact.met(true) },
	}, fitting(request))
	h.looks += len(answer.Snapshots)
	if answer.Neighbours != nil {
		h.neighbours = answer.Neighbours
	}
	if answer.Health != nil && len(answer.Snapshots) > 0 {
		h.health, h.healthLook = answer.Health, answer.Snapshots[len(answer.Snapshots)-1]
	}
	h.troubles(answer)
	return answer.Snapshots
}

// Neighbours is the look at the node's other cards that came with the first watch.
func (h *hook) Neighbours() *gpu.Snapshot { return h.neighbours }

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

// fitting leaves out what cards may carry, those with most processes first, until the request fits its pipe. The backend then
// watches such a card for longer; what is clean is judged here, by the whole rule.
func fitting(r wire.Request) wire.Request {
	expect := maps.Clone(r.Watch.Expect)
	r.Watch.Expect = expect
	for len(expect) > 0 {
		if _, err := r.Line(); err == nil {
			break
		}
		delete(expect, slices.MaxFunc(slices.Sorted(maps.Keys(expect)), func(a, b gpu.ID) int {
			return cmp.Compare(len(expect[a].Processes), len(expect[b].Processes))
		}))
	}
	return r
}

// troubles turns what went wrong below the readings into findings.
func (h *hook) troubles(a backend.Answer) {
	if a.Abandoned != nil {
		h.abandoned(opBackend, a.Abandoned.PID, a.Abandoned.StartTicks)
	}
	if a.Panic != nil {
		h.panicked(a.Panic)
	}
	for _, t := range a.Troubles {
		if t.Elsewhere { // nothing against this job's cards; one that hangs there is recorded as stuck all the same
			h.add(finding.Finding{Code: code.Untraced, Unknown: string(t.Code) + ": " + t.Detail})
			continue
		}
		switch {
		case t.Code == code.Hang && h.cutShort() && h.looks == 0:
			h.add(finding.Finding{Code: code.Slow, Unknown: "another hook's wait for the driver left too little time: " + t.Detail})
		case t.Unsure:
			h.add(finding.Finding{Code: t.Code, Unknown: t.Detail})
		default:
			h.add(finding.Finding{Code: t.Code, Observed: t.Detail, Expected: "a whole answer from the backend"})
		}
	}
	for _, f := range a.Faults {
		found := finding.FromFault(f)
		if found.Code == code.Lost {
			found.Doubts = []string{"said of the driver as a whole, not of this job's GPUs"}
		}
		h.add(found)
	}
}

// Processes reads what /proc says of the PIDs; for none nothing is read.
func (h *hook) Processes(pids []int) map[int]attrib.Process {
	out := map[int]attrib.Process{}
	for _, pid := range pids {
		out[pid] = attrib.Process{PID: pid, Why: "not looked up"}
	}
	if len(pids) == 0 {
		return out
	}
	timeout := h.left(time.Duration(h.times.Scan), h.reserve())
	known, _ := askReader(h, opProcesses, timeout, func(skip []attrib.Instance) any {
		return processesRequest{h.cfg.Paths.Proc, pids, min(processesTime, max(timeout/2, timeout-scanReserve)), skip}
	}, hanging)
	for _, p := range known {
		out[p.PID] = p
	}
	return out
}

// hanging are those of the processes that did not answer.
func hanging(all []attrib.Process) (at []attrib.Instance) {
	for _, p := range all {
		if p.Hangs {
			at = append(at, attrib.Instance{PID: p.PID, Start: p.Start})
		}
	}
	return at
}

// processesTime is the longest wait for what /proc says of the processes on the cards: each takes less than a
// millisecond, unless it hangs.
const processesTime = time.Second

// Holders searches /proc in a child, for as long as this hook can spare.
func (h *hook) Holders() *attrib.Scan {
	if !h.cfg.Look.Holders {
		return nil
	}
	later := h.reserve() // and at an end the watch that makes sure
	if h.phase != slurm.Prolog {
		later += time.Duration(h.settle.Flat) + time.Second + backendReserve // looks are up to a second apart
	}
	budget := h.left(time.Duration(h.times.Scan), later)
	scan, err := askReader(h, opHolders, budget, func(skip []attrib.Instance) any {
		return holdersRequest{h.cfg.Paths.Proc, h.cfg.Paths.Dev, budget - scanReserve, skip}
	}, func(s attrib.Scan) []attrib.Instance { return s.Hung })
	if err != nil {
		return &attrib.Scan{Partial: err.Error()}
	}
	return &scan
}

// scanReserve is the time a look at processes has to hand in what it found, before its child would be killed.
const scanReserve = 200 * time.Millisecond

// Quiet keeps probes off the cards while they are judged: what a probe holds must never look like a leak.
func (h *hook) Quiet(cards []finding.Card) (busy map[gpu.ID]string, release func()) {
	if h.store == nil {
		return nil, func() {}
	}
	var ids []gpu.ID
	for _, c := range cards {
		ids = append(ids, c.Device.ID)
	}
	return h.store.Quiet(ids, h.left(quietWait, h.reserve()))
}

// quietWait is longer than a probe takes: 160-240 ms a GPU, side by side on four 1.2 s (measured).
const quietWait = 1500 * time.Millisecond

// reserve is what the steps after looking need.
func (h *hook) reserve() time.Duration {
	return time.Duration(h.times.Outputs) + time.Duration(h.times.Append)
}
