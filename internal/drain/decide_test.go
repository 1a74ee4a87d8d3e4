package drain

import (
	"strings"
	"testing"
	"time"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/policy"
	"bookend/internal/slurm"
)

const (
	reason42 = "BKD-ORPHAN gpu=0 2518MiB pid=4711 job=42 epilog; see: bookend show 42"
	reason43 = "BKD-LOST gpu=1 job=43 prolog; see: bookend show 43"
)

var (
	ended = time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC) // when the hook of job 42 had its verdict
	epoch = gpu.Epoch{Boot: "b1", Driver: "580", Module: "m1"}
)

// orphaned is the end of a job that left a process, and drained for it.
func orphaned(id slurm.JobID, wall time.Time, at time.Duration) ledger.Run {
	return ledger.Run{Job: slurm.Job{ID: id}, Epoch: epoch, Ends: []ledger.End{{
		At: at, Wall: wall, SlurmConf: "/etc/slurm/slurm.conf",
		Findings: []finding.Finding{about(code.Dirty, 1, 0, 0), about(code.Orphan, 0, 2518<<20, 4711)},
		Verdict:  policy.Verdict{Action: config.Drain, Exit: 10, Code: code.Orphan, Judged: []policy.Judged{{Action: config.Warn}, {Action: config.Drain}}},
	}}}
}

// lostAtStart is a start that drained for a lost card.
func lostAtStart(id slurm.JobID, wall time.Time, at time.Duration) ledger.Run {
	f := about(code.Lost, 1, 0, 0)
	f.GPU = "GPU-b"
	return ledger.Run{Job: slurm.Job{ID: id}, Epoch: epoch, Start: &ledger.End{
		At: at, Wall: wall, Findings: []finding.Finding{f},
		Verdict: policy.Verdict{Action: config.Drain, Exit: 20, Code: code.Lost, Judged: []policy.Judged{{Action: config.Drain}}},
	}}
}

// clock is the moment of a health check, so long after the hook of job 42.
func after(d time.Duration) Moment {
	return Moment{Wall: ended.Add(d), Boot: time.Hour + d, ID: "b1"}
}

// asked is what a health check two minutes after that hook knows, of a node as Slurm leaves it.
func asked(edit func(*Input)) Input {
	in := Input{
		Now: after(2 * time.Minute), Epoch: epoch, Writer: ByCheck, Rules: Rules{By: config.ReasonByHealthcheck, After: 3},
		Exits: Exits([]ledger.Run{orphaned(42, ended, time.Hour)}, after(2*time.Minute)),
		Node:  Node{Flags: []string{"IDLE", "DRAIN"}, Reason: EpilogError, By: "root", At: ended.Add(time.Second)},
	}
	if edit != nil {
		edit(&in)
	}
	return in
}

func TestFirstDecision(t *testing.T) {
	tests := map[string]struct {
		edit    func(*Input)
		act     Act
		why     string
		settled int
	}{
		"Slurm's text, at that time":         {nil, Write, reason42, 1},
		"a second early, by rounding":        {func(in *Input) { in.Node.At = ended.Add(-time.Second) }, Write, "", 1},
		"twenty seconds late":                {func(in *Input) { in.Node.At = ended.Add(20 * time.Second) }, Write, "", 1},
		"jobs still on the node":             {func(in *Input) { in.Node.Flags = []string{"MIXED", "DRAIN"} }, Write, "", 1},
		"another job ends just now":          {func(in *Input) { in.Node.Flags = []string{"IDLE", "COMPLETING", "DRAIN"} }, Write, "", 1},
		"another script's, before":           {func(in *Input) { in.Node.At = ended.Add(-3 * time.Second) }, Leave, "not ours", 1},
		"another script's, after":            {func(in *Input) { in.Node.At = ended.Add(21 * time.Second) }, Leave, "not ours", 1},
		"of unknown time":                    {func(in *Input) { in.Node.At = time.Time{} }, Leave, "not ours", 1},
		"the other hook's":                   {func(in *Input) { in.Node.Reason = PrologError }, Leave, "not ours", 1},
		"an admin's reason":                  {func(in *Input) { in.Node.Reason = "disk swap" }, Leave, "a reason of root's", 1},
		"an admin's, that begins so":         {func(in *Input) { in.Node.Reason = "Epilog error: disk" }, Leave, "a reason of root's", 1},
		"in other letters":                   {func(in *Input) { in.Node.Reason = "epilog error" }, Leave, "a reason of root's", 1},
		"without a reason":                   {func(in *Input) { in.Node.Reason = "" }, Leave, "without a reason", 1},
		"our own words, by others":           {func(in *Input) { in.Node.Reason = reason42 }, Leave, "a reason of root's", 1},
		"resumed already":                    {func(in *Input) { in.Node = Node{Flags: []string{"IDLE"}} }, Leave, "not drained any more", 1},
		"a reason without a drain":           {func(in *Input) { in.Node.Flags = []string{"IDLE"} }, Leave, "not drained any more", 1},
		"down":                               {func(in *Input) { in.Node.Flags = []string{"DOWN", "DRAIN"} }, Leave, "DOWN", 0},
		"about to be booted":                 {func(in *Input) { in.Node.Flags = []string{"IDLE", "DRAIN", "REBOOT_REQUESTED"} }, Leave, "REBOOT_REQUESTED", 0},
		"Slurm has not heard of it yet":      {func(in *Input) { in.Now, in.Node = after(time.Second), Node{Flags: []string{"IDLE"}} }, Leave, "just asked", 0},
		"nothing that could be said":         {func(in *Input) { in.Exits[0].Reason = "" }, Leave, "not ours", 1},
		"settled before":                     {func(in *Input) { in.Memory.Settled = []Ref{in.Exits[0].Ref} }, Leave, "not ours", 1},
		"the hook was to write, and did not": {func(in *Input) { in.Rules.By = config.ReasonByHook }, Write, reason42, 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			in := asked(tt.edit)
			d := Decide(in)
			if d.Act != tt.act || !strings.Contains(d.Why, tt.why) || len(d.After.Settled) != tt.settled {
				t.Errorf("%s (%s), %d settled; want %s (%s), %d", d.Act, d.Why, len(d.After.Settled), tt.act, tt.why, tt.settled)
			}
			if d.After.Last == nil || d.After.Last.Act != d.Act || d.After.Last.Why != d.Why {
				t.Errorf("remembered is %+v", d.After.Last)
			}
			wrote := d.After.Written
			if (wrote != nil) != (tt.act == Write) || wrote != nil && (wrote.Reason != reason42 || d.Reason != reason42 || wrote.Conf == "" || len(wrote.Causes) != 1 || wrote.Epoch != epoch) {
				t.Errorf("written is %+v", wrote)
			}
			if d.Act == Write && (len(d.Intent.Settled) != len(in.Memory.Settled) || d.Intent.Written == nil || d.Intent.Last.Act != Leave) {
				t.Errorf("before it is done %+v is remembered", d.Intent)
			}
		})
	}
}

// However long another's reason is, what is remembered of it is not.
func TestLongReasonOfAnother(t *testing.T) {
	in := asked(func(in *Input) { in.Node.By = strings.Repeat("x", 1<<20) })
	in.Node.Reason = "disk swap"
	if d := Decide(in); d.Act != Leave || len(d.After.Last.Why) > 2<<10 || d.Why != d.After.Last.Why {
		t.Errorf("%s: %d bytes are remembered", d.Act, len(d.After.Last.Why))
	}
}

// The latest failed hook before the drain is what it is for; the others are further causes.
func TestSeveralExits(t *testing.T) {
	runs := []ledger.Run{orphaned(44, ended.Add(20*time.Second), time.Hour+20*time.Second), orphaned(42, ended, time.Hour), lostAtStart(43, ended.Add(-time.Second), time.Hour-time.Second)}
	in := asked(func(in *Input) { in.Exits = Exits(runs, in.Now) })
	d := Decide(in)
	if d.Act != Write || d.Reason != reason42 || len(d.After.Settled) != 3 {
		t.Errorf("%s %q, settled %v", d.Act, d.Reason, d.After.Settled)
	}
	if c := d.After.Written.Causes; len(c) != 2 || c[0].Code != code.Lost || c[1].Code != code.Orphan {
		t.Errorf("causes %+v", c)
	}
	in.Node.Reason, in.Node.At = PrologError, ended
	if d := Decide(in); d.Act != Write || d.Reason != reason43 {
		t.Errorf("prolog: %s %q (%s)", d.Act, d.Reason, d.Why)
	}
}

// stood is a node that has had our reason for an hour.
func stood(edit func(*Input)) Input {
	in := asked(func(in *Input) { in.Rules.Resume = true })
	d := Decide(in)
	in.Memory, in.Now = d.After, after(time.Hour)
	in.Node = Node{Flags: []string{"IDLE", "DRAIN"}, Reason: reason42, By: "root", At: ended.Add(2 * time.Minute)}
	in.Cards = map[gpu.ID]Seen{"GPU-a": {Memory: Clean}}
	if edit != nil {
		edit(&in)
	}
	return in
}

func TestStandingDrain(t *testing.T) {
	rewritten := func(text string) func(*Input) { return func(in *Input) { in.Node.Reason = text } }
	tests := map[string]struct {
		edit  func(*Input)
		act   Act
		why   string
		clean int
		ours  bool
	}{
		"clean once":                    {nil, Count, "clean 1 of 3", 1, true},
		"clean twice":                   {func(in *Input) { in.Memory.Written.Clean = 1 }, Count, "clean 2 of 3", 2, true},
		"clean often enough":            {func(in *Input) { in.Memory.Written.Clean = 2 }, Resume, "clean 3 of 3", 0, false},
		"not clean":                     {func(in *Input) { in.Memory.Written.Clean = 2; in.Cards["GPU-a"] = Seen{Memory: Dirty, Why: "in use"} }, Leave, "GPU 0 is not clean: in use", 0, true},
		"nobody knows":                  {func(in *Input) { in.Memory.Written.Clean = 2; in.Cards["GPU-a"] = Seen{Memory: Unknown, Why: "locked"} }, Leave, "locked", 2, true},
		"not looked at":                 {func(in *Input) { in.Memory.Written.Clean = 2; in.Cards = nil }, Leave, "not looked at", 2, true},
		"another card is clean":         {func(in *Input) { in.Cards = map[gpu.ID]Seen{"GPU-b": {Memory: Clean}} }, Leave, "not looked at", 0, true},
		"off":                           {func(in *Input) { in.Memory.Written.Clean = 2; in.Rules.Resume = false }, Leave, "drain.resume is off", 0, true},
		"the driver was reloaded":       {func(in *Input) { in.Memory.Written.Clean = 2; in.Epoch.Module = "m2" }, Leave, "reloaded", 0, true},
		"nobody knows the driver":       {func(in *Input) { in.Memory.Written.Clean = 2; in.Epoch.Driver = "" }, Leave, "reloaded", 0, true},
		"an end is at work":             {func(in *Input) { in.Memory.Written.Clean = 2; in.Node.Flags = []string{"IDLE", "COMPLETING", "DRAIN"} }, Leave, "COMPLETING", 3, true},
		"in a maintenance":              {func(in *Input) { in.Memory.Written.Clean = 2; in.Node.Flags = append(in.Node.Flags, "MAINT") }, Leave, "MAINT", 3, true},
		"it does not respond":           {func(in *Input) { in.Memory.Written.Clean = 2; in.Node.Silent = true }, Leave, "respond", 3, true},
		"an admin appended":             {rewritten(reason42 + "; swapped it"), Forget, "root changed our reason", 0, false},
		"an admin appended a blank":     {rewritten(reason42 + " "), Forget, "root changed our reason", 0, false},
		"an admin put words before it":  {rewritten("hw: " + reason42), Forget, "root changed our reason", 0, false},
		"an admin rewrote it":           {rewritten("disk swap"), Forget, "a reason of root's", 0, false},
		"an admin wrote the same again": {func(in *Input) { in.Node.At = ended.Add(30 * time.Minute) }, Forget, "wrote our reason again", 0, false},
		"another user wrote the same":   {func(in *Input) { in.Memory.Written.Clean = 2; in.Node.By = "alice(500)" }, Forget, "alice(500) wrote our reason again", 0, false},
		"nobody says who wrote it":      {func(in *Input) { in.Node.By = "" }, Count, "clean 1 of 3", 1, true},
		"root without a name":           {func(in *Input) { in.Node.By = "0" }, Count, "clean 1 of 3", 1, true},
		"an admin took it away":         {rewritten(""), Forget, "without a reason", 0, false},
		"an admin resumed":              {func(in *Input) { in.Node = Node{Flags: []string{"IDLE"}} }, Forget, "not drained any more", 0, false},
		"the hook wrote it just now":    {func(in *Input) { in.Now = after(2*time.Minute + time.Second); in.Node = Node{Flags: []string{"IDLE"}} }, Leave, "just been written", 0, true},
		"one cause is past telling": {func(in *Input) {
			in.Memory.Written.Clean, in.Memory.Written.Causes = 2, append(in.Memory.Written.Causes, Cause{Code: code.XidFatal, GPU: "GPU-a"})
		}, Leave, "no health check can tell that BKD-XIDFATAL is over", 0, true},
		"what is no cause is not clean": {func(in *Input) {
			in.Memory.Written.Clean = 2
			in.Cards["GPU-c"], in.Cards["GPU-b"] = Seen{Memory: Unknown, Why: "a job still has it"}, Seen{Memory: Dirty, Why: "in use", Given: true}
		}, Leave, "GPU GPU-b is not clean: in use", 0, true},
		"a card of no jobs is in use": {func(in *Input) {
			in.Memory.Written.Clean, in.Cards["GPU-b"] = 2, Seen{Memory: Dirty, Why: "in use"}
		}, Resume, "clean 3 of 3", 0, false},
		"a job has what is no cause": {func(in *Input) {
			in.Memory.Written.Clean, in.Cards["GPU-b"] = 2, Seen{Memory: Unknown, Why: "a job still has it"}
		}, Resume, "clean 3 of 3", 0, false},
		"a second card is not clean": {func(in *Input) {
			in.Memory.Written.Clean, in.Memory.Written.Causes = 2, append(in.Memory.Written.Causes, Cause{Code: code.Residue, GPU: "GPU-b"})
			in.Cards["GPU-b"] = Seen{Memory: Dirty, Why: "in use"}
		}, Leave, "GPU GPU-b is not clean", 0, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := Decide(stood(tt.edit))
			if d.Act != tt.act || !strings.Contains(d.Why, tt.why) || (d.After.Written != nil) != tt.ours {
				t.Fatalf("%s (%s), ours %v; want %s (%s), %v", d.Act, d.Why, d.After.Written != nil, tt.act, tt.why, tt.ours)
			}
			if tt.ours && d.After.Written.Clean != tt.clean {
				t.Errorf("clean %d times, want %d", d.After.Written.Clean, tt.clean)
			}
			if d.Act == Resume && (d.Intent.Written == nil || d.Intent.Written.Clean != 3 || d.Intent.Last.Act != Leave) {
				t.Errorf("before it is done %+v is remembered", d.Intent)
			}
		})
	}
}

// A hook that fails while our drain stands is a further cause, and what was counted is void.
func TestFurtherCause(t *testing.T) {
	in := stood(func(in *Input) {
		in.Memory.Written.Clean = 2
		in.Exits = Exits([]ledger.Run{orphaned(42, ended, time.Hour), lostAtStart(43, ended.Add(10*time.Minute), time.Hour+10*time.Minute)}, in.Now)
	})
	d := Decide(in)
	if w := d.After.Written; d.Act != Leave || len(w.Causes) != 2 || w.Clean != 0 || len(d.After.Settled) != 2 || w.Reason != reason42 {
		t.Errorf("%s (%s): %+v, settled %v", d.Act, d.Why, w, d.After.Settled)
	}
	if len(in.Memory.Written.Causes) != 1 {
		t.Error("what was handed in has changed")
	}
}

// What was counted is void with any further failure, and a cause of another life of the driver's is never verified.
func TestFurtherCauseOfTheSameKind(t *testing.T) {
	for name, module := range map[string]string{"same driver": "m1", "reloaded between": "m2"} {
		in := stood(func(in *Input) {
			in.Memory.Written.Clean = 2
			r := orphaned(44, ended.Add(10*time.Minute), time.Hour+10*time.Minute)
			r.Epoch.Module = module
			in.Exits = Exits([]ledger.Run{orphaned(42, ended, time.Hour), r}, in.Now)
		})
		d := Decide(in)
		same := module == "m1"
		if w := d.After.Written; (d.Act == Count) != same || same && w.Clean != 1 || !same && (w.Clean != 0 || w.Epoch.Same(epoch)) {
			t.Errorf("%s: %s (%s): %+v", name, d.Act, d.Why, w)
		}
	}
}

// One card that is not clean outweighs one that nobody knows of, in whatever order.
func TestWorstOfAll(t *testing.T) {
	a, b := Cause{Code: code.Orphan, GPU: "GPU-a"}, Cause{Code: code.Orphan, GPU: "GPU-b"}
	cards := map[gpu.ID]Seen{"GPU-b": {Memory: Dirty, Why: "in use"}}
	for _, causes := range [][]Cause{{a, b}, {b, a}} {
		if worst, why, _ := verify(causes, cards); worst != Dirty || !strings.Contains(why, "GPU-b") {
			t.Errorf("%+v: %s (%s)", causes, worst, why)
		}
	}
}

// What was intended and not done is tried again.
func TestWriteFailed(t *testing.T) {
	in := asked(nil)
	in.Memory = Decide(in).Intent
	in.Now = after(5 * time.Minute)
	if d := Decide(in); d.Act != Write || d.Reason != reason42 {
		t.Errorf("%s (%s)", d.Act, d.Why)
	}
	in.Node.Reason, in.Node.At = reason42, ended.Add(2*time.Minute+time.Second) // it was done after all
	if d := Decide(in); d.Act != Leave || d.After.Written == nil || len(d.After.Settled) != 1 {
		t.Errorf("done: %s (%s) %+v", d.Act, d.Why, d.After)
	}
}

func TestPending(t *testing.T) {
	in := asked(nil)
	wrote := Decide(in).After
	said := func(ago time.Duration, edit func(*Written)) Memory {
		m, w := wrote, *wrote.Written
		if edit != nil {
			edit(&w)
		}
		m.Written, m.Last = &w, &Said{Wall: in.Now.Wall.Add(-ago), Act: Leave}
		return m
	}
	past := func(w *Written) { w.Causes = []Cause{{Code: code.Lost, GPU: "GPU-a"}} }
	resumes := Rules{By: config.ReasonByHook, Resume: true}
	for name, tt := range map[string]struct {
		rules Rules
		m     Memory
		exits []Exit
		want  bool
	}{
		"nothing":                          {Rules{By: config.ReasonByHealthcheck}, Memory{}, nil, false},
		"an exit":                          {Rules{By: config.ReasonByHealthcheck}, Memory{}, in.Exits, true},
		"an exit, for none":                {Rules{By: config.ReasonByNone}, Memory{}, in.Exits, false},
		"a reason, just written":           {Rules{By: config.ReasonByHook}, wrote, nil, true},
		"a settled exit":                   {Rules{By: config.ReasonByHook}, Memory{Settled: wrote.Settled}, in.Exits, false},
		"a reason, and nothing to do":      {Rules{By: config.ReasonByHook}, said(5*time.Minute, nil), nil, false},
		"a reason, after an hour":          {Rules{By: config.ReasonByHook}, said(time.Hour, nil), nil, true},
		"a reason, and the clock stepped":  {Rules{By: config.ReasonByHook}, said(-2*time.Hour, nil), nil, true},
		"a reason, and a further exit":     {Rules{By: config.ReasonByHook}, Memory{Written: wrote.Written, Last: said(0, nil).Last}, in.Exits, true},
		"a reason that may be resumed":     {resumes, said(5*time.Minute, nil), nil, true},
		"a reason that no check can end":   {resumes, said(5*time.Minute, past), nil, false},
		"one of which nobody knows when":   {resumes, said(5*time.Minute, func(w *Written) { w.Epoch = gpu.Epoch{} }), nil, false},
		"one that no check ends, long ago": {resumes, said(2*time.Hour, past), nil, true},
	} {
		if got := Pending(tt.rules, tt.m, tt.exits, in.Now.Wall); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if Conf(Memory{}, in.Exits) != "/etc/slurm/slurm.conf" || Conf(wrote, nil) != "/etc/slurm/slurm.conf" || Conf(Memory{}, nil) != "" {
		t.Error("Slurm's configuration is not handed on")
	}
}

// A reboot ends what is remembered; an unknown boot id does not.
func TestHere(t *testing.T) {
	m := Decide(asked(nil)).After
	if m.Here(Moment{ID: "b1"}).Written == nil || m.Here(Moment{}).Written == nil || m.Here(Moment{ID: "b2"}).Written != nil {
		t.Error("a reason lasts as long as its boot")
	}
}

func TestExits(t *testing.T) {
	now := after(2 * time.Minute)
	ofBoot := func(boot string, edit func(*ledger.Run)) []ledger.Run {
		r := orphaned(42, ended, time.Hour)
		r.Epoch.Boot = boot
		if edit != nil {
			edit(&r)
		}
		return []ledger.Run{r}
	}
	for name, tt := range map[string]struct {
		runs []ledger.Run
		want int
	}{
		"this boot":                           {ofBoot("b1", nil), 1},
		"another boot":                        {ofBoot("b2", nil), 0},
		"unknown boot, the clocks agree":      {ofBoot("", nil), 1},
		"unknown boot, began at another time": {ofBoot("", func(r *ledger.Run) { r.Ends[0].At -= time.Minute }), 0},
		"unknown boot, in the future":         {ofBoot("", func(r *ledger.Run) { r.Ends[0].At = now.Boot + time.Second; r.Ends[0].Wall = now.Wall }), 0},
		"exit 0":                              {ofBoot("b1", func(r *ledger.Run) { r.Ends[0].Verdict.Exit = 0 }), 0},
		"both ends": {ofBoot("b1", func(r *ledger.Run) {
			r.Start = lostAtStart(42, ended.Add(-time.Minute), time.Hour-time.Minute).Start
		}), 2},
	} {
		if got := Exits(tt.runs, now); len(got) != tt.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// Of several processes on several cards the reason names the one that holds most, among those that drained.
func TestReasonNamesTheLargest(t *testing.T) {
	found := []finding.Finding{about(code.Orphan, 0, 9<<30, 1), about(code.Orphan, 1, 1<<30, 2), about(code.Orphan, 2, 4<<30, 3), about(code.Residue, 3, 8<<30, 0)}
	drains := policy.Judged{Action: config.Drain}
	v := policy.Verdict{Action: config.Drain, Exit: 10, Code: code.Orphan, Judged: []policy.Judged{{Action: config.Warn}, drains, drains, drains}}
	x := FromEnd(ledger.Run{Job: slurm.Job{ID: 42}}, slurm.Epilog, ledger.End{Findings: found, Verdict: v})
	if x.Reason != "BKD-ORPHAN gpu=2 4096MiB pid=3 job=42 epilog; see: bookend show 42" {
		t.Errorf("%q for %+v", x.Reason, x.Causes)
	}
}

// A hook that was stopped drained for what it had found by then, of which its exit code is left, and is never verified.
func TestStoppedHook(t *testing.T) {
	stopped := func(exit int) *Exit {
		return FromEnd(ledger.Run{Job: slurm.Job{ID: 42}}, slurm.Epilog, ledger.End{
			Findings: []finding.Finding{{Code: code.Deadline}}, Verdict: policy.Verdict{Exit: exit, Code: code.Deadline},
		})
	}
	for exit, want := range map[int]string{10: "ORPHAN", code.ExitOther: "DEADLINE", code.Exit(code.Deadline): "DEADLINE", 2: "DEADLINE"} {
		if x := stopped(exit); x == nil || x.Reason != "BKD-"+want+" job=42 epilog; see: bookend show 42" || len(x.Causes) != 1 {
			t.Fatalf("exit %d: %+v", exit, x)
		}
	}
	x := stopped(10)
	if _, _, never := verify(x.Causes, nil); !never {
		t.Error("a stopped hook's drain could be resumed")
	}
	if x := FromEnd(ledger.Run{Job: slurm.Job{ID: 42}}, slurm.Epilog, ledger.End{Verdict: policy.Verdict{Exit: 10, Code: "x [root@now]"}}); x.Reason != "" {
		t.Errorf("a record that is not whole gives the reason %q", x.Reason)
	}
	if _, _, never := verify(nil, nil); !never {
		t.Error("a drain without a cause could be resumed")
	}
}

// Health findings go by what the driver says of the card.
func TestVerifiedByHealth(t *testing.T) {
	causes := []Cause{{Code: code.Recovery, GPU: "GPU-a"}}
	for name, tt := range map[string]struct {
		facts []gpu.Fact
		want  Answer
	}{
		"none":           {[]gpu.Fact{{Code: gpu.RecoveryAction, Value: "none"}}, Clean},
		"reset":          {[]gpu.Fact{{Code: gpu.RecoveryAction, Value: "reset"}}, Dirty},
		"not to be read": {[]gpu.Fact{{Code: gpu.RecoveryAction, Unknown: "no permission"}}, Unknown},
		"not told":       {[]gpu.Fact{{Code: gpu.RemapPending, Value: "no"}}, Unknown},
	} {
		got, why, never := verify(causes, map[gpu.ID]Seen{"GPU-a": {Memory: Clean, Health: gpu.Health{Facts: tt.facts}}})
		if got != tt.want || never || (why == "") != (got == Clean) {
			t.Errorf("%s: %s (%s), %v", name, got, why, never)
		}
	}
	for _, e := range code.All() {
		if Verifiable(e.Code) && e.Scope != code.Card {
			t.Errorf("%s is not about a card", e.Code)
		}
	}
}

func TestAtHook(t *testing.T) {
	own := asked(nil).Exits[0]
	free := Node{Flags: []string{"IDLE", "COMPLETING"}}
	ours := Node{Flags: []string{"IDLE", "DRAIN"}, Reason: reason42, At: ended}
	wrote := AtHook(Input{Now: after(0), Node: free, Writer: ByHook}, own).After
	for name, tt := range map[string]struct {
		m    Memory
		n    Node
		want Act
	}{
		"free":                       {Memory{}, free, Write},
		"drained by an admin":        {Memory{}, Node{Flags: []string{"IDLE", "DRAIN"}, Reason: "disk swap", By: "root"}, Leave},
		"drained without a reason":   {Memory{}, Node{Flags: []string{"IDLE", "DRAIN"}}, Leave},
		"down":                       {Memory{}, Node{Flags: []string{"DOWN"}}, Leave},
		"an admin's remark":          {Memory{}, Node{Flags: []string{"IDLE"}, Reason: "look at me"}, Leave},
		"Slurm's, of another drain":  {Memory{}, Node{Flags: []string{"MIXED", "COMPLETING"}, Reason: EpilogError, By: "root"}, Write},
		"Slurm's, of a killed task":  {Memory{}, Node{Flags: []string{"IDLE"}, Reason: "Kill task failed (JobId=7 StepId=0)"}, Write},
		"an admin's, that begins so": {Memory{}, Node{Flags: []string{"IDLE"}, Reason: "Kill task failed - vendor RMA 123, do not touch"}, Leave},
		"an admin's, that ends so":   {Memory{}, Node{Flags: []string{"IDLE"}, Reason: "Kill task failed (JobId=7 again, see ticket)"}, Leave},
		"Slurm's, of old":            {Memory{}, Node{Flags: []string{"IDLE"}, Reason: "Kill task failed"}, Write},
		"Slurm's, drained":           {Memory{}, Node{Flags: []string{"IDLE", "DRAIN"}, Reason: "Kill task failed (JobId=7 StepId=0)"}, Leave},
		"what we left of a drain":    {Memory{}, Node{Flags: []string{"IDLE"}, Reason: reason43, By: "root"}, Write},
		"drained by us":              {wrote, ours, Add},
		"in our words, not by us":    {Memory{}, ours, Leave},
		"an admin appended to ours":  {wrote, Node{Flags: ours.Flags, Reason: reason42 + "!", At: ended}, Leave},
	} {
		d := AtHook(Input{Now: after(time.Second), Memory: tt.m, Node: tt.n, Writer: ByHook}, own)
		if d.Act != tt.want || d.Why == "" {
			t.Errorf("%s: %s (%s), want %s", name, d.Act, d.Why, tt.want)
		}
	}
	if wrote.Written == nil || wrote.Written.By != ByHook || wrote.Written.Reason != reason42 || wrote.Settled != nil {
		t.Errorf("remembered is %+v", wrote)
	}
}

// What a hook says of why it leaves a reason alone is true of a node that is not drained, too.
func TestAtHookSaysWhy(t *testing.T) {
	node := Node{Flags: []string{"IDLE"}, Reason: "look at me", By: "jd", At: ended}
	if d := AtHook(Input{Now: after(0), Node: node}, asked(nil).Exits[0]); !strings.Contains(d.Why, "is not drained, and has a reason of jd's") {
		t.Errorf("%s: %s", d.Act, d.Why)
	}
}

// Slurm may keep the text of a drain that is over, and show it for the next one. Once it was seen on a node that was not
// drained it is nobody's; an admin's words are an admin's all the same.
func TestKeptText(t *testing.T) {
	const failed = "Kill task failed (JobId=7 StepId=0)"
	old, tooLong := ended.Add(-2*time.Hour), failed+strings.Repeat("x", MaxReason)
	over := func(reason string, at time.Time, flags ...string) Memory {
		resumed := asked(func(in *Input) {
			in.Exits, in.Now = nil, after(-time.Hour)
			in.Node = Node{Flags: append(flags, "IDLE"), Reason: reason, By: "root", At: at}
		})
		return Decide(resumed).After
	}
	for name, tt := range map[string]struct {
		seen Memory
		edit func(*Input)
		act  Act
	}{
		"ours":                         {over(reason43, old), nil, Write},
		"Slurm's for an epilog":        {over(EpilogError, old), func(in *Input) { in.Node.Reason = EpilogError }, Write},
		"Slurm's for a prolog":         {over(PrologError, old), func(in *Input) { in.Node.Reason = PrologError }, Write},
		"Slurm's for a task":           {over(failed, old), func(in *Input) { in.Node.Reason = failed }, Write},
		"no form of Slurm's":           {over(tooLong, old), func(in *Input) { in.Node.Reason = tooLong }, Leave},
		"seen on a node that was down": {over(reason43, old, "DOWN"), nil, Leave},
		"an admin's, in the memory":    {Memory{Over: &Over{Reason: "disk swap", At: old}}, func(in *Input) { in.Node.Reason = "disk swap" }, Leave},
		"an admin's":                   {over("disk swap", old), func(in *Input) { in.Node.Reason = "disk swap" }, Leave},
		"ours with an admin's words":   {over(reason43+"; jd", old), func(in *Input) { in.Node.Reason = reason43 + "; jd" }, Leave},
		"an admin's, after it":         {over(reason43, old), func(in *Input) { in.Node.Reason = "disk swap" }, Leave},
		"written anew":                 {over(reason43, old), func(in *Input) { in.Node.At = ended }, Leave},
		"never seen without its drain": {Memory{}, nil, Leave},
		"a hook of before":             {over(reason43, old), func(in *Input) { in.Exits[0].Wall = ended.Add(-time.Hour - time.Minute) }, Leave},
		"no hook of ours failed":       {over(reason43, old), func(in *Input) { in.Exits = nil }, Leave},
		"down":                         {over(reason43, old), func(in *Input) { in.Node.Flags = []string{"DOWN", "DRAIN"} }, Leave},
	} {
		t.Run(name, func(t *testing.T) {
			in := asked(func(in *Input) {
				in.Rules.Resume, in.Memory, in.Node.Reason, in.Node.At = true, tt.seen, reason43, old
				if tt.edit != nil {
					tt.edit(in)
				}
			})
			d := Decide(in)
			if d.Act != tt.act || (d.Act == Write) != (d.Reason == reason42) {
				t.Fatalf("%s %q (%s), want %s", d.Act, d.Reason, d.Why, tt.act)
			}
			if d.Act != Write {
				return
			}
			if d.After.Over != nil || d.Intent.Over == nil || len(d.After.Settled) != 1 {
				t.Errorf("remembered is %+v, before it is done %+v", d.After, d.Intent)
			}
			in.Memory, in.Now = d.Intent, after(5*time.Minute) // it could not be done
			if d := Decide(in); d.Act != Write {
				t.Errorf("the next check: %s (%s)", d.Act, d.Why)
			}
			in.Memory, in.Node.Reason, in.Node.At = d.After, reason42, in.Now.Wall
			in.Memory.Written.Wall, in.Cards = in.Now.Wall, map[gpu.ID]Seen{"GPU-a": {Memory: Clean}}
			if d := Decide(in); d.Act != Leave || d.After.Written == nil {
				t.Errorf("what else it was drained for meanwhile left no trace, and then: %s (%s)", d.Act, d.Why)
			}
		})
	}
}

// What the health check itself resumed is over as well, though Slurm may go on showing it.
func TestKeptTextOfOurs(t *testing.T) {
	in := stood(func(in *Input) { in.Memory.Written.Clean = 2 })
	d := Decide(in)
	if o := d.After.Over; d.Act != Resume || o == nil || o.Reason != reason42 || !o.At.Equal(in.Node.At) || d.Intent.Over != nil {
		t.Fatalf("%s: %+v", d.Act, d.After)
	}
	in.Memory, in.Now = d.After, after(2*time.Hour)
	in.Exits = Exits([]ledger.Run{orphaned(42, ended, time.Hour), lostAtStart(43, ended.Add(2*time.Hour-time.Minute), 3*time.Hour-time.Minute)}, in.Now)
	if d := Decide(in); d.Act != Write || d.Reason != reason43 {
		t.Errorf("%s %q (%s)", d.Act, d.Reason, d.Why)
	}
	in.Node.Reason, in.Node.At = EpilogError, ended // Slurm has a new text: nothing is remembered of the old one
	if d := Decide(in); d.After.Over != nil {
		t.Errorf("%+v", d.After.Over)
	}
}

// More causes than are remembered are never verified.
func TestTooManyCauses(t *testing.T) {
	x := Exit{Epoch: epoch}
	for i := range MaxCauses + 1 {
		x.Causes = append(x.Causes, Cause{Code: code.Orphan, GPU: gpu.ID(strings.Repeat("x", i+1))})
	}
	w := Written{Epoch: epoch}.with([]Exit{x})
	if len(w.Causes) != MaxCauses || w.Epoch.Same(epoch) {
		t.Errorf("%d causes of epoch %v", len(w.Causes), w.Epoch)
	}
}

func TestWords(t *testing.T) {
	m := Decide(asked(nil)).After
	if got := string(m.Words()); !strings.Contains(got, "reason written at 2026-11-21") || !strings.Contains(got, reason42) {
		t.Errorf("%q", got)
	}
	m.Last = nil
	if got := string(m.Words()); !strings.Contains(got, "health check") || (Memory{}).Words() != "" {
		t.Errorf("%q", got)
	}
}

// What an earlier release remembered of an admin's text that begins as Slurm's does can be read, and is the admin's all the same.
func TestOverOfAnEarlierRelease(t *testing.T) {
	o := Over{Reason: "Kill task failed - vendor RMA 123", At: ended}
	if !o.Valid() || o.is(Node{Reason: o.Reason, At: o.At}) {
		t.Errorf("valid %v, Slurm's %v", o.Valid(), o.is(Node{Reason: o.Reason, At: o.At}))
	}
}
