package judge

import (
	"testing"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
)

// What is on a GPU, at rest or moving, and a job on another's GPU hold back a drain's end. A GPU's condition does not: it
// is judged apart.
func TestDirtyForADrain(t *testing.T) {
	for of, want := range map[catalog.Code]bool{
		catalog.Residue: true, catalog.Moving: true, catalog.Trespass: true, catalog.ECC: false,
	} {
		c, cards := checkOf()
		seen := c.DrainSeen(Judgement{Found: []record.Finding{{Code: of, GPU: cards[0].Device.ID}}})
		if got := seen[cards[0].Device.ID]; got.Dirty != want || got.Clean == want || want && got.Why != string(of) {
			t.Errorf("%s: %+v, want dirty %v", of, got, want)
		}
	}
}

// A fault of a GPU that is not looked at again, as a job has it or no record can be compared, is not certain.
func TestFaultInOneLook(t *testing.T) {
	for name, change := range map[string]func(*Check){
		"a job has the GPU":                     func(*Check) {},
		"the driver tells too little of itself": func(c *Check) { c.Seen.Epoch = gpu.Epoch{} },
		"the fault names its place alone": func(c *Check) {
			c.Seen.Side.Snapshot.Faults[0] = gpu.Fault{Code: gpu.FaultLost, BusID: c.Seen.Cards[1].Device.BusID}
		},
	} {
		c, cards := checkOf()
		c.Seen.Side.Snapshot.Faults = []gpu.Fault{{Code: gpu.FaultLost, Device: cards[1].Device.ID}}
		change(&c)
		var lost []record.Finding
		for _, f := range JudgeCheck(c).Found {
			if f.Code == catalog.Lost {
				lost = append(lost, f)
			}
		}
		if len(lost) != 1 || lost[0].GPU != cards[1].Device.ID || *lost[0].Index != 1 || len(lost[0].Doubts) != 1 {
			t.Errorf("%s: %+v, want one doubt about GPU 1", name, lost)
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
