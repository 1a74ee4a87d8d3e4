package judge

import (
	"slices"
	"testing"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/test/must"
)

// What one sample says of GPU 0, or of another, for a drain's end. Of a GPU that a job has, or that could not be read, it
// says nothing, however clean; a GPU's condition is judged apart. If memory cannot be judged, the cause is gone when no
// process is listed, in a list that was read in full. Which GPUs jobs can get follows from what Slurm gives out.
func TestDrainSeen(t *testing.T) {
	unjudged := func(change func(*gpu.Reading)) func(*Check) {
		return func(c *Check) {
			r := &c.Seen.Side.Snapshot.Readings[0]
			r.Memory.Used, r.Memory.Unjudged = gpu.Bytes(9*gib), "files are in it"
			change(r)
		}
	}
	one := []gpu.Process{{PID: 70, Memory: gpu.Bytes(gib)}}
	for name, tt := range map[string]struct {
		on     int
		change func(*Check)
		found  catalog.Code // on GPU 0
		want   string
	}{
		"idle":                {want: "clean, given"},
		"a job has it":        {on: 1, want: "a job still has it, given"},
		"could not be read":   {on: 2, want: "it could not be read, or has just come to rest, given"},
		"memory is left":      {found: catalog.Residue, want: "dirty BKD-RESIDUE, given"},
		"memory moves":        {found: catalog.Moving, want: "dirty BKD-MOVING, given"},
		"a job trespasses":    {found: catalog.Trespass, want: "dirty BKD-TRESPASS, given"},
		"its condition":       {found: catalog.ECC, want: "clean, given"},
		"unjudged, and empty": {change: unjudged(func(*gpu.Reading) {}), want: "clean by list, given"},
		"unjudged, a process": {change: unjudged(func(r *gpu.Reading) { r.Processes = one }),
			want: "it could not be read, or has just come to rest, given"},
		"unjudged, without a list": {change: unjudged(func(r *gpu.Reading) { r.ProcessesUnknown = "not supported" }),
			want: "it could not be read, or has just come to rest, given"},
		"memory in use": {change: func(c *Check) { c.Seen.Side.Snapshot.Readings[0].Memory.Used = gpu.Bytes(9 * gib) },
			want: "it could not be read, or has just come to rest, given"},
		"not Slurm's": {change: func(c *Check) { c.Seen.Given = map[gpu.BusID]bool{c.Seen.Cards[0].Device.BusID: false} },
			want: "clean"},
		"another is not Slurm's": {change: func(c *Check) { c.Seen.Given = map[gpu.BusID]bool{c.Seen.Cards[1].Device.BusID: false} },
			want: "clean, given"},
	} {
		c, cards := checkOf()
		if tt.change != nil {
			tt.change(&c)
		}
		seen := c.DrainSeen(Judgement{Found: []record.Finding{{Code: tt.found, GPU: cards[0].Device.ID}}})[cards[tt.on].Device.ID]
		got := seen.Why
		for word, is := range map[string]bool{"clean": seen.Clean, "dirty " + got: seen.Dirty, "clean by list": seen.ByList} {
			if is && len(word) > len(got) {
				got = word
			}
		}
		if seen.Given {
			got += ", given"
		}
		if got != tt.want || seen.ByList && !seen.Clean || seen.Clean && seen.Dirty {
			t.Errorf("%s: got %q, want %q: %+v", name, got, tt.want, seen)
		}
	}
}

// A fault of a GPU that is not looked at again, as a job has it or no record can be compared, is not certain. Parts of a
// GPU share its bus id: a fault of one is not another's.
func TestFaultInOneLook(t *testing.T) {
	fault := func(f gpu.Fault) func(*Check) {
		return func(c *Check) {
			f.BusID, c.Seen.Cards[1].Device.Parent = c.Seen.Cards[1].Device.BusID, "GPU-parent"
			c.Seen.Side.Snapshot.Faults[0] = f
		}
	}
	for name, tt := range map[string]struct {
		change func(*Check)
		want   int
	}{
		"a job has the GPU":                     {func(*Check) {}, 1},
		"the driver tells too little of itself": {func(c *Check) { c.Seen.Epoch = gpu.Epoch{} }, 1},
		"the fault names its place alone":       {fault(gpu.Fault{Code: gpu.FaultLost}), 1},
		"of the whole GPU":                      {fault(gpu.Fault{Code: gpu.FaultLost, Device: "GPU-parent"}), 1},
		"of another part":                       {fault(gpu.Fault{Code: gpu.FaultLost, Device: "MIG-2"}), 0},
	} {
		c, cards := checkOf()
		c.Seen.Side.Snapshot.Faults = []gpu.Fault{{Code: gpu.FaultLost, Device: cards[1].Device.ID}}
		tt.change(&c)
		lost := slices.DeleteFunc(JudgeCheck(c).Found, func(f record.Finding) bool { return f.Code != catalog.Lost })
		if len(lost) != tt.want || tt.want > 0 && (lost[0].GPU != cards[1].Device.ID || *lost[0].Index != 1 || len(lost[0].Doubts) != 1) {
			t.Errorf("%s: %+v, want %d with one doubt about GPU 1", name, lost, tt.want)
		}
	}
}

// What the last health check knew counts in the same life: its place in the kernel's log in the boot of that log, its
// counters in the life of the driver.
func TestSinceTheLastCheck(t *testing.T) {
	for name, tt := range map[string]struct {
		change       func(*Check)
		xid, counted bool
	}{
		"of this life":     {func(*Check) {}, true, true},
		"none":             {func(c *Check) { c.Last = nil }, false, false},
		"of another boot":  {func(c *Check) { c.Last.Boot, c.Last.Epoch.Boot = "a", "a" }, false, false},
		"of an older life": {func(c *Check) { c.Last.Epoch.Module = "l" }, true, false},
		"of a boot that is not known": {func(c *Check) {
			c.Last.Boot, c.Last.Epoch.Boot, c.Seen.Kernel.Epoch.Boot = "", "", ""
		}, false, false},
		"without the log's end": {func(c *Check) { c.Last.Kernel = nil }, false, true},
		"the log is not read":   {func(c *Check) { c.Seen.Kernel = nil }, false, true},
		"nor could it be":       {func(c *Check) { c.Seen.Kernel.Unknown = "not permitted" }, false, true},
	} {
		c, cards := checkOf()
		counter := func(value string) []gpu.Health {
			fact := gpu.Fact{Code: gpu.ECCUncorrected, Value: value}
			return []gpu.Health{{Device: cards[0].Device.ID, Facts: []gpu.Fact{fact}}}
		}
		c.Seen.Health = counter("3")
		c.Seen.Kernel = &gpu.KernelLog{Epoch: c.Seen.Epoch, Xids: []gpu.Xid{{BusID: cards[0].Device.BusID, Code: 79}}}
		c.Last = &record.Check{Epoch: c.Seen.Epoch, Boot: c.Seen.Epoch.Boot, Kernel: &gpu.KernelMark{}, Health: counter("2")}
		tt.change(&c)
		xid, counted := false, false
		for _, f := range JudgeCheck(c).Found {
			xid = xid || f.Xid == 79
			counted = counted || f.Code == catalog.ECC && f.Unknown == ""
		}
		if xid != tt.xid || counted != tt.counted {
			t.Errorf("%s: Xid %v, counted %v; want %v and %v", name, xid, counted, tt.xid, tt.counted)
		}
	}
}

// What the site's own check reports drains an idle node when two health checks in a row got it, and not again after that.
func TestExternalTwice(t *testing.T) {
	drained := record.Check{Verdict: record.Verdict{Action: config.Drain, Judged: []record.Judged{{Action: config.Drain}}}}
	for name, tt := range map[string]struct {
		change func(*Check)
		want   config.Action
	}{
		"twice":                         {func(*Check) {}, config.Drain},
		"the first":                     {func(c *Check) { c.Node.Check = nil }, config.Warn},
		"within seconds":                {func(c *Check) { c.At = c.Node.Check.At + 9*time.Second }, config.Warn},
		"of another boot":               {func(c *Check) { c.Node.Check.Epoch.Boot = "a" }, config.Warn},
		"the last one was stopped":      {func(c *Check) { c.Node.Check.Stopped = true }, config.Warn},
		"the last one could not tell":   {func(c *Check) { c.Node.Check.Findings[0].Unknown = "x" }, config.Warn},
		"the last one found nothing":    {func(c *Check) { c.Node.Check.Findings = nil }, config.Warn},
		"a job is there":                {func(c *Check) { b, _ := checkOf(); c.Node.Runs = b.Node.Runs }, config.Warn},
		"this one cannot tell":          {func(c *Check) { c.Reply = &Reply{Unknown: "did not end"} }, config.Warn},
		"this one finds nothing":        {func(c *Check) { c.Reply = &Reply{} }, config.Ignore},
		"the driver cannot be asked":    {func(c *Check) { c.Seen.Side = record.Side{} }, config.Drain},
		"the node was drained for this": {func(c *Check) { c.Last.Verdict = drained.Verdict }, config.Warn},
		"policy warns":                  {func(c *Check) { c.Config.Policy.HealthCheck = nil }, config.Warn},
	} {
		c, _ := checkOf()
		c.Phase, c.At, c.Config.Mode, c.Node.Runs, c.Reply = slurm.HealthCheck, time.Hour, config.Enforce, nil, &Reply{Exit: 7, Named: true}
		c.Config.Policy.HealthCheck = map[catalog.Code]config.Action{catalog.External: config.Drain}
		c.Last = &record.Check{At: time.Minute, Epoch: c.Seen.Epoch, Findings: []record.Finding{{Code: catalog.External}}}
		c.Node.Check = c.Last
		tt.change(&c)
		j := JudgeCheck(c)
		must.Be(t, name, j.With(c.Case).Action, tt.want)
		for id, seen := range c.DrainSeen(j) { // a node that is to be drained is not resumed for what is over
			must.Not(t, seen.Clean && tt.want == config.Drain, "%s: %s counts as clean", name, id)
		}
	}
}

// A start learns what a service holds only where it has the GPU alone, sees all of the node, and knows the driver's life.
func TestLearn(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*Case)
		want   int
	}{
		"alone":                       {func(*Case) {}, 1},
		"on a GPU given out in parts": {func(c *Case) { c.Sharing.Shared = slurm.Yes }, 0},
		"inside the job":              {func(c *Case) { c.InJob = true }, 0},
		"in a life half known":        {func(c *Case) { c.Seen.Epoch.Module = "" }, 0},
	} {
		check, cards := checkOf()
		c := check.Case
		c.Phase, c.Job, c.Seen.Cards = slurm.Prolog, slurm.Job{ID: 8, Context: slurm.Prolog}, cards[:1]
		c.Node, c.Sharing = &Node{}, &slurm.Sharing{Shared: slurm.No, Why: "x"}
		r := &c.Seen.Side.Snapshot.Readings[0]
		r.Memory.Used, r.Processes = gpu.Bytes(40*mib), []gpu.Process{{PID: 60, Memory: gpu.Bytes(31 * mib)}}
		c.Seen.Side.Curves = map[gpu.ID]record.Curve{cards[0].Device.ID: {State: record.Flat, Steady: true}}
		c.Seen.Side.Processes = map[int]record.Process{60: {PID: 60, Start: time.Second, Service: "dcgm.service"}}
		tt.change(&c)
		if news := Learn(c); len(news) != tt.want {
			t.Errorf("%s: %+v, want %d", name, news, tt.want)
		}
	}
}
