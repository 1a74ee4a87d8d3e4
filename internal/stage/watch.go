package stage

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/backend"
	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/judge"
	"bookend/internal/operation"
	"bookend/internal/slurm"
	"bookend/internal/state"
	"bookend/internal/wire"
)

// Look takes stock of GPUs, in the light of what is known so far.
func (d *Driver) Look(cards []finding.Card) (side finding.Side, found []finding.Card) {
	side, found = judge.Look(d, d.Order(cards, d.Settle))
	d.Seen.Looks = d.looks
	return side, found
}

// LookCloser watches some of the GPUs of a glance until they settle: a health check's second target. The others were
// seen at the glance.
func (d *Driver) LookCloser(cards []finding.Card) judge.Residue {
	others := d.Seen.Side.Snapshot
	others.Readings = slices.DeleteFunc(slices.Clone(others.Readings), func(r gpu.Reading) bool {
		return slices.ContainsFunc(cards, func(card finding.Card) bool { return card.Device.ID == r.Device.ID })
	})
	d.neighbours = &others
	side, cards := d.Look(cards)
	return judge.Residue{Cards: cards, Side: side}
}

// Glance looks once at every GPU of the node, and reads who is on them: a health check's first target. Without a
// reading there is no more than the list of GPUs.
func (d *Driver) Glance(i Inventory) {
	answer := d.askBackend(d.snapshot(d.Left(time.Duration(d.Times.Driver), d.Reserve()), true))
	d.Seen.Given, d.Seen.Looks, d.Seen.Health = i.Given, d.looks, answer.Health
	if n := len(answer.Snapshots); n > 0 {
		d.Seen.Side.Snapshot = answer.Snapshots[n-1]
	}
	d.Seen.Cards = withReadings(i.Cards, d.Seen.Side.Snapshot)
	if len(d.Seen.Side.Snapshot.Readings) > 0 {
		d.Seen.Side = judge.Glance(d, d.Seen.Side.Snapshot)
	}
}

// snapshot asks for one look at every device of the node.
func (d *Driver) snapshot(timeout time.Duration, health bool) wire.Request {
	return wire.Request{
		Op: wire.Snapshot, All: true, DeadlineMillis: timeout.Milliseconds(), Health: health,
		Options: d.Config.NVIDIA.ForLooks(),
	}
}

// Watch asks the backend to look at GPUs as long as the rule says, or the hook's time allows. What is read once a hook
// comes with the first watch: at an end the GPUs' condition, at a start nothing but, where the admin wants it, that
// accounting be on.
func (d *Driver) Watch(cards []finding.Card, rule gpu.WatchRule) []gpu.Snapshot {
	if len(cards) == 0 {
		return nil
	}
	timeout := d.Left(time.Duration(d.Times.Driver), d.Reserve())
	// The backend ends by itself before it would be killed, so that what it saw arrives.
	rule.Max = max(0, min(rule.Max, timeout-backendReserve))
	r := wire.Request{
		Op: wire.Watch, DeadlineMillis: timeout.Milliseconds(), Watch: rule, Options: d.Config.NVIDIA.ForLooks(),
	}
	for _, c := range cards {
		r.Devices = append(r.Devices, c.Device)
	}
	switch {
	case d.looks > 0:
	case d.Phase == slurm.Prolog:
		r.Accounting, r.StartAccounting = d.Config.NVIDIA.Accounting, d.Config.NVIDIA.Accounting
	default:
		r.Health, r.Accounting = true, true
	}
	answer := d.askBackend(fitting(r))
	if answer.Health != nil && len(answer.Snapshots) > 0 {
		d.Seen.Health = answer.Health
	}
	return answer.Snapshots
}

// Neighbours is a health check's look at the node's other GPUs; a job's hooks have none.
func (d *Driver) Neighbours() *gpu.Snapshot { return d.neighbours }

// backendReserve is the time a backend has for one last look after the rule's Max: attaching a GPU without
// persistence was reported to take 1-3 s, a call during another's teardown measured 0.4 s.
const backendReserve = 500 * time.Millisecond

// fitting leaves out what hundreds of processes may carry where the request does not fit its pipe. The backend then
// watches for longer; what is clean is judged here, by the whole rule.
func fitting(r wire.Request) wire.Request {
	if _, err := r.Line(); err != nil {
		r.Watch.Expect = nil
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
	const longest = time.Second // each takes less than a millisecond, unless it hangs
	timeout := d.Left(time.Duration(d.Times.Scan), d.Reserve())
	request := operation.ReaderRequest{
		Proc: d.Config.Paths.Proc, PIDs: pids,
		Budget: min(longest, max(timeout/2, timeout-operation.ScanReserve)),
	}
	known, _ := askReader(d, operation.Processes, timeout, request, operation.Hanging)
	for _, p := range known {
		out[p.PID] = p
	}
	return out
}

// Holders searches /proc in a child, for as long as this hook can spare.
func (d *Driver) Holders() *attrib.Scan {
	later := d.Reserve() // and at an end the watch that makes sure
	if d.Phase != slurm.Prolog {
		later += time.Duration(d.Settle.Flat) + time.Second + backendReserve // looks are up to a second apart
	}
	timeout := d.Left(time.Duration(d.Times.Scan), later)
	paths := d.Config.Paths
	request := operation.ReaderRequest{Proc: paths.Proc, Dev: paths.Dev, Budget: timeout - operation.ScanReserve}
	scan, err := askReader(d, operation.Holders, timeout, request, operation.HungAt)
	if err != nil {
		return &attrib.Scan{Partial: err.Error()}
	}
	return &scan
}

// Quiet keeps probes off the GPUs while they are judged: what a probe holds must never look like a leak.
func (d *Driver) Quiet(cards []finding.Card) (busy map[gpu.ID]string, release func()) {
	if d.Store == nil {
		return nil, func() {}
	}
	var ids []gpu.ID
	for _, c := range cards {
		ids = append(ids, c.Device.ID)
	}
	const longest = 1500 * time.Millisecond // a probe takes 160-240 ms a GPU, side by side on four 1.2 s (measured)
	return d.Store.Quiet(ids, d.Left(longest, d.Reserve()))
}

// Glance is what one look at every card of the node came to.
type Glance struct {
	Snapshot gpu.Snapshot
	Who      map[int]attrib.Process
	Took     time.Duration
	// Why is why the look is not whole: Code names the backend's trouble, Fault the driver's; both empty where it is.
	Why   string
	Code  code.Code
	Fault gpu.FaultCode
	// Stuck is the backend that could not be killed, nil for none: nobody may start another while it lives.
	Stuck *state.Stuck
}

// Snapshot is Look with the driver's time of an end, and an error where the look is not whole. What was seen before
// that counts.
func Snapshot(env operation.Env, cfg config.Config) (gpu.Snapshot, map[int]attrib.Process, error) {
	g := Look(env, cfg, time.Duration(cfg.Deadlines.Epilog.Driver))
	switch {
	case g.Code != "":
		return g.Snapshot, g.Who, fmt.Errorf("ask backend: %s: %.200q", g.Code, g.Why)
	case g.Why != "":
		return g.Snapshot, g.Who, fmt.Errorf("ask driver: %s: %.200q", g.Fault, g.Why)
	}
	return g.Snapshot, g.Who, nil
}

// Look asks the driver once about every device of the node, for at most a while, and reads who is on them: for the
// command line.
func Look(env operation.Env, cfg config.Config, timeout time.Duration) Glance {
	d := New(env, "")
	d.Config, d.Times = cfg, cfg.Deadlines.Epilog
	d.Limit(time.Duration(d.Times.Total))
	answer := backend.Ask(backend.Params{Path: cfg.Backend, Root: env.EUID == 0}, d.snapshot(timeout, false))
	g := Glance{Took: answer.Took}
	if n := len(answer.Snapshots); n > 0 {
		g.Snapshot = answer.Snapshots[n-1]
	}
	if a := answer.Abandoned; a != nil {
		g.Stuck = &state.Stuck{PID: a.PID, StartTicks: a.StartTicks, Since: env.Clock.Boot(), Op: operation.Backend}
	}
	g.Who = judge.Glance(d, g.Snapshot).Processes
	switch {
	case len(answer.Troubles) > 0:
		g.Code, g.Why = answer.Troubles[0].Code, cmp.Or(answer.Troubles[0].Detail, "no more is known")
	case len(answer.Faults) > 0:
		g.Fault, g.Why = answer.Faults[0].Code, cmp.Or(answer.Faults[0].Detail, "no more is known")
	}
	return g
}
