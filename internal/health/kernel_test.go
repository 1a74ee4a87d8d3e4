package health

import (
	"strings"
	"testing"
	"time"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/test/golden"
	"bookend/test/must"
)

func logged(xids ...gpu.Xid) Input {
	in := look()
	in.Kernel = &gpu.KernelLog{Xids: xids}
	return in
}

// Every number of the table gives its row's code, and drains if NVIDIA calls for a reset without a doubt.
func TestEveryXid(t *testing.T) {
	fatal := map[int]bool{}
	for _, n := range xidRows {
		for _, number := range n.Xids {
			found := Judge(logged(gpu.Xid{BusID: busA, Code: number}))
			if len(found) != 1 || found[0].Code != n.Code || found[0].Xid != number ||
				!strings.Contains(found[0].Observed, n.Meaning) {
				t.Errorf("Xid %d: %+v", number, found)
				continue
			}
			fatal[number] = drains(found[0])
			if want := n.Code == code.XidFatal && n.Doubt == ""; fatal[number] != want {
				t.Errorf("Xid %d: drains %v", number, fatal[number])
			}
			if Fatal(number) != (n.Code == code.XidFatal) {
				t.Errorf("Fatal(%d) = %v", number, Fatal(number))
			}
		}
	}
	for number, want := range map[int]bool{
		48: true, 64: true, 79: true, 95: true, 119: true, 140: true,
		13: false, 31: false, 43: false, 45: false, 63: false, 74: false, 92: false, 94: false, 109: false, 154: false,
	} {
		if got, known := fatal[number]; got != want || !known {
			t.Errorf("Xid %d: drains %v", number, got)
		}
	}
	found := Judge(logged(gpu.Xid{BusID: busA, Code: 777}))
	if len(found) != 1 || found[0].Code != code.Xid || found[0].Xid != 777 ||
		!strings.Contains(found[0].Observed, "Xid 777 (not in the table") {
		t.Errorf("a number that is not in the table: %+v", found)
	}
}

// The driver's own word on whether the card needs anything outweighs the catalog.
func TestXidAgainstRecoveryAction(t *testing.T) {
	for value, want := range map[string]bool{"none": false, "reset": true, "6": true, "": true} {
		in := logged(gpu.Xid{BusID: busA, Code: 48})
		in.Now = []gpu.Health{told(gpuA, seen(gpu.RecoveryAction, value))}
		found := Judge(in)
		last := found[len(found)-1]
		if last.Code != code.XidFatal || drains(last) != want {
			t.Errorf("recovery action %q: %+v", value, last)
		}
	}
	in := logged(gpu.Xid{BusID: busA, Code: 48})
	in.Now = []gpu.Health{told(gpuA, gpu.Fact{Code: gpu.RecoveryAction, Value: "none", Unknown: "no permission"})}
	if found := Judge(in); len(found) != 1 || !drains(found[0]) {
		t.Errorf("an unknown recovery action says nothing: %+v", found)
	}
}

// All lines of one number are one finding: testdata/xids.txtar has what it says.
func TestXidsOfOneNumberAreOneFinding(t *testing.T) {
	golden.Archive(t, *update, "testdata/xids.txtar", func(given string) (said string) {
		var log []gpu.Xid
		for line := range strings.Lines(given) {
			seconds, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
			x, is := gpu.NVIDIA.Fault("NVRM: Xid " + text)
			x.At = must.Have(time.ParseDuration(seconds + "s"))(t)
			if log = append(log, x); !is {
				t.Errorf("no Xid: %s", line)
			}
		}
		in := logged(log...)
		in.Own = map[int]bool{1: true, 2: false, 0: true}
		for _, f := range Judge(in) {
			if said += string(f.Code) + ": " + f.Observed + "\n"; f.Unknown != "" || f.GPU != gpuA {
				t.Errorf("%+v", f)
			}
		}
		return said
	})
}

// A card without a bus id has no lines of its own, and without a log there is nothing to say.
func TestNoLog(t *testing.T) {
	in := logged(gpu.Xid{Code: 79})
	in.Cards = []finding.Card{{Device: gpu.Device{ID: gpuA}}}
	if found := Judge(in); len(found) != 0 {
		t.Errorf("no bus id: %+v", found)
	}
	for name, log := range map[string]*gpu.KernelLog{
		"not read": nil, "unknown": {Unknown: "no permission"}, "a mismatch": {Mismatch: "NVRM: API mismatch: x"},
		"a kill": {Kills: []gpu.HostKill{{PID: 7}}},
	} {
		in := look()
		in.Kernel = log
		if found := Judge(in); len(found) != 0 {
			t.Errorf("%s: %+v", name, found)
		}
	}
}

// What was overwritten may have been an Xid: that is said once, and not of cards that the job did not have.
func TestLostEntries(t *testing.T) {
	in := look()
	in.Cards = append(in.Cards, cardB)
	in.Kernel = &gpu.KernelLog{Lost: true}
	if found := Judge(in); len(found) != 1 || found[0].Code != code.Untraced || found[0].Unknown == "" ||
		found[0].GPU != "" || action(found[0]) != config.Note {
		t.Errorf("%+v", found)
	}
	if found := Judge(Input{Kernel: in.Kernel}); len(found) != 0 {
		t.Errorf("no GPUs: %+v", found)
	}
}

// A card that the job had and that nobody could look at is judged by the log alone, as Slurm numbers it.
func TestUnseenCards(t *testing.T) {
	in := Input{Unseen: []finding.Card{cardB},
		Kernel: &gpu.KernelLog{Xids: []gpu.Xid{{BusID: busA, Code: 79}, {BusID: busB, Code: 79}}}}
	found := Judge(in)
	if len(found) != 1 || found[0].Code != code.XidFatal || found[0].GPU != gpuB || *found[0].Index != 3 ||
		!drains(found[0]) {
		t.Errorf("%+v", found)
	}
	in.Doubt = "sees a part of the node"
	if found := Judge(in); len(found) != 1 || drains(found[0]) {
		t.Errorf("with a doubt: %+v", found)
	}
}

// A driver that was reloaded may have cured the card: what it wrote before proves nothing any more. What it says now
// does.
func TestDoubtOfTheLog(t *testing.T) {
	in := logged(gpu.Xid{BusID: busA, Code: 79})
	in.Now = []gpu.Health{told(gpuA, seen(gpu.RemapFailed, "yes"))}
	in.KernelDoubt = "reloaded"
	if found := Judge(in); len(found) != 2 || !drains(found[0]) || drains(found[1]) ||
		found[1].Doubts[0] != "reloaded" {
		t.Errorf("%+v", found)
	}
}

// How many lines there were is said though few are kept.
func TestHowMany(t *testing.T) {
	in := logged(gpu.Xid{BusID: busA, Code: 8}, gpu.Xid{BusID: busA, Code: 8, More: 40})
	if found := Judge(in); len(found) != 1 || !strings.Contains(found[0].Observed, "42 times") {
		t.Errorf("%+v", found)
	}
	in = logged(gpu.Xid{BusID: busA, Code: 8, More: 1})
	if found := Judge(in); !strings.Contains(found[0].Observed, "2 times") {
		t.Errorf("%+v", found)
	}
}

// Instances of one card share its lines: they are told once, and of a named instance nobody knows whose it is.
func TestXidsOfInstances(t *testing.T) {
	in := logged(gpu.Xid{BusID: busA, Code: 94, Instance: "GPU-I 5"}, gpu.Xid{BusID: busA, Code: 95},
		gpu.Xid{BusID: busA, Code: 31, Instance: "GPU-I 5"}, gpu.Xid{BusID: busA, Code: 31})
	in.Cards = []finding.Card{
		{Index: 1, Device: gpu.Device{ID: "MIG-1", Parent: gpuA, BusID: busA}},
		{Index: 2, Device: gpu.Device{ID: "MIG-2", Parent: gpuA, BusID: busA}},
	}
	found := Judge(in)
	if len(found) != 3 {
		t.Fatalf("%+v", found)
	}
	for i, want := range []struct {
		code    code.Code
		unknown string
	}{
		{code.Xid, "Xid 94 (contained memory error: it hit one program, which was ended; no program's fault) in the kernel log is of MIG GPU-I 5: whether that is this job's cannot be told"},
		{code.XidFatal, ""},
		{code.Xid, ""},
	} {
		if f := found[i]; f.Code != want.code || f.Unknown != want.unknown || f.GPU != "MIG-1" || len(f.Doubts) != 1 {
			t.Errorf("%d: %+v", i, f)
		}
	}
	in.Cards = []finding.Card{cardA}
	if found = Judge(in); len(found) != 3 || found[0].Unknown != "" {
		t.Errorf("a job that has the whole GPU has each instance: %+v", found)
	}
}

// Where the driver said nothing of the cards it may have recovered them; a card that has fallen off the bus it has not.
func TestXidsThatTheDriverSaysNothingOf(t *testing.T) {
	for number, doubted := range map[int]bool{119: true, 95: true, fallenOffTheBus: false} {
		in := Input{Unseen: []finding.Card{cardA}, Blind: true,
			Kernel: &gpu.KernelLog{Xids: []gpu.Xid{{BusID: cardA.Device.BusID, Code: number}}}}
		found := Judge(in)
		if len(found) != 1 || found[0].Code != code.XidFatal || (len(found[0].Doubts) > 0) != doubted {
			t.Errorf("Xid %d: %+v", number, found)
		}
	}
}
