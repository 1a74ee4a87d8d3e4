package hook

import (
	"testing"

	"bookend/internal/judge"
	"bookend/internal/record"
	"bookend/test/must"
)

// A process that another finding names is not named again.
func TestNamedProcess(t *testing.T) {
	holder := record.Holder{Process: record.Process{PID: 4711}}
	for name, f := range map[string]record.Finding{"holder": {Holder: &holder}, "candidate": {Candidates: []record.Holder{holder}}} {
		must.Be(t, "the "+name, isNamed(4711, []record.Finding{{}, f}), true)
		must.Be(t, "not the "+name, isNamed(4712, []record.Finding{{}, f}), false)
	}
}

// What began in a job's time can be known at the job's one end, in the boot of its start, and not if components share its id.
func TestHasSpan(t *testing.T) {
	for name, tt := range map[string]struct {
		edit func(*judge.Case)
		want bool
	}{
		"its end":                        {func(*judge.Case) {}, true},
		"no start":                       {func(c *judge.Case) { c.Past.Run.Start = nil }, false},
		"another end is at work":         {func(c *judge.Case) { c.Past.Turn = judge.Concurrent }, false},
		"of a heterogeneous job":         {func(c *judge.Case) { c.Job.HetJobID = 41 }, false},
		"the node booted since it began": {func(c *judge.Case) { c.Seen.Epoch.Boot = "b" }, false},
	} {
		var c judge.Case
		c.Past.Run.Start, c.Past.Run.Epoch.Boot, c.Seen.Epoch.Boot = &record.End{}, "a", "a"
		tt.edit(&c)
		must.Be(t, name, hasSpan(c), tt.want)
	}
}
