package diagnosis

import (
	"strings"
	"testing"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/oom"
	"bookend/internal/settle"
)

// The output of a job of several nodes has the messages of all: what they say of the job itself holds wherever it was,
// and nothing on this node's cards is weighed against them.
func TestSeveralNodesShareAnOutput(t *testing.T) {
	two := func(f ...func(*Input)) func(*Input) {
		return both(append(f, func(in *Input) { in.Job.NodeList = "n[1-2]" })...)
	}
	left := func(in *Input) { in.dirtyStart(there(code.Dirty, 100.5, 0, before)) }
	judged(t, []row{
		{"its own use", two(saying(itself)), Own, Yes, "used 138.8 of 139.8 GiB, then requested 20.0 GiB more"},
		{"its pool", two(saying(pooled)), Pool, Yes, "unallocated"},
		{"would fit but for another", two(saying(beside)), Own, No, "asked fit in"},
		{"no one else when it failed", two(saying(itself)), Others, Unknown, "known of n1 alone"},
		{"somebody when it failed", two(saying(beside)), Others, Unknown, "held by something"},
		{"clean here", two(saying(beside)), Leftover, Unknown, "known of n1 alone"},
		{"well here", two(saying(jax(20))), Fault, Unknown, "known of n1 alone"},
		{"well here, and memory ran out", two(saying(itself)), Fault, Unknown, "known of n1 alone"},
		{"in one block here", two(saying(jax(20))), Pieces, Unknown, "known of n1 alone"},
		{"in pieces here", two(func(in *Input) {
			saying(jax(120))(in)
			in.Probes[0].Result, in.Probes[0].Largest = gpu.ProbeGap, gib(100)
		}), Pieces, Unknown, "not known"},
		{"little was free there", two(saying(itself)), Pieces, Unknown, "only 921 MiB free"},
		{"left here, somebody there", two(left, saying(beside)), Leftover, Unknown, "on which GPU it failed is not known"},
		{"seen here", two(saying(beside), seeing(seen(500, 5150, 30, false))), Others, Unknown, "GiB held"},
		{"seen here, no figures", two(saying(jax(20)), seeing(seen(500, 5150, 30, false))), Others, Unknown, "known of n1 alone"},
		{"PyTorch lists a process of that number", two(saying(listing(5150, 100.4)), seeing(seen(500, 5150, 30, false))), Others, Unknown, "held by something"},
		{"several here", two(saying(jax(20)), recording(Recorded{Device: gpu0, Own: 120 * gibi, Together: 2})), Processes, Unknown, "2 processes with"},
		{"a full GPU here", two(saying(jax(20)), seeing(seen(500, 900, 133, true))), Own, Unknown, "133.0 of 139.8"},
		{"no start on an empty GPU here", two(saying(says(oom.Init, oom.PyTorch))), Limits, Unknown, "why is not known"},
		{"no start under a limit", two(saying(says(oom.Init, oom.PyTorch)), limited(4)), Limits, Yes, "ulimit -v is 4.0 GiB"},
		{"host memory", two(saying(says(oom.Host, oom.Slurm))), Limits, Yes, "not the GPU's"},
		{"failed without a word", two(func(*Input) {}), Leftover, Unknown, "known of n1 alone"},
		{"a part of several", func(in *Input) { in.Job.HetJobID = 42; saying(beside)(in) }, Leftover, Unknown, "known of n1 alone"},
	})
	in := well(1)
	in.Job.NodeList, in.Messages = "n[1-2]", []oom.Message{beside}
	for _, s := range Why(in).Try {
		if strings.Contains(s, "exclude") {
			t.Errorf("no one knows that it was n1: %q", s)
		}
	}
}

// On one node a message without a card is weighed against none; what it lists may place it.
func TestUnplaced(t *testing.T) {
	world := func(m oom.Message, f ...finding.Finding) Input {
		in := well(2)
		one := 1
		m.GPU, in.Messages = &one, []oom.Message{m}
		in.dirtyStart(f...)
		in.Start.Curves[gpu0] = settle.Curve{State: settle.Flat}
		return in
	}
	many := itself
	many.Count = 2
	for name, tt := range map[string]struct {
		in    Input
		cause Name
		want  Answer
		says  string
	}{
		"beside somebody":             {world(beside, there(code.Dirty, 100.5, 5150, nil)), Others, Unknown, "on which GPU it failed is not known"},
		"left by an earlier job":      {world(beside, there(code.Dirty, 100.5, 0, before)), Leftover, Unknown, "on which GPU"},
		"by itself":                   {world(itself, there(code.Dirty, 100.5, 0, before)), Leftover, No, "not decisive"},
		"several, the last by itself": {world(many, there(code.Dirty, 100.5, 0, before)), Leftover, Unknown, "on which GPU"},
	} {
		d := Why(tt.in)
		if c := d.Cause(tt.cause); c.Answer != tt.want || !strings.Contains(c.Evidence, tt.says) {
			t.Errorf("%s: %+v", name, c)
		}
		whole(t, d)
	}
	if in := world(beside, there(code.Dirty, 100.5, 0, before)); !strings.Contains(Why(in).Headline, "something unknown held 100.5 GiB") {
		t.Errorf("%q", Why(in).Headline)
	}
}
