package maintenance

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"bookend/internal/condition"
	"bookend/internal/node"
	"bookend/internal/record"
	"bookend/internal/slurmcmd"
	"bookend/internal/state"
)

// OpenToJobs returns why a job may get a GPU, empty if none can: the node is drained and idle, or the GPU quarantined.
func OpenToJobs(a *node.Access, s slurmcmd.Scontrol, card record.Assigned) (why string, idle bool) {
	now, err := s.Node(a.Job.Node)
	is := strings.Join(now.Flags, "+")
	idle = now.Vacant()
	now.Silent = false // an earlier job may still be there, but none begins
	switch {
	case now.Vacant(), is == "DOWN+DRAIN", isQuarantined(a, s, card):
		return "", idle
	case err != nil:
		is = err.Error()
	}
	const remedy = "drain the node and wait for its jobs, or bookend quarantine"
	return fmt.Sprintf("a job may get GPU %d (node %s): %s %[1]d", card.Index, is, remedy), false
}

func isQuarantined(a *node.Access, s slurmcmd.Scontrol, card record.Assigned) bool {
	is := func(q state.Quarantine) bool { return q.GPU == card.Index && s.Runs(q.Job, a.Job.Node) }
	return card.Index >= 0 && slices.ContainsFunc(state.Quarantines.Peek(a.Store), is)
}

// open is OpenToJobs for a reset: nor may a job have the GPU already.
func (r *Reset) open() (why string, idle bool) {
	a, card := r.Access, r.Facts.Card
	why, idle = OpenToJobs(a, r.Slurm, card)
	job := condition.Holding(r.Runs, card.Device, node.ReadEpoch(a.Config.Paths))
	if job != "" && (!idle || r.byCheck) {
		why = cmp.Or(why, fmt.Sprintf("job %s has it: wait for its end", job))
	}
	if nodes, err := state.Nodes(a.Config.Paths.Run, ""); len(nodes) > 1 || err != nil {
		why = cmp.Or(why, "several nodes of Slurm share the GPUs of this host: a job of another may have it")
	}
	if why == "" && r.byCheck && !r.isOurs() {
		why = "the node's drain is not Bookend's, or not for this GPU alone, or the node does not respond"
	}
	return why, idle
}

// isOurs reports whether the node's drain is Bookend's, and for this GPU alone.
func (r *Reset) isOurs() bool {
	memory, err := r.Access.Store.Drain()
	now, unread := r.Slurm.Node(r.Access.Job.Node)
	return err == nil && unread == nil && memory.OnlyFor(r.Facts.Card.Device.ID, r.Runs, r.Facts.Boot)(now)
}

// endDrain ends the node's drain if that is ours and for this GPU alone, after a reset that is proven.
func (r *Reset) endDrain() {
	if isQuarantined(r.Access, r.Slurm, r.Facts.Card) {
		r.Report.Next = append(r.Report.Next, fmt.Sprintf("bookend release %d", r.Facts.Card.Index))
	}
	id := r.Report.GPU
	if r.Report.Proven != record.Yes {
		id = "" // no drain is for it
	}
	memory, _ := r.Access.Store.Drain()
	only := memory.OnlyFor(id, r.Runs, r.Facts.Boot)
	r.Report.Next = append(r.Report.Next, r.Slurm.ResumeIf(r.Access.Job.Node, only)...)
}

// SampleAll asks the driver about all GPUs, unless a child is stuck in it. One that gets stuck now goes on record.
func SampleAll(a *node.Access, limit time.Duration, identity bool) node.Glance {
	if a.Store == nil {
		return node.SampleAll(a.Env, a.Config, limit, identity)
	}
	if stuck := node.PeekStuck(a.Config.Paths, a.Job.Node); stuck != nil {
		return node.Glance{Problem: stuck.Words(a.Env.Clock.Booted().Add(stuck.Since).Format(time.DateTime))}
	}
	now := node.SampleAll(a.Env, a.Config, limit, identity)
	if now.Stuck != nil {
		if err := node.KeepStuck(a, now.Stuck); err != nil {
			fmt.Fprintf(a.Env.Stderr, "bookend: %v\n", err)
		}
	}
	return now
}
