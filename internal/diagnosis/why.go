package diagnosis

import (
	"fmt"
	"slices"
	"strings"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/oom"
	"bookend/internal/slurm"
)

// Why judges every cause. A yes says that the cause applied and was enough to matter; where the output has a
// framework's own figures of the moment at which it failed, they decide that.
func Why(in Input) Diagnosis {
	j := newJudge(in)
	d := Diagnosis{}
	for _, p := range j.peaks[:min(len(j.peaks), MaxPeaks)] {
		d.Peaks = append(d.Peaks, p.Accounted)
	}
	leftover := j.leftover()
	names := []Name{Others, Leftover, Unlisted, Pieces, Pool, Fault, Own, Processes, Limits}
	for i, c := range []Cause{
		j.others(leftover), leftover, j.unlisted(leftover), j.pieces(), j.pool(), j.fault(), j.own(),
		j.processes(), j.limits(),
	} {
		c.Name = names[i]
		d.Causes = append(d.Causes, j.elsewhere(c))
	}
	d.Causes = append(d.Causes, j.share(d))
	if d.Reason, d.Asked = j.asked(d); d.Reason != "" {
		d.Headline, d.Try = j.headline(d), j.try(d)
	}
	return d
}

// judge is the input in the order in which judging needs it.
type judge struct {
	Input
	held     []held
	failures []failure // of the messages that say enough
	ours     map[int]bool
	foreign  map[int]bool
	peaks    []peak // of this job's processes, by accounting
	// strange is what something unknown held when an allocation failed that would have fit without it, 0 for nothing.
	strange   uint64
	strangeAt failure
}

func newJudge(in Input) judge {
	j := judge{Input: in, ours: map[int]bool{}, foreign: map[int]bool{}}
	j.Messages, j.held = lastWords(in.Messages), bothEnds(in)
	j.sort()
	for _, m := range j.Messages {
		if f, ok := j.failure(m); ok {
			j.failures = append(j.failures, f)
		}
	}
	j.peaks = j.accounted()
	for _, f := range slices.Backward(j.failures) {
		if known := j.known(f); f.restMattered() && f.rest >= known+significant {
			j.strange, j.strangeAt = f.rest-known, f
		}
	}
	return j
}

// lastWords leaves of what was said what can have ended the job: a process survived what it says about a card's memory
// if it says more later in the same file. If that names no size, it may be the echo of what it said before.
func lastWords(all []oom.Message) (left []oom.Message) {
	type process struct{ file, rank, pid int }
	told, echoed := map[process]bool{}, map[process]bool{}
	for _, m := range slices.Backward(all) {
		if m.Kind == oom.Device || m.Kind == oom.Init {
			p := process{m.File, -1, m.PID}
			if m.Rank != nil {
				p.rank = *m.Rank
			}
			if told[p] {
				continue
			}
			told[p] = echoed[p] || m.Kind == oom.Init || m.Asked.Known()
			echoed[p] = true
		}
		left = append(left, m)
	}
	slices.Reverse(left)
	return left
}

// sort fills ours and foreign with the PIDs that are proven to be the job's, and not to be.
func (j judge) sort() {
	for _, s := range j.Seen {
		if s.Own {
			j.ours[s.PID] = true
		} else if j.another(s.Owner) || s.Stranger {
			j.foreign[s.PID] = true
		}
	}
	for _, m := range j.Messages {
		if m.PID != 0 && !j.spread() { // another node counts its own
			j.ours[m.PID] = true
		}
	}
	for _, f := range j.Findings {
		if f.Code == code.Orphan && live(f) && f.Unknown == "" {
			j.ours[f.Holder.PID] = true
		}
	}
	for _, h := range j.held {
		if live(h.Finding) && isOthers(h) {
			j.foreign[h.Holder.PID] = true
		}
	}
}

// another reports a cgroup of a job that is surely not this one.
func (j judge) another(o slurm.Owner) bool {
	return o.ID != 0 && o.ID != j.Job.ID || o.SLUID != "" && j.Job.SLUID != "" && o.SLUID != j.Job.SLUID
}

func live(f finding.Finding) bool { return f.Holder != nil && !f.Holder.Gone }

// said returns the messages of one kind.
func (j judge) said(k oom.Kind) []oom.Message {
	return slices.DeleteFunc(slices.Clone(j.Messages), func(m oom.Message) bool { return m.Kind != k })
}

// unsearched says what of the job's output was not looked through; empty where all of it was.
func (j judge) unsearched() string {
	switch {
	case j.MessagesUnknown != "":
		return fmt.Sprintf("its output was not read (%s)", j.MessagesUnknown)
	case j.MessagesPart != "":
		return fmt.Sprintf("its output was read in part (%s)", j.MessagesPart)
	}
	return ""
}

// mine is the job's card of an id, nil for none.
func (j judge) mine(id gpu.ID) *finding.Card {
	if i := slices.IndexFunc(j.Cards, func(c finding.Card) bool { return c.Device.ID == id }); i >= 0 {
		return &j.Cards[i]
	}
	return nil
}

// capacity is what processes can have of a card: its size without the driver's own part; 0 for unknown.
func (j judge) capacity(id gpu.ID) uint64 {
	for _, side := range []*finding.Side{j.End, j.Start} {
		if side == nil {
			continue
		}
		if r, ok := side.Snapshot.Reading(id); ok && r.Memory.Total.Known() {
			return r.Memory.Total.Bytes - min(r.Memory.Total.Bytes, r.Memory.Reserved.Bytes)
		}
	}
	return 0
}

// roomiest is the capacity of the job's largest card.
func (j judge) roomiest() (bytes uint64) {
	for _, c := range j.Cards {
		bytes = max(bytes, j.capacity(c.Device.ID))
	}
	return bytes
}

// spread reports a job of several nodes, or of several components: its output has the messages of all of them.
// It may have failed on another node, whose cards nobody here has seen.
func (j judge) spread() bool { return j.Job.HetJobID != 0 || strings.ContainsAny(j.Job.NodeList, ",[") }

// elsewhere takes back what is known of this node alone, where the job may have failed on another.
func (j judge) elsewhere(c Cause) Cause {
	switch {
	case !j.spread(), c.Answer == Unknown, c.Name == Pool, c.Name == Own, c.Answer == Yes && c.Name == Fault,
		c.Answer == Yes && c.Name == Limits:
		return c
	}
	c.Answer, c.Evidence = Unknown, c.Evidence+"; known of "+j.Job.Node+" alone"
	return c
}

// sightedOn returns the cards on which other hooks saw a process of the job.
func (j judge) sightedOn(pid int) map[gpu.ID]bool {
	on := map[gpu.ID]bool{}
	for _, s := range j.Seen {
		if pid != 0 && s.PID == pid && s.Own {
			on[s.Device] = true
		}
	}
	return on
}

// card is the job's card that a message is about, nil where that is not certain. The framework's own number says
// nothing: it counts what its process sees, in the order of CUDA_VISIBLE_DEVICES.
func (j judge) card(m oom.Message) *finding.Card {
	if j.spread() {
		return nil
	}
	on := j.sightedOn(m.PID)
	for i, c := range j.Cards {
		if len(on) == 1 && on[c.Device.ID] || len(j.Cards) == 1 {
			return &j.Cards[i]
		}
	}
	return nil
}

// unplaced: some allocation failed on a card of the job that is not known.
func (j judge) unplaced() bool {
	return slices.ContainsFunc(j.said(oom.Device), func(m oom.Message) bool { return j.card(m) == nil })
}

// startless reports messages that speak of a program that could not even start.
func (j judge) startless() bool {
	return len(j.said(oom.Init)) > 0 && len(j.said(oom.Device)) == 0
}
