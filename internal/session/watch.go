package session

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/judge"
	"bookend/internal/operation"
	"bookend/internal/slurm"
	"bookend/internal/wire"
)

// Look takes stock of GPUs, in the light of a case.
func (d *Driver) Look(c judge.Case, cards []finding.Card) (finding.Side, []finding.Card) {
	return judge.Look(d, c.Order(cards, d.Settle))
}

// Seen is what this hook saw by a look at its job's GPUs.
func (d *Driver) Seen(i Inventory, side finding.Side, cards []finding.Card) judge.Seen {
	return judge.Seen{
		Epoch: i.Epoch, Cards: cards, Origin: i.Origin, Side: side, Looks: d.looks,
		Health: d.first.health,
	}
}

// Watch asks the backend to look at GPUs as long as the rule says, or the hook's time allows. What is read once a hook
// comes with the first watch: at an end the condition of the job's GPUs.
func (d *Driver) Watch(cards []finding.Card, rule gpu.WatchRule) []gpu.Snapshot {
	if len(cards) == 0 {
		return nil
	}
	timeout := d.Left(time.Duration(d.Times.Driver), d.Reserve())
	// The backend ends by itself before it would be killed, so that what it saw arrives.
	rule.Max = max(0, min(rule.Max, timeout-backendReserve))
	request := wire.Request{
		Bookend: wire.Version, Op: wire.Watch, DeadlineMillis: timeout.Milliseconds(), Watch: rule,
		Options: d.Config.NVIDIA.ForLooks(),
	}
	for _, c := range cards {
		request.Devices = append(request.Devices, c.Device)
	}
	if d.looks == 0 {
		d.askOnce(&request)
	}
	answer := d.askBackend(fitting(request))
	if answer.Health != nil && len(answer.Snapshots) > 0 {
		d.first.health = answer.Health
	}
	return answer.Snapshots
}

// askOnce adds what is read once a hook: at an end the GPUs' condition, at a start nothing but, where the admin wants
// it, that accounting be on.
func (d *Driver) askOnce(r *wire.Request) {
	if d.Phase == slurm.Prolog {
		r.Accounting, r.StartAccounting = d.Config.NVIDIA.Accounting, d.Config.NVIDIA.Accounting
		return
	}
	r.Health, r.Accounting = true, true
}

// Neighbours is a health check's look at the node's other GPUs; a job's hooks have none.
func (d *Driver) Neighbours() *gpu.Snapshot { return d.first.neighbours }

// backendReserve is the time a backend has for one last look after the rule's Max: attaching a GPU without
// persistence was reported to take 1-3 s, a call during another's teardown measured 0.4 s.
const backendReserve = 500 * time.Millisecond

// fitting leaves out what cards may carry, those with most processes first, until the request fits its pipe. The
// backend then watches such a card for longer; what is clean is judged here, by the whole rule.
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

// Processes reads what /proc says of the PIDs; for none nothing is read.
func (d *Driver) Processes(pids []int) map[int]attrib.Process {
	out := map[int]attrib.Process{}
	for _, pid := range pids {
		out[pid] = attrib.Process{PID: pid, Why: "not looked up"}
	}
	if len(pids) == 0 {
		return out
	}
	timeout := d.Left(time.Duration(d.Times.Scan), d.Reserve())
	budget := min(processesTime, max(timeout/2, timeout-operation.ScanReserve))
	known, _ := askReader(d, operation.Processes, timeout, func(skip []attrib.Instance) operation.ProcessesRequest {
		return operation.ProcessesRequest{Proc: d.Config.Paths.Proc, PIDs: pids, Budget: budget, Skip: skip}
	}, operation.Hanging)
	for _, p := range known {
		out[p.PID] = p
	}
	return out
}

// processesTime is the longest wait for what /proc says of the processes on the cards: each takes less than a
// millisecond, unless it hangs.
const processesTime = time.Second

// Holders searches /proc in a child, for as long as this hook can spare.
func (d *Driver) Holders() *attrib.Scan {
	later := d.Reserve() // and at an end the watch that makes sure
	if d.Phase != slurm.Prolog {
		later += time.Duration(d.Settle.Flat) + time.Second + backendReserve // looks are up to a second apart
	}
	budget := d.Left(time.Duration(d.Times.Scan), later)
	scan, err := askReader(d, operation.Holders, budget, func(skip []attrib.Instance) operation.HoldersRequest {
		paths := d.Config.Paths
		left := budget - operation.ScanReserve
		return operation.HoldersRequest{Proc: paths.Proc, Dev: paths.Dev, Budget: left, Skip: skip}
	}, func(s attrib.Scan) []attrib.Instance { return s.Hung })
	if err != nil {
		return &attrib.Scan{Partial: err.Error()}
	}
	return &scan
}

// Quiet keeps probes off the cards while they are judged: what a probe holds must never look like a leak.
func (d *Driver) Quiet(cards []finding.Card) (busy map[gpu.ID]string, release func()) {
	if d.Store == nil {
		return nil, func() {}
	}
	var ids []gpu.ID
	for _, c := range cards {
		ids = append(ids, c.Device.ID)
	}
	return d.Store.Quiet(ids, d.Left(quietWait, d.Reserve()))
}

// quietWait is longer than a probe takes: 160-240 ms a GPU, side by side on four 1.2 s (measured).
const quietWait = 1500 * time.Millisecond
