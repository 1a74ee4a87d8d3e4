package diagnosis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"bookend/internal/gpu"
	"bookend/internal/oom"
)

// pool judges pieces inside the framework's own pool.
func (j judge) pool() Cause {
	c := untold(cmp.Or(j.unsearched(), "no message in its output tells"))
	for _, f := range j.failures {
		if !f.Idle.Known() {
			continue
		}
		idle, asked := Size(f.Idle.Bytes), Size(f.asked)
		if f.poolMattered() {
			text := fmt.Sprintf("%s reserved but unallocated; %s requested, %s free", idle, asked, Size(f.free))
			return yes(text).on(f.card)
		}
		c.Answer, c.Evidence = No, fmt.Sprintf("%s unused, %s asked", idle, asked)
		c = c.on(f.card)
	}
	for _, m := range j.said(oom.Device) {
		if f, ok := j.failure(m); !ok || !f.Idle.Known() {
			return untold(who(m) + " does not say what its pool kept")
		}
	}
	if why := j.notTheCard(); why != "" {
		return no(why)
	}
	return c
}

// notTheCard says what it was, where no program was refused a card's memory; empty where one may have been.
func (j judge) notTheCard() string {
	switch {
	case j.startless() && j.addressSpace() != "":
		return "CUDA did not even start"
	case j.hostAlone():
		return "it was host memory"
	}
	return ""
}

// own judges the job's own need: whether all that it used and asked for would have fit on the card, had nothing else
// been there.
func (j judge) own() Cause {
	c := no("")
	for _, f := range j.failures {
		c = worse(c, need(f).on(f.card))
	}
	if c.Evidence != "" && (c.Answer != No || j.every(func(failure) bool { return true })) {
		return c
	}
	for _, m := range j.said(oom.Device) {
		if room := j.roomiest(); room > 0 && m.Asked.Bytes > room {
			return yes(atOnce(m.Asked.Bytes, room))
		}
	}
	if why := j.notTheCard(); why != "" {
		return no(why)
	}
	if c = j.measured(); c.Answer == Yes && j.spread() {
		c.Answer, c.Evidence = Unknown, c.Evidence+"; known of "+j.Job.Node+" alone"
	}
	return c
}

// worse is the cause that says more; of two that say the same the first.
func worse(a, b Cause) Cause {
	rank := map[Answer]int{Yes: 2, Unknown: 1}
	if rank[b.Answer] > rank[a.Answer] || a.Evidence == "" && rank[b.Answer] == rank[a.Answer] {
		return b
	}
	return a
}

// atOnce words a single allocation that no GPU of the kind has room for.
func atOnce(asked, room uint64) string {
	return fmt.Sprintf("asked %s at once, of a GPU with %s", Size(asked), Size(room))
}

// need judges one balance.
func need(f failure) Cause {
	switch use := fmt.Sprintf("used %s, then requested %s more", pair(f.mine, " of ", f.total), Size(f.asked)); {
	case f.asked > f.total:
		return yes(atOnce(f.asked, f.total))
	case !f.short():
		return no(fmt.Sprintf("%s was free, %s asked", Size(f.free), Size(f.asked)))
	case f.ownNeed(), !f.restKnown && f.mine >= f.total/5*4 && f.asked > f.free+f.idle: // little is left for others
		return yes(use)
	case f.restKnown:
		return no(fmt.Sprintf("%s asked fit in %s", pair(f.mine-min(f.mine, f.idle), " + ", f.asked), Size(f.total)))
	}
	return untold("the message does not say how much it had in all")
}

// measured judges by what the recorder, other hooks and the driver's accounting saw of the job's processes. From nine
// tenths of a GPU on a process had it to itself, and no room for another step; less proves nothing, nor does what
// several had together.
func (j judge) measured() Cause {
	c := untold("not measured (the recorder or nvidia.accounting would)")
	var most uint64
	see := func(bytes uint64, id gpu.ID, text string) {
		room := j.capacity(id)
		full := bytes >= room/10*9
		if room == 0 || bytes <= most || c.Answer == Yes && !full {
			return
		}
		most, c = bytes, untold("at least "+pair(bytes, " of ", room)+text).on(j.mine(id))
		if full {
			c.Answer = Yes
		}
	}
	for _, s := range j.Seen {
		if s.Own {
			see(s.Bytes.Bytes, s.Device, j.clock(" at ", s.At)+j.apart())
		}
	}
	for _, p := range j.peaks {
		see(p.Peak.Bytes, p.device, " in one process")
	}
	for _, r := range j.Recorded {
		if before := c.Answer; r.Together > 1 && before != Yes {
			see(r.Own, r.Device, fmt.Sprintf(" in %d processes%s", r.Together, j.apart()))
			c.Answer = before
		}
	}
	return c
}

// apart says how far the samples lie apart between which more may have been used.
func (j judge) apart() string {
	if j.Every == 0 {
		return ""
	}
	return ", sampled every " + j.Every.String()
}

// peak is one process of accounting on one card.
type peak struct {
	gpu.Accounted
	device gpu.ID
}

// accounted are the processes of accounting that are the job's: proven by a sighting, or begun on a card during the job
// that it had alone. They come largest first.
func (j judge) accounted() []peak {
	var all []peak
	for _, h := range j.Health {
		for _, p := range h.Accounting.Processes {
			if p.Peak.Known() && (j.sightedOn(p.PID)[h.Device] || j.begun(h.Device, p)) {
				all = append(all, peak{p, h.Device})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b peak) int { return cmp.Compare(b.Peak.Bytes, a.Peak.Bytes) })
	return all
}

// begun: nobody but the job can have started this process.
func (j judge) begun(id gpu.ID, p gpu.Accounted) bool {
	another := func(h held) bool { return h.GPU == id && (live(h.Finding) || h.Unknown != "") }
	alone := j.Shared == "" && j.SharedUnknown == "" && !j.foreign[p.PID] && j.mine(id) != nil &&
		!slices.ContainsFunc(j.held, another) &&
		!slices.ContainsFunc(j.Seen, func(s Sighting) bool { return s.Device == id && !s.Own })
	dated := !p.Began.IsZero() && !j.WallStart.IsZero() && !j.WallEnd.IsZero()
	return alone && dated && !p.Began.Before(j.WallStart) && !p.Began.After(j.WallEnd)
}

// processes judges whether several processes of the job were on one card at once.
func (j judge) processes() Cause {
	for _, f := range j.failures {
		if ours := j.oursBeside(f); ours >= significant && f.restMattered() && !j.spread() {
			return yes(fmt.Sprintf("others of your job held %s of it when it failed", Size(ours))).on(f.card)
		}
	}
	var r Recorded // the most of its processes that one sample saw on one GPU
	for _, other := range j.Recorded {
		if other.Together > r.Together {
			r = other
		}
	}
	several := fmt.Sprintf("%d processes with %s%s%s", r.Together, Size(r.Own), j.clock(" at ", r.TogetherAt),
		j.unused())
	switch {
	case j.alone():
		return no("one alone had it when it failed")
	case r.Together > 1 && j.decided():
		return no(several + ", but not decisive")
	case r.Together > 1:
		return yes(several).on(j.mine(r.Device))
	case j.strange > 0:
		return untold(fmt.Sprintf("something else held %s; it may be your job's own", Size(j.strange)))
	case j.figured() && !slices.ContainsFunc(j.failures, func(f failure) bool { return f.sum(j.ours) > 0 }):
		return no("the rest was not your job's")
	case j.startless() && j.addressSpace() != "":
		return no("CUDA did not even start")
	case j.Samples > 0:
		return untold(fmt.Sprintf("no more than %d seen in %s", r.Together, samples(j.Samples)))
	}
	return untold("not sampled while it ran (the recorder would)")
}

// unused names the job's GPUs on which the recorder never saw a process of the job, where it saw one on another.
func (j judge) unused() string {
	var idle []string
	for _, r := range j.Recorded {
		if card := j.mine(r.Device); r.Unused && card != nil {
			idle = append(idle, fmt.Sprint(card.Index))
		}
	}
	switch {
	case len(idle) == 0 || len(idle) == len(j.Recorded):
		return ""
	case len(idle) == 1:
		return "; GPU " + idle[0] + " was idle"
	}
	return "; GPUs " + strings.Join(idle, ",") + " were idle"
}
