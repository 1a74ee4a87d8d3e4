package judge

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/compare"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
)

// enforcing is the end of a job at which something was found, where hooks may drain.
func enforcing(found ...record.Finding) Case {
	c := Case{Phase: slurm.Epilog, Config: config.Default(), Faults: found, Job: slurm.Job{ID: 7, Context: slurm.Epilog}}
	c.Config.Mode = config.Enforce
	return c
}

// What a doubt keeps from draining leaves a trace: the first finding's.
func TestDoubt(t *testing.T) {
	sure := record.Finding{Code: catalog.Orphan, Bytes: gpu.Bytes(600 << 20)}
	doubted := sure
	doubted.Doubts = []string{"job 5 could own it as well", "x"}
	unknown := record.Finding{Code: catalog.Residue, Unknown: "old driver"}
	for want, found := range map[string][]record.Finding{
		"":                                       {sure, {Code: catalog.Dirty, Doubts: []string{"it was there before this job"}}},
		"BKD-ORPHAN: job 5 could own it as well": {sure, doubted, unknown},
		"BKD-RESIDUE: unknown: old driver":       {unknown, doubted},
	} {
		if got := Judge(enforcing(found...)).Late(sure).Doubt(); got != want {
			t.Errorf("doubt: got %q, want %q", got, want)
		}
	}
}

// What is found later may decide until the last word, and only be told after that. The judgement before it stays.
func TestLaterFindings(t *testing.T) {
	c := enforcing()
	before := Judge(c)
	after := before.With(c, record.Finding{Code: catalog.Lost})
	told := before.Late(record.Finding{Code: catalog.Lost}, record.Finding{Code: catalog.Again})
	if before.Exit != 0 || len(before.Found) != 0 || after.Exit != 20 || told.Exit != 0 {
		t.Errorf("got exits %d, then %d, told late %d; want 0, 20, 0", before.Exit, after.Exit, told.Exit)
	}
	if v := after.Verdict; v.Code != catalog.Lost || len(v.Judged) != 1 || v.Judged[0].Action != config.Drain {
		t.Errorf("got %+v, want what was found with what policy made of it", v)
	}
	if !told.Tells(0) || told.Tells(1) {
		t.Errorf("got %+v, want the first told and the note not", told.Found)
	}
}

// A diagnosis knows what the start found and when it was, and its tests where the end made none.
func TestSymptoms(t *testing.T) {
	start := record.End{Wall: time.Unix(1_800_000_000, 0), Findings: []record.Finding{{Code: catalog.Dirty}},
		Probes: []gpu.Probe{{Device: card, Result: gpu.ProbeOK}}}
	tests := []TestResult{{Probe: gpu.Probe{Device: card, Result: gpu.ProbeGap}}}
	for name, tt := range map[string]struct {
		start *record.End
		tests []TestResult
		found int
		want  gpu.ProbeResult
	}{
		"tested at the start": {&start, nil, 1, gpu.ProbeOK},
		"tested at the end":   {&start, tests, 1, gpu.ProbeGap},
		"without a start":     {nil, tests, 0, gpu.ProbeGap},
	} {
		c := enforcing()
		c.Past.Run.Start, c.Tests = tt.start, tt.tests
		in := c.symptoms(Judge(c))
		if len(in.StartFindings) != tt.found || in.WallStart.IsZero() != (tt.start == nil) ||
			len(in.Probes) != 1 || in.Probes[0].Result != tt.want {
			t.Errorf("%s: %+v", name, in)
		}
	}
}

// The start counts in the driver's life that it was seen in, and for its own run.
func TestStartOf(t *testing.T) {
	epoch := gpu.Epoch{Boot: "b", Driver: "580", Module: "m"}
	job := slurm.Job{ID: 7, SLUID: "sA"}
	run := func(change func(*record.Run)) record.Run {
		r := record.Run{Job: job, Epoch: epoch, Start: &record.End{}}
		change(&r)
		return r
	}
	for name, tt := range map[string]struct {
		run    record.Run
		counts bool
		found  int
	}{
		"its own":                   {run(func(*record.Run) {}), true, 0},
		"none":                      {run(func(r *record.Run) { r.Start = nil }), false, 0},
		"one that got nowhere":      {run(func(r *record.Run) { r.Epoch = gpu.Epoch{} }), false, 0},
		"of another boot":           {run(func(r *record.Run) { r.Epoch.Boot = "c" }), false, 1},
		"of which half is known":    {run(func(r *record.Run) { r.Epoch.Module = "" }), false, 1},
		"ended, and surely its own": {run(func(r *record.Run) { r.Ends = []record.End{{}} }), true, 0},
		"ended, perhaps another's":  {run(func(r *record.Run) { r.Ends, r.Job.SLUID = []record.End{{}}, "" }), false, 0},
	} {
		side, found := StartOf(tt.run, job, epoch)
		if (side != nil) != tt.counts || len(found) != tt.found {
			t.Errorf("%s: got a start: %v, %+v; want %v and %d findings", name, side != nil, found, tt.counts, tt.found)
		}
	}
}

// CUDA that does not work at two jobs in a row drains, once the node's records are there to tell.
func TestRepeated(t *testing.T) {
	broken := record.Finding{Code: catalog.Broken, GPU: "GPU-0"}
	c := enforcing(broken)
	if j := Judge(c); j.Exit != 0 || !c.AsksRepeat(j) {
		t.Errorf("without records: exit %d, asks %v; want 0 and true", j.Exit, c.AsksRepeat(j))
	}
	c.Seen.Epoch, c.Past.Run.Start = gpu.Epoch{Boot: "b"}, &record.End{At: time.Hour}
	last := record.Run{Job: slurm.Job{ID: 6}, Epoch: c.Seen.Epoch, Ends: []record.End{{At: time.Minute}}}
	last.Devices = []record.Assigned{{Device: gpu.Device{ID: "GPU-0"}}}
	c.Node = &Node{Runs: []record.Run{last}}
	if j := Judge(c); j.Exit != 0 {
		t.Errorf("the last job met nothing: exit %d, want 0", j.Exit)
	}
	c.Node.Runs[0].Ends[0].Findings = []record.Finding{broken}
	if j := Judge(c); j.Exit != 18 {
		t.Errorf("the last job met it: exit %d, want 18", j.Exit)
	}
	if c.Node.Damaged = []record.Damaged{{Job: 9}}; Judge(c).Exit != 0 {
		t.Error("a job in between whose record is damaged may have been spared: want exit 0")
	}
	c.Node.Damaged, c.Node.Runs[0].Ends[0].Findings, c.At = nil, nil, time.Hour
	c.Node.Check = &record.Check{At: time.Hour - time.Minute, Epoch: c.Seen.Epoch, Findings: []record.Finding{broken}}
	if j := Judge(c); j.Exit != 18 {
		t.Errorf("a health check met it since: exit %d, want 18", j.Exit)
	}
	c.Node.Check, c.Node.Runs[0].Ends[0].Findings = nil, []record.Finding{broken}
	if c.Past.Run.Start.At = time.Second; Judge(c).Exit != 0 {
		t.Error("jobs that end side by side met one hiccup: want exit 0")
	}
	gone := record.Finding{Code: catalog.NoDriver}
	c.Phase, c.Faults, c.Past.Run, c.At = slurm.Prolog, []record.Finding{gone}, record.Run{}, time.Hour
	c.Node.Runs[0].Ends[0].Findings = []record.Finding{gone}
	if j := Judge(c); j.Exit != 22 {
		t.Errorf("the start after it met it too: exit %d, want 22", j.Exit)
	}
	if c.At = time.Second; Judge(c).Exit != 0 {
		t.Error("a start beside the end that met it: want exit 0")
	}
	if j := Judge(enforcing(record.Finding{Code: catalog.Orphan})); c.AsksRepeat(j) {
		t.Error("an orphan asks for no repetition")
	}
}

// checkOf is a health check of three idle GPUs, of which the last could not be read; a live job has the second.
func checkOf() (c Check, cards []record.Assigned) {
	for i, bus := range []gpu.BusID{"0000:10:00.0", "0000:20:00.0", "0000:30:00.0"} {
		device := gpu.Device{ID: gpu.ID(fmt.Sprint("GPU-", i)), BusID: bus, Minor: &i, Vendor: "nvidia"}
		cards = append(cards, record.Assigned{Index: i, Device: device})
	}
	epoch := gpu.Epoch{Boot: "b", Driver: "580", Module: "m"}
	read := func(card record.Assigned) gpu.Reading {
		return gpu.Reading{Device: card.Device, Memory: gpu.Memory{Total: gpu.Bytes(80 << 30), Reserved: gpu.Bytes(0), Used: gpu.Bytes(0), Free: gpu.Bytes(80 << 30)}}
	}
	live := record.Run{
		Job: slurm.Job{ID: 7, UID: 1001}, Key: "w1", Epoch: epoch, Devices: []record.Assigned{{Index: 1, Device: cards[1].Device}},
		Start: &record.End{At: time.Second, Wall: time.Unix(1000, 0)},
	}
	c = Check{Case: Case{Config: config.Default(), Job: slurm.Job{Node: "n1"}, Node: &Node{Runs: []record.Run{live}}}}
	c.Seen.Epoch, c.Seen.Cards = epoch, cards
	c.Seen.Side.Snapshot = gpu.Snapshot{At: time.Minute, Readings: []gpu.Reading{read(cards[0]), read(cards[1])}}
	return c, cards
}

// A job whose record is damaged may run on any GPU that no check has seen clear since, and so may one while records are
// unread: what is there is not certain, nor what a job's process has to do there, and nothing counts as leaked. Its own
// end knows better, and each node of a host has its own records.
func TestDamagedRecords(t *testing.T) {
	const doubt = "the record of job 9 is damaged: the job may still run on this GPU"
	lost := []record.Damaged{{File: "9-w1.json.damaged", Job: 9}}
	clear := []record.Damaged{{File: "9-w1.json.damaged", Job: 9, Clear: []gpu.ID{card}}}
	for name, tt := range map[string]struct {
		node Node
		self slurm.JobID
		want string
	}{
		"none":              {Node{}, 7, ""},
		"another job's":     {Node{Damaged: lost}, 7, doubt},
		"its own":           {Node{Damaged: lost}, 9, ""},
		"seen clear":        {Node{Damaged: clear}, 7, ""},
		"one of two":        {Node{Damaged: append(clear, lost...)}, 7, doubt},
		"another node's":    {Node{SameHost: []Node{{Damaged: lost}}}, 0, doubt},
		"others are unread": {Node{Damaged: clear, Unread: "too many"}, 7, "too many"},
	} {
		c, cards := checkOf()
		tt.node.Runs = c.Node.Runs
		c.Node = &tt.node
		reading := &c.Seen.Side.Snapshot.Readings[0]
		reading.Processes = []gpu.Process{{PID: 70, Memory: gpu.Bytes(gib)}, {PID: 71, Memory: gpu.Bytes(gib)}}
		reading.Memory.Used = gpu.Bytes(2 * gib)
		c.Seen.Side.Processes = map[int]record.Process{
			70: {PID: 70, UID: 1001, Start: 2 * time.Second, Cgroup: slurm.Owner{ID: 7}}, 71: {PID: 71, UID: 1002, Start: 2 * time.Second},
		}
		side := c.Seen.Side
		side.Curves = map[gpu.ID]record.Curve{card: {State: record.Flat, Steady: true}}
		if got := tt.node.Doubt(tt.self, card); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
		if c.Job.ID = tt.self; tt.self != 0 {
			c.Phase, c.Job.Context, c.Seen.Side, c.Seen.Cards = slurm.Epilog, slurm.Epilog, side, cards[:1]
			for _, f := range compare.Compare(c.Whole()) {
				if slices.Contains(f.Doubts, tt.want) != (tt.want != "") {
					t.Errorf("%s, at an end: %+v", name, f)
				}
			}
			c.Phase, c.Job = slurm.HealthCheck, slurm.Job{Node: "n1"}
		}
		if tt.self == 9 {
			continue // a health check has no job
		}
		c.Residue = &Residue{Cards: cards[:1], Side: side, Node: *c.Node}
		j := JudgeCheck(c)
		f := j.Found[slices.IndexFunc(j.Found, func(f record.Finding) bool { return f.Code == catalog.Stray })]
		trespass := slices.IndexFunc(j.Found, func(f record.Finding) bool { return f.Code == catalog.Trespass })
		if trespass < 0 || j.Found[trespass].Unknown != tt.want {
			t.Errorf("%s: %+v", name, j.Found)
		}
		seen := c.DrainSeen(Judgement{})[card]
		if len(c.Leaked(j)) > 0 != (tt.want == "") || tt.want != "" && (seen.Clean || seen.Why != tt.want ||
			!slices.Contains(f.Doubts, tt.want)) {
			t.Errorf("%s: %+v, leaked %v, for a drain %+v", name, f, c.Leaked(j), seen)
		}
	}
}

// On a host with several slurmd a GPU may be the job's of another node.
func TestCheckOfOneNodeOfSeveral(t *testing.T) {
	c, cards := checkOf()
	theirs := c.Node.Runs[0]
	theirs.Job.Node, theirs.Devices = "n2", []record.Assigned{{Index: 0, Device: cards[0].Device}}
	c.Node.SameHost = []Node{{Runs: []record.Run{theirs}}}
	c.Seen.Side.Snapshot.Readings[0].Memory.Used = gpu.Bytes(gib)
	if seen := c.DrainSeen(Judgement{})[cards[0].Device.ID]; seen.Clean || seen.Dirty || len(c.Unclean()) != 1 {
		t.Errorf("%+v, to be watched: %+v, want the unread GPU alone", seen, c.Unclean())
	}
}

const (
	card = gpu.ID("GPU-0")
	gib  = uint64(1) << 30
	mib  = uint64(1) << 20
)

// eyes see a node whose state is a script: each watch takes the next series of looks.
type eyes struct {
	watches [][]gpu.Snapshot
	who     map[int]record.Process
	later   map[int]record.Process // from the second question on, where set
	scan    record.Scan
	next    *record.Scan // of the second search, where set
	busy    map[gpu.ID]string
	beside  gpu.Snapshot // one look at the other GPU
	did     string       // a letter for each call, in order
	rules   []gpu.WatchRule
	thens   []time.Duration // what each search left for the watch after it
}

func (e *eyes) Watch(_ []record.Assigned, rule gpu.WatchRule) []gpu.Snapshot {
	e.did, e.rules = e.did+"w", append(e.rules, rule)
	if len(e.watches) == 0 {
		return nil
	}
	looks := e.watches[0]
	e.watches = e.watches[1:]
	return looks
}

func (e *eyes) Processes(pids []int) map[int]record.Process {
	out := map[int]record.Process{}
	if len(pids) == 0 {
		return out
	}
	e.did += "p"
	for _, pid := range pids {
		out[pid] = e.who[pid]
	}
	if e.later != nil {
		e.who = e.later
	}
	return out
}

func (e *eyes) Holders(then time.Duration) *record.Scan {
	e.thens = append(e.thens, then)
	if e.did += "s"; e.next != nil && strings.Count(e.did, "s") > 1 {
		return e.next
	}
	return &e.scan
}

func (e *eyes) Quiet([]record.Assigned) (map[gpu.ID]string, func()) {
	e.did += "q"
	return e.busy, func() { e.did += "r" }
}

// looks are n looks at one GPU, a second apart, from this second on.
func looks(from, n int, used uint64, processes ...gpu.Process) (all []gpu.Snapshot) {
	for i := range n {
		all = append(all, gpu.Snapshot{At: time.Duration(from+i) * time.Second, Readings: []gpu.Reading{{
			Device: gpu.Device{ID: card}, Processes: processes,
			Memory: gpu.Memory{Total: gpu.Bytes(140 * gib), Used: gpu.Bytes(used)},
		}}})
	}
	return all
}

func order() Order {
	return Order{
		Job:    slurm.Job{ID: 10},
		Cards:  []record.Assigned{{Device: gpu.Device{ID: card}}},
		Rule:   gpu.WatchRule{Max: 6 * time.Second, Flat: 3500 * time.Millisecond, SlackBytes: 32 * mib},
		Limits: record.Limits{Report: 32 * mib, Drain: 512 * mib, PerClient: 9 * mib},
		Sure:   true,
	}
}

// series is what a hook's watches show, one after the other.
func series(watches ...[]gpu.Snapshot) [][]gpu.Snapshot { return watches }

// is what /proc says of PID 70.
func is(p record.Process) map[int]record.Process {
	p.PID = 70
	return map[int]record.Process{70: p, 71: {PID: 71, Why: "not read"}}
}

// What each state of a GPU costs, and what comes of it: a clean one costs no look at /proc at all, and only what nobody
// explains a search of it. What is there when /proc is read need not be what was looked at.
func TestLook(t *testing.T) {
	const second = time.Second
	held, big := gpu.Process{PID: 70, Memory: gpu.Bytes(gib)}, gpu.Process{PID: 70, Memory: gpu.Bytes(20 * gib)}
	with := func(from, n int) []gpu.Snapshot { return looks(from, n, gib+9*mib, held) }
	none := func(from, n int) []gpu.Snapshot { return looks(from, n, 2*gib) }
	moving := func(from, n int, also ...gpu.Process) (all []gpu.Snapshot) { // something else moves all the time
		for i := range n {
			used := uint64(i%3) * 64 * mib
			other := gpu.Process{PID: 71, Memory: gpu.Bytes(gib/2 + used)}
			all = append(all, looks(from+i, 1, 20*gib+gib/2+18*mib+used, append(also, other)...)...)
		}
		return all
	}
	there, gone, reused := record.Process{Start: 5}, record.Process{Gone: true}, record.Process{Start: 18 * second}
	denied, job := record.Process{Why: "denied"}, record.Process{Start: 5, Cgroup: slurm.Owner{ID: 7}}
	naming := func(job slurm.JobID, here string) map[int]record.Process {
		return is(record.Process{Start: 5, EnvJobID: job, EnvJobHere: here})
	}
	keeper := func(job slurm.JobID, here string) record.Scan {
		p := naming(job, here)[70]
		p.PID = 70
		return record.Scan{Holdings: []record.Holding{{Process: p, Control: true}}}
	}
	listing := func(all ...uint64) (last []gpu.Snapshot) { // PID 70 with so much at each look, not listed with nothing
		for i, bytes := range all {
			s := looks(5+i, 1, 3*gib, gpu.Process{PID: 70, Memory: gpu.Bytes(bytes)})[0]
			if bytes == 0 {
				s.Readings[0].Processes = nil
			}
			last = append(last, s)
		}
		return last
	}
	beside := gpu.Snapshot{At: 16 * second, Readings: []gpu.Reading{{
		Device: gpu.Device{ID: "GPU-1"}, Processes: []gpu.Process{held},
	}}}
	first := moving(10, 7, big)
	for name, tt := range map[string]struct {
		eyes eyes
		want string // state, calls, and what else there is to say
	}{
		"clean":        {eyes{watches: series(looks(0, 1, 0))}, "clean w"},
		"not seen":     {eyes{}, " w"},
		"still moving": {eyes{watches: series(append(looks(0, 1, gib), looks(1, 1, 2*gib)...))}, "moving w"},

		"a process explains all":   {eyes{who: is(there), watches: series(with(0, 5), with(5, 1))}, "flat wpqwpr known"},
		"memory no one explains":   {eyes{watches: series(looks(0, 5, gib), looks(5, 2, gib))}, "flat wqswr"},
		"no time after the search": {eyes{watches: series(looks(0, 5, gib), looks(5, 1, gib))}, "flat wqswr partial"},
		"its process is gone":      {eyes{who: is(gone), watches: series(with(0, 5), with(5, 5))}, "flat wpqswpr known"},
		"it ends meanwhile":        {eyes{who: is(there), later: is(gone), watches: series(with(0, 5), with(5, 1))}, "moving wpqwpr known"},
		"gone at the second look":  {eyes{watches: series(looks(0, 5, gib), looks(5, 2, 0))}, "clean wqswr"},
		"no second look":           {eyes{watches: series(looks(0, 5, gib))}, "moving wqswr"},
		"a probe at work": {eyes{busy: map[gpu.ID]string{card: "a probe"},
			watches: series(looks(0, 5, gib), looks(5, 2, gib))}, "unknown wqswr"},

		// A job without GPUs has no record. Once its step has ended, its processes have the flat time to go.
		"names a job without a step":        {eyes{who: naming(9, ""), watches: series(with(10, 7), with(20, 7))}, "flat wpqwpr known"},
		"and is there for one look more":    {eyes{who: naming(9, ""), watches: series(with(10, 7), with(17, 1))}, "moving wpqwpr known"},
		"names a job that is here":          {eyes{who: naming(9, "a step"), watches: series(with(10, 7), with(17, 1))}, "flat wpqwpr known"},
		"names its own":                     {eyes{who: naming(10, ""), watches: series(with(10, 7), with(17, 1))}, "flat wpqwpr known"},
		"names a job, where another moves":  {eyes{who: naming(9, ""), watches: series(first, moving(17, 7, big))}, "moving wpqwpr known stayed"},
		"and is listed once more":           {eyes{who: naming(9, ""), watches: series(first, moving(17, 1, big))}, "moving wpqwpr known stayed ending"},
		"names a job, found by the search":  {eyes{scan: keeper(9, ""), who: naming(9, ""), watches: series(none(10, 7), none(20, 7))}, "flat wqswppr"},
		"found, and its memory one more":    {eyes{scan: keeper(9, ""), who: naming(9, ""), watches: series(none(10, 7), none(17, 2))}, "moving wqswppr"},
		"found, and the job it names, here": {eyes{scan: keeper(9, "a step"), who: naming(9, ""), watches: series(none(10, 7), none(17, 2))}, "flat wqswppr"},

		// A look may wait for the driver: who has the PID when /proc is read need not be who was listed.
		"as old as the look":    {eyes{who: is(record.Process{Start: 16 * second}), watches: series(with(10, 7))}, "moving wpqwpr known"},
		"a look without a time": {eyes{who: is(there), watches: series(looks(0, 1, gib+9*mib, held))}, "moving wp known"},
		"younger than it":       {eyes{who: is(record.Process{Start: 16*second + record.Tick}), watches: series(with(10, 7))}, "moving wpqwpr"},
		"reused between looks":  {eyes{who: is(there), later: is(reused), watches: series(with(10, 7), with(20, 7))}, "moving wpqwpr"},
		"not read again":        {eyes{who: is(there), later: is(denied), watches: series(with(10, 7), with(20, 7))}, "moving wpqwpr known"},

		// A process that is gone is still what its PID shows, while its memory is being freed. If the PID was not listed in
		// between, or has more memory than before, another process had it and is gone too.
		"gone, and listed all the time":   {eyes{who: is(there), later: is(gone), watches: series(looks(0, 5, 3*gib, held), listing(gib, gib))}, "moving wpqswpr known"},
		"gone, with less and less":        {eyes{who: is(there), later: is(gone), watches: series(looks(0, 5, 3*gib, held), listing(gib, gib/2))}, "moving wpqswpr known"},
		"gone, with more than before":     {eyes{who: is(there), later: is(gone), watches: series(looks(0, 5, 3*gib, held), listing(gib, 2*gib))}, "moving wpqswpr"},
		"gone, and not listed in between": {eyes{who: is(there), later: is(gone), watches: series(looks(0, 5, 3*gib, held), listing(0, gib))}, "moving wpqswpr"},

		// Who came after the search was not looked into.
		"as much as at the search":    {eyes{watches: series(none(10, 7), none(20, 7))}, "flat wqswr"},
		"a little more than then":     {eyes{watches: series(none(10, 7), looks(20, 7, 2*gib+4*mib))}, "flat wqswr"},
		"less than at the search":     {eyes{watches: series(none(10, 7), looks(20, 7, gib))}, "flat wqswr"},
		"more than at the search":     {eyes{watches: series(none(10, 7), looks(20, 7, 3*gib))}, "flat wqswr partial"},
		"listed since, and lives":     {eyes{beside: beside, who: is(job), watches: series(none(10, 7), looks(20, 7, 2*gib, held))}, "flat wpqswpr known"},
		"listed elsewhere, not now":   {eyes{beside: beside, who: is(job), later: is(gone), watches: series(none(10, 7), none(20, 7))}, "flat wpqswr known"},
		"listed since, and is gone":   {eyes{beside: beside, who: is(job), later: is(gone), watches: series(none(10, 7), looks(20, 7, 2*gib, held))}, "moving wpqswpr"},
		"listed all along, then gone": {eyes{beside: beside, who: is(job), later: is(gone), watches: series(with(10, 7), with(20, 7))}, "moving wpqwpr known"},

		// On a GPU that does not settle the processes that were there all the time have stayed: those whose start time
		// says that each look showed the same one, and that are there still.
		"stayed all the time":        {eyes{who: is(there), watches: series(first, moving(17, 1, big))}, "moving wpqwpr known stayed"},
		"its PID was used again":     {eyes{who: is(record.Process{Start: 11 * second}), watches: series(first)}, "moving wp known"},
		"/proc does not tell":        {eyes{who: is(denied), watches: series(first)}, "moving wp"},
		"stayed until it ended":      {eyes{who: is(there), later: is(gone), watches: series(first, moving(17, 1, big))}, "moving wpqwpr known"},
		"not in the last look":       {eyes{who: is(there), watches: series(first, moving(17, 1))}, "moving wpqwpr known"},
		"stayed, and no last look":   {eyes{who: is(there), watches: series(first)}, "moving wpqwpr known"},
		"not in the first look":      {eyes{who: is(there), watches: series(append(moving(10, 1), moving(11, 7, big)...))}, "moving wp known"},
		"gone, for another watch":    {eyes{who: is(gone), watches: series(first, moving(17, 7, big))}, "moving wpqswpr known stayed"},
		"gone, and listed once more": {eyes{who: is(gone), watches: series(first, moving(17, 2, big))}, "moving wpqswpr known stayed ending"},
	} {
		o := order()
		o.Neighbours = tt.eyes.beside
		side, _ := Observe(&tt.eyes, o)
		got := string(side.Curves[card].State) + " " + tt.eyes.did
		if p, asked := side.Processes[70]; asked && p.Why == "" {
			got += " known"
		}
		if side.Scan != nil && side.Scan.Partial != "" {
			got += " partial"
		}
		if len(side.Stayed[card]) > 0 && side.Stayed[card][0].PID == 70 && side.Stayed[card][0].Memory == big.Memory {
			got += " stayed"
			if side.Stayed[card][0].Ending {
				got += " ending"
			}
		}
		if got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}

// However soon a site calls memory settled, the watches after a search last as long as a teardown. The first search leaves
// time for another flat time, the second for a teardown; a start, which drains for none of it, for one sample.
func TestWatchAfterSearchLasts(t *testing.T) {
	o, held := order(), record.Process{PID: 70, Start: 5}
	o.Rule.Flat = 200 * time.Millisecond
	e := &eyes{watches: series(looks(10, 7, 2*gib), looks(17, 2, 2*gib), looks(19, 2, 2*gib)), who: is(record.Process{Gone: true})}
	e.scan.Holdings = []record.Holding{{Process: held, Control: true}}
	if Observe(e, o); len(e.rules) != 3 || e.rules[0].Flat != o.Rule.Flat {
		t.Fatalf("%+v", e.rules)
	}
	for _, rule := range e.rules[1:] {
		if rule.Max != teardown || rule.Flat < teardown {
			t.Errorf("%+v", rule)
		}
	}
	o.Sure = false
	start := &eyes{watches: series(looks(10, 7, 2*gib))}
	Observe(start, o)
	if got := append(e.thens, start.thens...); !slices.Equal(got, []time.Duration{o.Rule.Flat + time.Second, teardown, 0}) {
		t.Errorf("left for the watches: %v", got)
	}
}

// An expected PID that is another process by now is not expected: the GPU is watched again without it. Neither is one
// that took the PID while the GPU was watched once more, after what was there has gone.
func TestStrangersAreNotExpected(t *testing.T) {
	listed, then := gpu.Process{PID: 70, Memory: gpu.Bytes(gib)}, map[int]time.Duration{70: 5}
	wasGone := map[int]time.Duration{70: 0}
	watched := looks(0, 5, gib+9*mib, listed)
	first := func(p record.Process) eyes {
		return eyes{who: is(p), watches: series(watched, watched, looks(5, 5, gib+9*mib, listed))}
	}
	last := func(p record.Process) eyes {
		watches := series(looks(0, 5, gib, gpu.Process{PID: 71, Memory: gpu.Bytes(gib)}), looks(5, 1, gib, listed))
		later := is(p)
		later[71] = record.Process{PID: 71, Gone: true}
		return eyes{watches: watches, who: map[int]record.Process{71: {PID: 71, Start: 3}}, later: later}
	}
	for name, tt := range map[string]struct {
		eyes  eyes
		known map[int]time.Duration
		held  uint64
		want  record.State
	}{
		"the same process":                    {first(record.Process{Start: 5}), then, gib, record.Clean},
		"its PID was used again":              {first(record.Process{Start: 77}), then, gib, record.Flat},
		"it is gone, its memory is not":       {first(record.Process{Gone: true}), then, gib, record.Flat},
		"it was gone before":                  {first(record.Process{Gone: true}), wasGone, gib, record.Clean},
		"it was gone, with other memory":      {first(record.Process{Gone: true}), wasGone, 2 * gib, record.Flat},
		"no one could tell then":              {first(record.Process{Start: 77}), nil, gib, record.Clean},
		"no one can tell now":                 {first(record.Process{Why: "permission denied"}), then, gib, record.Clean},
		"the same process in the last watch":  {last(record.Process{Start: 5}), then, gib, record.Clean},
		"its PID was used again in that":      {last(record.Process{Start: 77}), then, gib, record.Moving},
		"it is just ending in the last watch": {last(record.Process{Gone: true}), then, gib, record.Clean},
	} {
		o := order()
		o.Known = tt.known
		expected := gpu.ExpectedProcess{PID: 70, Bytes: tt.held, Share: 9 * mib}
		o.Rule.Expect = map[gpu.ID]gpu.Expected{card: {Processes: []gpu.ExpectedProcess{expected}}}
		side, _ := Observe(&tt.eyes, o)
		if got := side.Curves[card].State; got != tt.want {
			t.Errorf("%s: got %q, want %q; did %s", name, got, tt.want, tt.eyes.did)
		}
	}
}

// A GPU known by its bus id alone gets its id from the first reading.
func TestIdentified(t *testing.T) {
	const bus = gpu.BusID("00000000:3b:00.0")
	watched := looks(0, 1, 0)
	watched[0].Readings[0].Device.BusID = bus
	o := order()
	o.Cards = []record.Assigned{{Index: 2, Device: gpu.Device{BusID: bus}}}
	side, cards := Observe(&eyes{watches: series(watched)}, o)
	if len(cards) != 1 || cards[0].Device.ID != card || cards[0].Index != 2 || side.Curves[card].State != record.Clean {
		t.Errorf("GPUs %+v, curves %+v", cards, side.Curves)
	}
}

// With whoever had the driver open, memory that nobody is listed for may go.
func TestHolderEndsMeanwhile(t *testing.T) {
	minor := 3
	for name, tt := range map[string]struct {
		minors []int
		ends   bool
		used   uint64
		want   record.State
	}{
		"on the driver alone":                {nil, false, 2 * gib, record.Flat},
		"on this GPU":                        {[]int{3}, false, 2 * gib, record.Flat},
		"it has ended, on the driver alone":  {nil, true, 2 * gib, record.Moving},
		"it has ended, on this GPU":          {[]int{3}, true, 2 * gib, record.Moving},
		"it has ended, on another GPU":       {[]int{1}, true, 2 * gib, record.Moving},
		"it has ended, and nothing is there": {[]int{1}, true, 0, record.Clean},
	} {
		last := looks(20, 7, tt.used)
		for _, s := range last {
			s.Readings[0].Device.Minor = &minor
		}
		e := &eyes{watches: series(looks(10, 7, 2*gib), last), who: is(record.Process{Start: 5, Gone: tt.ends})}
		held := record.Holding{Process: record.Process{PID: 70, Start: 5}, Control: true, Minors: tt.minors}
		e.scan.Holdings = []record.Holding{held}
		o := order()
		o.Cards[0].Device.Minor = &minor
		side, _ := Observe(e, o)
		if got := side.Curves[card].State; got != tt.want {
			t.Errorf("%s: got %s, want %s", name, got, tt.want)
		}
	}
}

// Who ends after the search took its memory along, once the driver has torn it down: what is there after that is of
// those that a second search finds. A start, which drains for none of it, does not wait.
func TestEndedHoldersHideNothing(t *testing.T) {
	after := func(used uint64, ms ...int) (all []gpu.Snapshot) {
		for _, at := range ms {
			s := looks(0, 1, used)[0]
			s.At = 18*time.Second + time.Duration(at)*time.Millisecond
			all = append(all, s)
		}
		return all
	}
	other, newcomer := record.Process{PID: 71, Start: 6}, record.Process{PID: 72, Start: 8}
	for name, tt := range map[string]struct {
		then  []gpu.Snapshot // the third watch
		start bool
		later record.Process
		want  string // the state, and who was found
	}{
		"the memory is there after the teardown": {after(2*gib, 100, 400, 600), false, record.Process{Gone: true}, "flat [71 72]"},
		"its PID is another's":                   {after(2*gib, 100, 400, 600), false, record.Process{Start: 7}, "flat [71 72]"},
		"there, but too early to tell":           {after(2*gib, 100, 400), false, record.Process{Gone: true}, "flat [71 72] partial"},
		"not looked at":                          {nil, false, record.Process{Gone: true}, "moving [70 71]"},
		"half of it went along":                  {after(gib, 100, 400, 600), false, record.Process{Gone: true}, "moving [71 72]"},
		"all of it went along":                   {after(0, 100), false, record.Process{Gone: true}, "clean [71 72]"},
		"more is there":                          {after(3*gib, 100, 400, 600), false, record.Process{Gone: true}, "moving [71 72]"},
		"not all of /proc was searched again":    {after(2*gib, 100, 400, 600), false, record.Process{Gone: true}, "moving [70 71]"},
		"it has not ended":                       {after(2*gib, 100, 400, 600), false, record.Process{Start: 5}, "flat [70 71]"},
		"no one can tell":                        {after(2*gib, 100, 400, 600), false, record.Process{Why: "denied"}, "moving [70 71]"},
		"at a start":                             {after(2*gib, 100, 400, 600), true, record.Process{Gone: true}, "moving [70 71]"},
	} {
		e := &eyes{watches: series(looks(10, 7, 2*gib), looks(17, 2, 2*gib), tt.then)}
		tt.later.PID = 70
		e.who = map[int]record.Process{70: tt.later, 71: other, 72: newcomer}
		for _, p := range []record.Process{{PID: 70, Start: 5}, other} {
			e.scan.Holdings = append(e.scan.Holdings, record.Holding{Process: p, Control: true})
		}
		e.next = &record.Scan{Holdings: []record.Holding{{Process: other, Control: true}, {Process: newcomer, Control: true}}}
		if strings.HasPrefix(name, "not all") {
			e.next.Partial = "1 process could not be looked into"
		}
		o := order()
		o.Sure = !tt.start
		side, _ := Observe(e, o)
		var found []int
		for _, h := range side.Scan.Holdings {
			found = append(found, h.PID)
		}
		got := fmt.Sprintf("%s %v", side.Curves[card].State, found)
		if side.Scan.Partial != "" {
			got += " partial"
		}
		if got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
		if len(e.scan.Holdings) != 2 {
			t.Errorf("%s: the search's own list was changed", name)
		}
	}
}

// A GPU of the record that the driver lacks is the job's, unless Slurm gave it to an earlier run alone.
func TestNotFound(t *testing.T) {
	gpus := func(indexes ...int) (all []record.Assigned) {
		for _, i := range indexes {
			all = append(all, record.Assigned{Index: i, Device: gpu.Device{ID: gpu.ID(fmt.Sprint("GPU-", i))}})
		}
		return all
	}
	for name, tt := range map[string]struct {
		told []int
		want int
	}{"still the job's": {[]int{0, 1}, 1}, "of an earlier run": {[]int{0}, 0}, "Slurm does not say": {nil, 1}} {
		c := Case{Phase: slurm.Epilog, Job: slurm.Job{GPUIndexes: tt.told}}
		c.Past.Run.Devices, c.Seen.Cards = gpus(0, 1), gpus(0)
		if got := notFound(c); len(got) != tt.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// The job in a process's environment was on the node when the first search found the process, and has ended before the
// second: what it had is still being freed. The PID alone is not the process.
func TestJobThatEndsBetweenSearches(t *testing.T) {
	const here = "a slurmstepd of it runs on this node"
	found := func(here string, starts ...time.Duration) (all []record.Holding) {
		for i, start := range starts {
			p := record.Process{PID: 71 + i, Start: start, EnvJobID: 777, EnvJobHere: here}
			all = append(all, record.Holding{Process: p, Control: true})
		}
		return all
	}
	e := &eyes{watches: series(looks(10, 7, 2*gib), looks(17, 2, 2*gib), looks(19, 1, 2*gib)), who: is(record.Process{Gone: true})}
	e.scan.Holdings = append(found(here, 6, 6), record.Holding{Process: record.Process{PID: 70, Start: 5}, Control: true})
	e.next = &record.Scan{Holdings: found("", 6, 8, 9)}
	side, _ := Observe(e, order())
	for i, want := range []string{here, "", ""} {
		if got := side.Scan.Holdings[i].EnvJobHere; got != want {
			t.Errorf("of process %d: %q", 71+i, got)
		}
	}
}

// Of two GPUs: a process whose PID is another's now has ended on both that list it; a dead one on the one is watched
// again for the whole flat time, and what the other showed before still counts, also where that time is not to be had.
func TestTwoGPUs(t *testing.T) {
	held, dead := gpu.Process{PID: 70, Memory: gpu.Bytes(gib)}, gpu.Process{PID: 80, Memory: gpu.Bytes(gib)}
	both := func(from, n int, second gpu.Process) []gpu.Snapshot {
		all := looks(from, n, gib+9*mib, held)
		for i := range all {
			r := all[i].Readings[0]
			r.Device.ID, r.Processes = "GPU-1", []gpu.Process{second}
			all[i].Readings = append(all[i].Readings, r)
		}
		return all
	}
	who := map[int]record.Process{70: {PID: 70, Start: 5}, 80: {PID: 80, Gone: true}}
	unlisted := func(from, n int) []gpu.Snapshot { // on the second
		all := both(from, n, held)
		for i := range all {
			all[i].Readings[1].Processes = nil
			for k := range all[i].Readings { // one without a number might be the one that is open
				all[i].Readings[k].Device.Minor = &k
			}
		}
		return all
	}
	keeper := record.Process{PID: 71, Start: 5, EnvJobID: 9}
	found := record.Scan{Holdings: []record.Holding{{Process: keeper, Control: true}}}
	for name, tt := range map[string]struct {
		eyes eyes
		want []record.State
	}{
		"reused": {eyes{who: who, later: is(record.Process{Start: 18 * time.Second}),
			watches: series(both(10, 7, held), both(20, 7, held))}, []record.State{record.Moving, record.Moving}},
		"dead, one more look": {eyes{who: who, watches: series(both(10, 6, dead), both(16, 1, dead))},
			[]record.State{record.Flat, record.Moving}},
		"one that may go has the driver open, for what is on the second": {eyes{who: map[int]record.Process{70: who[70], 71: keeper}, scan: found,
			watches: series(unlisted(10, 6), unlisted(16, 1))}, []record.State{record.Flat, record.Moving}},
		"dead, six more": {eyes{who: who, watches: series(both(10, 6, dead), both(16, 6, dead))},
			[]record.State{record.Flat, record.Flat}},
	} {
		o := order()
		o.Cards = append(o.Cards, record.Assigned{Index: 1, Device: gpu.Device{ID: "GPU-1"}})
		side, _ := Observe(&tt.eyes, o)
		if got := []record.State{side.Curves[card].State, side.Curves["GPU-1"].State}; !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %v, want %v", name, got, tt.want)
		}
	}
}

// recordedEnd is the end of job 7 on GPU-a, while job 8 has GPU-b.
func recordedEnd() Case {
	run := func(job slurm.JobID, id gpu.ID) record.Run {
		return record.Run{Job: slurm.Job{ID: job, UID: 1000 + uint32(job)}, Key: "t1", Start: &record.End{At: 10 * time.Second},
			Devices: []record.Assigned{{Index: 3, Device: gpu.Device{ID: id}}}}
	}
	c := enforcing()
	c.Past.Run = run(7, "GPU-a")
	c.Job.UID, c.Seen.Cards = 1007, c.Past.Run.Devices
	c.Sharing = &slurm.Sharing{Shared: slurm.No}
	c.Node = &Node{Runs: []record.Run{run(8, "GPU-b"), run(7, "GPU-a")}}
	return c
}

// A job that the recorder saw on another's GPU is found at both jobs' ends, where nothing but a mistake explains it; it
// never drains.
func TestRecordedOverlap(t *testing.T) {
	of := func(job slurm.JobID, id gpu.ID) record.RecordedProcess {
		return record.RecordedProcess{GPU: id, PID: 40, Owner: slurm.Owner{ID: job}, Most: 2 * gib, Start: 20 * time.Second,
			First: 20 * time.Second, Last: time.Minute}
	}
	elsewhere := func(change func(*record.RecordedProcess)) func(*Case, *record.RecordedProcess) {
		return func(c *Case, _ *record.RecordedProcess) {
			c.Past.Recording = &record.Recording{Elsewhere: []record.RecordedProcess{of(7, "GPU-b")}}
			change(&c.Past.Recording.Elsewhere[0])
		}
	}
	began := func(run, process int) func(*Case, *record.RecordedProcess) {
		return func(c *Case, p *record.RecordedProcess) {
			c.Node.Runs[0].Start = &record.End{At: time.Duration(run) * time.Second}
			p.Start = time.Duration(process) * time.Second
		}
	}
	sees := func(id gpu.ID) func(*Case, *record.RecordedProcess) {
		return func(c *Case, _ *record.RecordedProcess) {
			f := record.Finding{Code: catalog.Foreign, GPU: id, Holder: &record.Holder{Process: record.Process{PID: 40}}}
			c.Faults = append(c.Faults, f)
		}
	}
	owned := func(o slurm.Owner) func(*Case, *record.RecordedProcess) {
		return func(_ *Case, p *record.RecordedProcess) { p.Owner = o }
	}
	for name, tt := range map[string]struct {
		change func(*Case, *record.RecordedProcess)
		want   []catalog.Code
	}{
		"another job beside it":               {func(*Case, *record.RecordedProcess) {}, []catalog.Code{catalog.Foreign}},
		"too little":                          {func(_ *Case, p *record.RecordedProcess) { p.Most = mib }, nil},
		"its own":                             {owned(slurm.Owner{ID: 7}), nil},
		"of a job without a record":           {owned(slurm.Owner{ID: 9}), nil},
		"of one job or another":               {owned(slurm.Owner{ID: 8, Conflict: "its cgroup named two jobs"}), nil},
		"a SLUID without a record":            {owned(slurm.Owner{SLUID: "sC"}), nil},
		"one that was given the GPU before":   {func(c *Case, _ *record.RecordedProcess) { c.Node.Runs[0].Devices[0].Device.ID = "GPU-a" }, nil},
		"of the run of its job on record":     {began(20, 21), []catalog.Code{catalog.Foreign}},
		"of an earlier run, without a record": {began(20, 10), nil},
		"where GPUs are shared":               {func(c *Case, _ *record.RecordedProcess) { c.Sharing.Shared = slurm.Yes }, nil},
		"where that is not known":             {func(c *Case, _ *record.RecordedProcess) { c.Sharing.Shared = slurm.Unknown }, nil},
		"where records were not read":         {func(c *Case, _ *record.RecordedProcess) { c.Node.Unread = "too many" }, nil},
		"at a second end":                     {func(c *Case, _ *record.RecordedProcess) { c.Past.Turn = Repeated }, nil},
		"at an end beside another":            {func(c *Case, _ *record.RecordedProcess) { c.Past.Turn = Concurrent }, nil},
		"the end sees it too":                 {sees("GPU-a"), []catalog.Code{catalog.Foreign}},
		"the end sees it on another GPU":      {sees("GPU-b"), []catalog.Code{catalog.Foreign, catalog.Foreign}},
		"its cgroup has a SLUID alone": {func(c *Case, p *record.RecordedProcess) {
			c.Node.Runs[0].Job.SLUID, p.Owner = "sB", slurm.Owner{SLUID: "sB"}
		}, []catalog.Code{catalog.Foreign}},
		"its own cgroup has a SLUID alone": {func(c *Case, p *record.RecordedProcess) {
			c.Job.SLUID, p.Owner = "sA", slurm.Owner{SLUID: "sA"}
		}, nil},
		"itself on another's GPU":             {elsewhere(func(*record.RecordedProcess) {}), []catalog.Code{catalog.Trespass}},
		"itself or another job, on another's": {elsewhere(func(p *record.RecordedProcess) { p.Owner.Conflict = "two jobs" }), nil},
		"little of it there":                  {elsewhere(func(p *record.RecordedProcess) { p.Most = 1 }), nil},
		"its own earlier run's, there":        {elsewhere(func(p *record.RecordedProcess) { p.Start = time.Second }), nil},
		"itself there, by a SLUID alone": {func(c *Case, p *record.RecordedProcess) {
			elsewhere(func(p *record.RecordedProcess) { p.Owner = slurm.Owner{SLUID: "sA"} })(c, p)
			c.Job.SLUID = "sA"
		}, []catalog.Code{catalog.Trespass}},
	} {
		c := recordedEnd()
		c.Config.Policy.Epilog = map[catalog.Code]config.Action{catalog.Foreign: config.Drain}
		c.Past.Recording = &record.Recording{GPUs: []record.GPURecording{{Processes: []record.RecordedProcess{of(8, "GPU-a")}}}}
		tt.change(&c, &c.Past.Recording.GPUs[0].Processes[0])
		var got []catalog.Code
		j := Judge(c)
		for _, f := range j.Found {
			if f.Code != catalog.Foreign && f.Code != catalog.Trespass {
				continue
			}
			got = append(got, f.Code)
			whose := map[catalog.Code]slurm.JobID{catalog.Foreign: 8, catalog.Trespass: 7}[f.Code]
			says := map[catalog.Code]string{catalog.Foreign: "of job 8 was", catalog.Trespass: "of this job was"}[f.Code]
			if f.Owner != nil && (f.Owner.Job != whose || !strings.Contains(f.Observed, says) || f.Expected == "") {
				t.Errorf("%s: %s blames job %d: %s", name, f.Code, f.Owner.Job, f.Observed)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %v, want %v: %+v", name, got, tt.want, j.Found)
		}
		if len(c.Faults) == 0 && (j.Exit != 0 || len(tt.want) > 0 && !c.AsksRecorded()) {
			t.Errorf("%s: exit %d, asks %v", name, j.Exit, c.AsksRecorded())
		}
	}
}

// What the recorder saw of errors is evidence at the end: once, with its time, also where the kernel log is gone. What
// only an event reports never drains, and neither does what the log of another boot or run says.
func TestRecordedFaults(t *testing.T) {
	const bus = gpu.BusID("0000:1b:00.0")
	line := gpu.KernelLog{Xids: []gpu.Xid{{KernelMark: gpu.KernelMark{Seq: 9, At: time.Hour}, BusID: bus, Code: 79}}}
	gone := gpu.KernelLog{Unknown: "no permission"}
	const onlyEvent = "; only an event of the driver reported it, and no line of the kernel log"
	seen := func(code, lines, events int) []record.RecordedFault {
		return []record.RecordedFault{{Code: code, Lines: lines, Events: events, First: time.Minute}}
	}
	for name, tt := range map[string]struct {
		log    gpu.KernelLog
		faults []record.RecordedFault
		change func(*Case)
		want   string
	}{
		"in the log alone":         {log: line, want: "79 at 0s, exit 29"},
		"in both":                  {log: line, faults: seen(79, 1, 1), want: "79 at 1m0s, exit 29"},
		"the log is lost":          {log: gone, faults: seen(79, 1, 0), want: "79 at 1m0s, exit 29"},
		"as an event alone":        {faults: seen(79, 0, 1), want: "79 at 1m0s, exit 0" + onlyEvent},
		"the start had no log":     {log: gone, faults: seen(48, 0, 1), want: "48 at 1m0s, exit 0" + onlyEvent, change: func(c *Case) { c.Past.Run.Start.Kernel = nil }},
		"without one, in the log":  {log: gone, faults: seen(48, 1, 0), want: "48 at 1m0s, exit 29", change: func(c *Case) { c.Past.Run.Start.Kernel = nil }},
		"of another boot":          {log: gone, faults: seen(79, 1, 1), change: func(c *Case) { c.Past.Run.Epoch.Boot = "b" }},
		"of an unknown boot":       {log: gone, faults: seen(79, 1, 1), change: func(c *Case) { c.Past.Run.Epoch.Boot = "" }},
		"of another GPU":           {faults: seen(79, 1, 1), change: func(c *Case) { c.Past.Recording.GPUs[0].ID = "GPU-b" }},
		"an unnumbered event":      {faults: seen(gpu.UnknownXid, 0, 1), want: "999 at 1m0s, exit 0" + onlyEvent},
		"and the log has a number": {log: line, faults: seen(gpu.EventUnavailable, 0, 1), want: "79 at 0s, exit 29"},
		"a program's error":        {faults: seen(31, 1, 1), want: "31 at 1m0s, exit 0"},
	} {
		c := recordedEnd()
		c.Past.Run.Epoch = gpu.Epoch{Boot: "a", Driver: "580", Module: "m"}
		c.Seen.Epoch, tt.log.Epoch = c.Past.Run.Epoch, c.Past.Run.Epoch
		c.Past.Run.Devices[0].Device.BusID = bus
		c.Past.Run.Start.Kernel = &gpu.KernelLog{}
		c.Seen.Kernel = &tt.log
		c.Seen.Health = []gpu.Health{{Device: "GPU-a", Facts: []gpu.Fact{{Code: gpu.RecoveryAction, Value: "reset"}}}}
		c.Past.Recording = &record.Recording{GPUs: []record.GPURecording{{ID: "GPU-a", Faults: tt.faults}}}
		c.Config.Policy.Epilog = map[catalog.Code]config.Action{catalog.Recovery: config.Ignore}
		if tt.change != nil {
			tt.change(&c)
		}
		j, got := Judge(c), ""
		for _, f := range j.Found {
			if f.Xid != 0 {
				got += strings.Join(append([]string{fmt.Sprintf("%d at %v, exit %d", f.Xid, f.Seen, j.Exit)}, f.Doubts...), "; ")
			}
		}
		if got != tt.want {
			t.Errorf("%s: got %q, want %q: %+v", name, got, tt.want, j.Found)
		}
	}
}

// A process outside Slurm that the recorder saw on a job's GPU is found at the job's end, and never drains; one that
// may be a job's is found as unknown, and what belongs to the job or to the node is not.
func TestRecordedStranger(t *testing.T) {
	const none = "none"
	at := func(seconds ...int) (ends []record.End) {
		for _, s := range seconds {
			ends = append(ends, record.End{At: time.Duration(s) * time.Second})
		}
		return ends
	}
	for name, tt := range map[string]struct {
		change func(*Case, *record.RecordedProcess)
		want   string // why it may be a job's, empty for a certain finding
	}{
		"a login of another user":     {func(*Case, *record.RecordedProcess) {}, ""},
		"the user's, from before":     {func(_ *Case, p *record.RecordedProcess) { p.UID, p.Start = 1007, time.Second }, ""},
		"the user's, begun meanwhile": {func(_ *Case, p *record.RecordedProcess) { p.UID = 1007 }, none},
		"root's":                      {func(_ *Case, p *record.RecordedProcess) { p.UID = 0 }, none},
		"root's in a container":       {func(_ *Case, p *record.RecordedProcess) { p.UID, p.Apart, p.Start = 0, true, time.Second }, ""},
		"the start saw it": {func(c *Case, p *record.RecordedProcess) {
			c.Past.Run.Start.Processes = []record.Process{{PID: 40, Start: p.Start}}
		}, none},
		"the start saw another of its PID": {func(c *Case, p *record.RecordedProcess) {
			c.Past.Run.Start.Processes = []record.Process{{PID: 40, Start: time.Second}}
		}, ""},
		"a service":                   {func(_ *Case, p *record.RecordedProcess) { p.Service, p.Most = "dcgm.service", 64<<20 }, none},
		"a service with much":         {func(_ *Case, p *record.RecordedProcess) { p.Service = "dcgm.service" }, ""},
		"in a job's cgroup":           {func(_ *Case, p *record.RecordedProcess) { p.Owner.ID = 7 }, none},
		"a container begun meanwhile": {func(_ *Case, p *record.RecordedProcess) { p.Apart = true }, "may be the job's own"},
		"a container from before":     {func(_ *Case, p *record.RecordedProcess) { p.Apart, p.Start = true, time.Second }, ""},
		"its user has another job":    {func(_ *Case, p *record.RecordedProcess) { p.UID = 1008 }, "may be of job 8"},
		"its user has another job, whose start was lost": {func(c *Case, p *record.RecordedProcess) {
			p.UID, c.Node.Runs[0].Start, c.Node.Runs[0].Ends = 1008, nil, at(30)
		}, "may be of job 8"},
		"a second end of its user's job, whose own start was lost": {func(c *Case, p *record.RecordedProcess) {
			p.UID, c.Node.Runs[0].Ends = 1008, at(15, 30)
		}, "may be of job 8"},
		"begun after both ends of its user's job": {func(c *Case, p *record.RecordedProcess) {
			p.UID, c.Node.Runs[0].Ends = 1008, at(15, 18)
		}, ""},
		"its environment names a job": {func(_ *Case, p *record.RecordedProcess) { p.EnvJob = 99 }, "names job 99"},
		"its job's first run has a damaged record": {func(c *Case, p *record.RecordedProcess) {
			p.UID, p.Start, c.Node.Damaged = 1007, time.Second, []record.Damaged{{Job: 7}}
		}, "of job 7, whose record is damaged"},
		"a job whose damaged record cannot concern the GPU now": {func(c *Case, p *record.RecordedProcess) {
			c.Node.Damaged = []record.Damaged{{Job: 9, Clear: []gpu.ID{"GPU-a"}}}
		}, "of job 9, whose record is damaged"},
	} {
		c := recordedEnd()
		p := record.RecordedProcess{GPU: "GPU-a", PID: 40, UID: 1002, Start: 20 * time.Second, Most: 84 << 30, Name: "train"}
		tt.change(&c, &p)
		c.Past.Recording = &record.Recording{GPUs: []record.GPURecording{{Processes: []record.RecordedProcess{p}}}}
		j := Judge(c)
		got := slices.DeleteFunc(slices.Clone(j.Found), func(f record.Finding) bool { return f.Code != catalog.Stray })
		switch {
		case j.Exit != 0:
			t.Errorf("%s: exit %d for what was only recorded", name, j.Exit)
		case len(got) != 1 || tt.want == none:
			if len(got) > 0 || tt.want != none {
				t.Errorf("%s: %+v", name, got)
			}
		case !strings.Contains(got[0].Unknown, tt.want) || tt.want == "" && got[0].Unknown != "" || !c.AsksRecorded() ||
			!got[0].OnlyRecorded() || got[0].Owner.Named() || *got[0].Index != 3 || got[0].Holder.Name != "train":
			t.Errorf("%s: %+v", name, got[0])
		}
	}
}

// What a driver that was never measured tells is doubted, on its GPUs and of the whole; what another vendor's GPU shows is not.
func TestUntriedVendor(t *testing.T) {
	amd, nvidia := gpu.Device{ID: "GPU-a", Vendor: gpu.AMD.Name}, gpu.Device{ID: "GPU-n", Vendor: gpu.NVIDIA.Name}
	for name, tt := range map[string]struct {
		cards []record.Assigned
		on    gpu.ID
		want  int
	}{
		"on its GPU":                       {[]record.Assigned{{Device: amd}}, "GPU-a", 1},
		"on none":                          {[]record.Assigned{{Device: amd}}, "", 1},
		"on none, of two of its GPUs":      {[]record.Assigned{{Device: amd}, {Device: gpu.Device{ID: "GPU-b", Vendor: gpu.AMD.Name}}}, "", 1},
		"on none, of GPUs of both vendors": {[]record.Assigned{{Device: nvidia}, {Device: amd}}, "", 1},
		"on another vendor's":              {[]record.Assigned{{Device: nvidia}, {Device: amd}}, "GPU-n", 0},
		"on none, of another vendor's":     {[]record.Assigned{{Device: nvidia}}, "", 0},
	} {
		c := enforcing()
		c.Seen.Cards = tt.cards
		found := c.decide([]record.Finding{{Code: catalog.Hang, GPU: tt.on}}).Found
		if len(found) != 1 || len(found[0].Doubts) != tt.want {
			t.Errorf("%s: %+v, want %d doubts", name, found, tt.want)
		}
	}
}

// Two findings with the same words are reported once.
func TestOnce(t *testing.T) {
	said := []record.Finding{{Unknown: "a"}}
	news := Once([]record.Finding{{Unknown: "a"}, {Unknown: "b"}, {Unknown: "b"}, {Unknown: "c"}}, said)
	if len(news) != 2 || news[0].Unknown != "b" || news[1].Unknown != "c" {
		t.Errorf("got %+v, want b and c", news)
	}
}
