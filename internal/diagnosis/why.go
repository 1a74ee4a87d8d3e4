package diagnosis

import (
	"fmt"
	"slices"

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
	d := Diagnosis{Peaks: largest(j.peaks)}
	leftover, processes := j.leftover(), j.processes()
	d.Causes = []Cause{
		j.others(leftover), leftover, j.unlisted(leftover), j.pieces(), j.pool(), j.fault(), j.overhead(processes),
		j.own(), processes, j.limits(),
	}
	d.Causes = append(d.Causes, j.share(d))
	for i, c := range d.Causes {
		d.Causes[i] = j.elsewhereToo(c)
	}
	d.Reason, d.Asked = j.asked(d)
	if d.Reason != "" {
		d.Headline, d.Try = j.headline(d), j.try(d)
	}
	return d
}

// judge is the input in the order in which judging needs it.
type judge struct {
	Input
	first    *oom.Message // of several processes that ran out one after another; nil for none
	accounts []account    // of the messages that say enough
	ours     map[int]bool
	foreign  map[int]bool
	peaks    []peak // of this job's processes, by accounting
}

func newJudge(in Input) judge {
	j := judge{Input: in, ours: map[int]bool{}, foreign: map[int]bool{}}
	j.sort()
	j.Messages, j.first = lastWord(in.Messages)
	for _, m := range j.Messages {
		if a, ok := j.account(m); ok {
			j.accounts = append(j.accounts, a)
		}
	}
	j.peaks = j.accounted()
	return j
}

// sort fills ours and foreign with the PIDs that are proven to be the job's, and not to be.
func (j judge) sort() {
	for _, s := range j.Seen {
		switch {
		case s.Own:
			j.ours[s.PID] = true
		case j.another(s.Owner), s.Stranger:
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
	for _, h := range j.held() {
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

// saysWhat returns the first message of the kinds that are about memory.
func (j judge) saysWhat() (oom.Message, bool) {
	for _, k := range []oom.Kind{oom.Device, oom.Init, oom.Host} {
		for _, m := range j.said(k) {
			if !ambiguous(m) || j.cramped() {
				return m, true
			}
		}
	}
	return oom.Message{}, false
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

func (j judge) byID(id gpu.ID) *finding.Card {
	for i := range j.Cards {
		if j.Cards[i].Device.ID == id {
			return &j.Cards[i]
		}
	}
	return nil
}

func (j judge) index(id gpu.ID) *int {
	if c := j.byID(id); c != nil {
		return &c.Index
	}
	return nil
}

// capacity is what processes can have of a card: its size without the driver's own part.
func (j judge) capacity(id gpu.ID) (bytes uint64, known bool) {
	for _, side := range []*finding.Side{j.End, j.Start} {
		if side == nil {
			continue
		}
		if r, ok := side.Snapshot.Reading(id); ok && r.Memory.Total.Known() {
			bytes = r.Memory.Total.Bytes
			if r.Memory.Reserved.Known() {
				bytes -= min(bytes, r.Memory.Reserved.Bytes)
			}
			return bytes, bytes > 0
		}
	}
	return 0, false
}

// roomiest is the capacity of the job's largest card.
func (j judge) roomiest() (bytes uint64, known bool) {
	for _, c := range j.Cards {
		if b, ok := j.capacity(c.Device.ID); ok {
			bytes, known = max(bytes, b), true
		}
	}
	return bytes, known
}

// failed says how the job failed, empty where it did not or nobody knows. A job that was cancelled has status 0.
func (j judge) failed() string {
	e := j.Job.Exit
	switch {
	case !e.Known:
		return ""
	case e.Raw != 0:
		return "your job " + ending(e.Raw)
	case e.Derived != 0:
		return "a step of your job " + ending(e.Derived)
	}
	return ""
}

// ending words a wait(2) status.
func ending(status int) string {
	if s := signal(status); s != 0 {
		return fmt.Sprintf("was ended by signal %d", s)
	}
	return fmt.Sprintf("failed (exit code %d)", status>>8&0xff)
}

func signal(status int) int { return status & 0x7f }

// asked says whether anybody would want to know, and why. A job that ended well and filled its card asks nothing.
func (j judge) asked(d Diagnosis) (Reason, string) {
	if m, ok := j.saysWhat(); ok {
		return ByMessage, said(m)
	}
	if m := j.said(oom.Shared); len(m) > 0 {
		return ByShared, said(m[0])
	}
	if how := j.failed(); how != "" {
		return ByFailure, how
	}
	for _, n := range []Name{Others, Leftover, Unlisted, Pieces, Fault} {
		if c := d.Cause(n); c.Answer == Yes {
			return ByCause, n.Title()
		}
	}
	if j.Wanted {
		return ByWish, "always told here"
	}
	return "", ""
}
