package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"bookend/test/gpu/record"
)

// checkedLane is a run on two cards, with a process on the first.
func checkedLane() *run {
	return &run{
		lane: &lane{cards: []card{{uuid: "GPU-b"}, {uuid: "GPU-a"}}}, rec: &record.Run{},
		scene: &scene{holder: &record.Holder{PID: 7, GPU: "GPU-a", Held: 1000 * mib, Allocated: 900 * mib}},
	}
}

// The judge must see each way in which a check can have found something, or not have looked.
func TestNothingFound(t *testing.T) {
	for name, change := range map[string]func(*record.NodeCheck){
		"":                    func(c *record.NodeCheck) { c.Lines = []string{leftAlone + "the node is not drained any more"} },
		"it did something":    func(c *record.NodeCheck) { c.Lines = []string{"drain: resumed: clean 2 of 2 times in a row"} },
		"it failed":           func(c *record.NodeCheck) { c.Exit = 1 },
		"it printed a line":   func(c *record.NodeCheck) { c.Said = "bookend: x" },
		"a card was not read": func(c *record.NodeCheck) { c.Cards = c.Cards[:1] },
		"it left no record":   func(c *record.NodeCheck) { c.Cards = nil },
		"a note":              func(c *record.NodeCheck) { c.Findings = []record.Finding{{Code: "BKD-THROTTLE"}} },
		"a line in the log":   func(c *record.NodeCheck) { c.Lines = []string{"findings: BKD-X"} },
	} {
		c := record.NodeCheck{Cards: []string{"GPU-a", "GPU-b"}}
		change(&c)
		r := checkedLane()
		r.nothingFound(c)
		if got := r.rec.Judge() == record.Right; got != (name == "") {
			t.Errorf("%q: right is %v: %+v", name, got, r.rec.Checks)
		}
	}
}

func TestFoundOnCard(t *testing.T) {
	want := leftover{code: "BKD-ORPHAN", pid: 7, classes: "orphan", job: 3, evidence: "exclusive"}
	good := record.Finding{Code: "BKD-ORPHAN", PID: 7, Classes: []string{"orphan"}, GPU: "GPU-a", Bytes: 1000 * mib, Job: 3, Evidence: "exclusive", Action: "warn"}
	for name, change := range map[string]func(*record.NodeCheck){
		"":                    func(*record.NodeCheck) {},
		"nothing":             func(c *record.NodeCheck) { c.Findings = nil },
		"ignored":             func(c *record.NodeCheck) { c.Findings[0].Action = "ignore" },
		"a second finding":    func(c *record.NodeCheck) { c.Findings = append(c.Findings, c.Findings[0]) },
		"another card":        func(c *record.NodeCheck) { c.Findings[0].GPU = "GPU-b" },
		"another job":         func(c *record.NodeCheck) { c.Findings[0].Job = 4 },
		"half of it":          func(c *record.NodeCheck) { c.Findings[0].Bytes /= 2 },
		"it saw nobody":       func(c *record.NodeCheck) { c.Seen = nil },
		"it saw another":      func(c *record.NodeCheck) { c.Seen[0].PID = 8 },
		"it looked elsewhere": func(c *record.NodeCheck) { c.Seen[0].GPU = "GPU-b" },
	} {
		c := record.NodeCheck{Cards: []string{"GPU-a", "GPU-b"}, Findings: []record.Finding{good}, Seen: []record.Occupant{{GPU: "GPU-a", PID: 7}}}
		change(&c)
		r := checkedLane()
		r.foundOnCard(c, want, "warn")
		if got := r.rec.Judge() == record.Right; got != (name == "") {
			t.Errorf("%q: right is %v: %+v", name, got, r.rec.Checks)
		}
	}
}

// One line must have it all: what two lines say together nobody said.
func TestLogged(t *testing.T) {
	for name, tc := range map[string]struct {
		lines []string
		want  bool
	}{
		"one line":  {[]string{"x", "BKD-ORPHAN: GPU 0, process 7"}, true},
		"two lines": {[]string{"BKD-ORPHAN: GPU 0", "process 7"}, false},
		"no line":   {nil, false},
	} {
		r := checkedLane()
		r.logged(record.NodeCheck{Lines: tc.lines}, "BKD-ORPHAN", "process 7")
		if got := r.rec.Judge() == record.Right; got != tc.want {
			t.Errorf("%s: right is %v", name, got)
		}
	}
}

func TestReasonIs(t *testing.T) {
	good := "drained: BKD-ORPHAN gpu=1 1000MiB pid=7 job=3 epilog; see: bookend show 3"
	for reason, want := range map[string]bool{
		good:                                       true,
		strings.Replace(good, "1000", "1063", 1):   true,
		strings.Replace(good, "1000", "1065", 1):   false,
		strings.Replace(good, "gpu=1", "gpu=0", 1): false,
		strings.Replace(good, "pid=7", "pid=8", 1): false,
		strings.Replace(good, "job=3", "job=4", 1): false,
		strings.Replace(good, "w 3", "w 4", 1):     false,
		good + " [root]":                           false,
		"drained: Epilog error":                    false,
		inService:                                  false,
	} {
		r := checkedLane()
		r.reasonIs(reason, &record.Job{ID: 3, GPUs: []record.GPU{{Index: 1, UUID: "GPU-a"}}})
		if got := r.rec.Judge() == record.Right; got != want {
			t.Errorf("%q: right is %v: %+v", reason, got, r.rec.Checks)
		}
	}
}

func TestUntouched(t *testing.T) {
	for most, want := range map[uint64]bool{20480: true, 20543: true, 20544: false, 143000: false} {
		r := checkedLane()
		r.untouched(20480*mib, most*mib)
		if got := r.rec.Judge() == record.Right; got != want {
			t.Errorf("%d MiB: right is %v", most, got)
		}
	}
	r := checkedLane()
	if r.untouched(0, 0); r.rec.Judge() == record.Right {
		t.Error("right though nobody watched")
	}
}

// atWork is a job's beats of 50 ms from 0 on, as fast as told while a check is at work from 1000 to 1300 ms.
func atWork(beside float64) (output string, checks []span) {
	var b strings.Builder
	b.WriteString("ready pid=7\nbeat from_ms=x to_ms=y uses=0\n")
	for at := 0.0; at < 3000; at += 50 {
		uses := 150.0
		if at+50 > 1000 && at < 1300 {
			uses *= beside
		}
		fmt.Fprintf(&b, "beat from_ms=%.3f to_ms=%.3f uses=%.0f worst_ms=0.4\n", at, at+50, uses)
	}
	return b.String(), []span{{1001, 1299}}
}

func TestPaced(t *testing.T) {
	for beside, want := range map[float64]bool{1: true, 0.92: true, 0.88: false, 0.1: false} {
		output, checks := atWork(beside)
		r := checkedLane()
		if err := attempt(func() { r.paced(beatsIn(output), checks) }); err != nil {
			t.Fatal(err)
		}
		if got := r.rec.Judge() == record.Right; got != want {
			t.Errorf("%v of the pace: right is %v: %+v", beside, got, r.rec.Checks)
		}
	}
	output, checks := atWork(1)
	beats := beatsIn(output)
	if len(beats) != 60 || beats[1].uses != 150 || beats[1].from != 50 {
		t.Errorf("%d beats, the second %+v", len(beats), beats[1])
	}
	if beside, without := paces(beats, checks); beside.beats != 6 || without.beats != 54 || beside.worst != 0.4 {
		t.Errorf("%+v and %+v", beside, without)
	}
	// A job that told too little is no proof of anything.
	for name, few := range map[string][]beat{"none": nil, "none beside": slices.Clone(beats[:15]), "none without": slices.Clone(beats[20:26])} {
		if err := attempt(func() { checkedLane().paced(few, checks) }); err == nil {
			t.Errorf("%s: a pace was made of it", name)
		}
	}
}
