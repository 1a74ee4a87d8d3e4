package drain

import (
	"strings"
	"testing"
	"time"

	"bookend/internal/gpu"
)

func TestAtHook(t *testing.T) {
	own := asked().Exits[0]
	in := func(reason, by string, flags ...string) Node {
		return Node{Flags: flags, Reason: reason, By: by, At: ended}
	}
	const killed = "Kill task failed"
	wrote := AtHook(Input{Now: after(0), Node: in("", "", "IDLE", "COMPLETING"), Writer: ByHook}, own).After
	for name, tt := range map[string]struct {
		m    Memory
		n    Node
		want Act
		why  string
	}{
		"free":                       {Memory{}, in("", "", "IDLE", "COMPLETING"), Write, reason42},
		"drained by an admin":        {Memory{}, in("disk swap", "root", "IDLE", "DRAIN"), Leave, "of root's"},
		"drained without a reason":   {Memory{}, in("", "", "IDLE", "DRAIN"), Leave, "without a reason"},
		"down":                       {Memory{}, in("", "", "DOWN"), Leave, "DOWN"},
		"an admin's remark":          {Memory{}, in("look at me", "jd", "IDLE"), Leave, "has a reason of jd's"},
		"Slurm's, of another drain":  {Memory{}, in(EpilogError, "root", "MIXED", "COMPLETING"), Write, ""},
		"Slurm's, of a killed task":  {Memory{}, in(killed+" (JobId=7 StepId=0)", "", "IDLE"), Write, ""},
		"an admin's, that begins so": {Memory{}, in(killed+" - vendor RMA 123, do not touch", "", "IDLE"), Leave, ""},
		"an admin's, that ends so":   {Memory{}, in(killed+" (JobId=7 again, see ticket)", "", "IDLE"), Leave, ""},
		"Slurm's, of old":            {Memory{}, in(killed, "", "IDLE"), Write, ""},
		"Slurm's, drained":           {Memory{}, in(killed+" (JobId=7 StepId=0)", "", "IDLE", "DRAIN"), Leave, ""},
		"what we left of a drain":    {Memory{}, in(reason43, "root", "IDLE"), Write, ""},
		"drained by us":              {wrote, in(reason42, "", "IDLE", "DRAIN"), Add, reason42},
		"in our words, not by us":    {Memory{}, in(reason42, "", "IDLE", "DRAIN"), Leave, ""},
		"an admin appended to ours":  {wrote, in(reason42+"!", "", "IDLE", "DRAIN"), Leave, ""},
	} {
		d := AtHook(Input{Now: after(time.Second), Memory: tt.m, Node: tt.n, Writer: ByHook}, own)
		if d.Act != tt.want || d.Why == "" || !strings.Contains(d.Why, tt.why) {
			t.Errorf("%s: %s (%s), want %s (%s)", name, d.Act, d.Why, tt.want, tt.why)
		}
	}
	if w := wrote.Written; w == nil || w.By != ByHook || w.Reason != reason42 || wrote.Settled != nil {
		t.Errorf("remembered is %+v", wrote)
	}
}

// Slurm may keep the text of a drain that is over, and show it for the next one. Once it was seen on a node that was
// not drained it is nobody's; an admin's words are an admin's all the same.
func TestKeptText(t *testing.T) {
	const failed, admins = "Kill task failed (JobId=7 StepId=0)", "disk swap"
	old, tooLong := ended.Add(-2*time.Hour), failed+strings.Repeat("x", MaxReason)
	over := func(reason string, flags ...string) Memory {
		return Decide(asked(func(in *Input) {
			in.Exits, in.Now = nil, after(-time.Hour)
			in.Node = Node{Flags: append(flags, "IDLE"), Reason: reason, By: "root", At: old}
		})).After
	}
	for name, tt := range map[string]struct {
		seen Memory
		edit edit
		act  Act
	}{
		"ours":                         {over(reason43), nil, Write},
		"Slurm's for an epilog":        {over(EpilogError), reason(EpilogError), Write},
		"Slurm's for a prolog":         {over(PrologError), reason(PrologError), Write},
		"Slurm's for a task":           {over(failed), reason(failed), Write},
		"no form of Slurm's":           {over(tooLong), reason(tooLong), Leave},
		"seen on a node that was down": {over(reason43, "DOWN"), nil, Leave},
		"an admin's, in the memory":    {Memory{Over: &Over{Reason: admins, At: old}}, reason(admins), Leave},
		"an admin's":                   {over(admins), reason(admins), Leave},
		"ours with an admin's words":   {over(reason43 + "; jd"), reason(reason43 + "; jd"), Leave},
		"an admin's, after it":         {over(reason43), reason(admins), Leave},
		"written anew":                 {over(reason43), stamped(0), Leave},
		"never seen without its drain": {Memory{}, nil, Leave},
		"a hook of before":             {over(reason43), exits(orphaned(42, -61*time.Minute)), Leave},
		"no hook of ours failed":       {over(reason43), exits(), Leave},
		"down":                         {over(reason43), flags("DOWN", "DRAIN"), Leave},
	} {
		in := asked(func(in *Input) {
			in.Rules.Resume, in.Memory, in.Node.Reason, in.Node.At = true, tt.seen, reason43, old
		}, tt.edit)
		d := Decide(in)
		if d.Act != tt.act || (d.Act == Write) != (d.Reason == reason42) {
			t.Errorf("%s: %s %q (%s), want %s", name, d.Act, d.Reason, d.Why, tt.act)
		}
		if d.Act != Write {
			continue
		}
		if d.After.Over != nil || d.Intent.Over == nil || len(d.After.Settled) != 1 {
			t.Errorf("%s: remembered is %+v, before it is done %+v", name, d.After, d.Intent)
		}
		in.Memory, in.Now = d.Intent, after(5*time.Minute) // it could not be done
		if d := Decide(in); d.Act != Write {
			t.Errorf("%s: the next check: %s (%s)", name, d.Act, d.Why)
		}
		in.Memory, in.Node.Reason, in.Node.At = d.After, reason42, in.Now.Wall
		in.Memory.Written.Wall, in.Cards = in.Now.Wall, map[gpu.ID]Seen{"GPU-a": {Memory: Clean}}
		if d := Decide(in); d.Act != Leave || d.After.Written == nil {
			t.Errorf("%s: what else it was drained for left no trace, and then: %s (%s)", name, d.Act, d.Why)
		}
	}
}

// What the health check itself resumed is over as well, though Slurm may go on showing it.
func TestKeptTextOfOurs(t *testing.T) {
	in := stood(times(2))
	d := Decide(in)
	o := d.After.Over
	if d.Act != Resume || o == nil || o.Reason != reason42 || !o.At.Equal(in.Node.At) || d.Intent.Over != nil {
		t.Fatalf("%s: %+v", d.Act, d.After)
	}
	in.Memory, in.Now = d.After, after(2*time.Hour)
	exits(orphaned(42, 0), lostAtStart(43, 2*time.Hour-time.Minute))(&in)
	if d := Decide(in); d.Act != Write || d.Reason != reason43 {
		t.Errorf("%s %q (%s), want %s %q", d.Act, d.Reason, d.Why, Write, reason43)
	}
	in.Node.Reason, in.Node.At = EpilogError, ended // Slurm has a new text: nothing is remembered of the old one
	if d := Decide(in); d.After.Over != nil {
		t.Errorf("remembered is %+v, want nothing", d.After.Over)
	}
}
