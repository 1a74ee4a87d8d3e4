package faults

import (
	"testing"
)

// versions are what Slurm tells of which run of a job id a hook is for: two runs each, the second later.
var versions = map[string][2][]string{
	"22.05": {nil, nil},
	"23.02": {{"SLURM_JOB_START_TIME", "1790000000"}, {"SLURM_JOB_START_TIME", "1790009000"}},
	"25.11": {{"SLURM_JOB_SLUID", "sCHNM7Y8WBK900"}, {"SLURM_JOB_SLUID", "sCHNM7Y8WBK901"}},
}

// A second epilog measures anew: the first verdict was about what is gone by now.
func TestEpilogTwice(t *testing.T) {
	n := newNode(t, "enforce")
	n.clean(prolog, bystanding())
	others, path := n.record(), n.home()
	j := newJob().With("SLURM_JOB_STDOUT", path)
	n.clean(prolog, j)
	orphan := n.leftover()
	n.exits(10, epilog, j)
	said := n.get(path)
	must(t, orphan.Kill())
	n.exits(0, epilog, j)
	r := n.run(100)
	if len(r.Ends) != 2 || codes(r.Ends[0].Findings) != "BKD-ORPHAN" || codes(r.Ends[1].Findings) != "BKD-AGAIN" {
		t.Errorf("%+v", r.Ends)
	}
	if again := n.get(path); again != said {
		t.Errorf("appended again: %q", again)
	}
	n.unharmed(others)
}

// Hooks of different jobs overlap on a node, and nothing of any is lost; several of one job make one record, whole,
// whoever came first.
func TestCrowd(t *testing.T) {
	const count = 24
	n := newNode(t, "enforce")
	jobs := jobsFrom(1000, count)
	for i := range jobs {
		jobs[i] = jobs[i].On([]string{"0", "1"}[i%2])
	}
	same := []job{newJob().With(versions["25.11"][0]...).On("1")}
	for range 5 {
		same = append(same, same[0])
	}
	for _, h := range hooks {
		n.together(h, jobs, nil)
		n.together(h, same, nil)
	}
	for i := range jobs {
		if r := n.run(1000 + i); r.Start == nil || len(r.Ends) != 1 || len(r.Ends[0].Findings) != 0 {
			t.Errorf("job %d: %+v", 1000+i, r)
		}
	}
	if r := n.run(100); r.Start == nil || len(r.Start.Findings) != 0 || len(r.Ends) < 2 || len(r.Ends) > 4 {
		t.Errorf("%+v", r)
	}
	if left := n.halfWritten(); len(left) > 0 {
		t.Errorf("half written: %q", left)
	}
}

// A job that was requeued: the prolog of its second run, on 22.05 with the same id, begins a record of its own. Where
// that is ended while it looks, what the first run's user was told is not true of it.
func TestRequeue(t *testing.T) {
	n := newNode(t, "enforce")
	second := newJob().With("SLURM_JOB_RESTART_COUNT", "1")
	n.clean(prolog, newJob())
	n.clean(prolog, second)
	n.clean(epilog, newJob().With("SLURM_JOB_RESTART_COUNT", "2"))
	n.clean(prolog, numbered(101))
	n.leftover()
	n.exits(10, epilog, numbered(101)) // the run that was requeued no longer counts as live

	n = newNode(t, "enforce")
	n.job(100)
	n.set("on."+memoryCall, "hang-hard")
	p := n.start(prolog, second)
	if o := p.terminate(p.child("backend")); o.exit != 0 {
		t.Error(o)
	}
	if said := n.task(taskProlog, second); said.exit != 0 || said.output != "" {
		t.Errorf("the second run: %v", said)
	}
}
