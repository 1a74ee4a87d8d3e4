package diagnosis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"bookend/internal/gpu"
	"bookend/internal/record"
)

func (j judge) pool() record.Cause {
	c := untold(cmp.Or(j.unsearched(), "no message in its output tells"))
	for _, f := range j.failures {
		if !f.Idle.Known() {
			continue
		}
		idle, asked := gpu.Size(f.Idle.Bytes), gpu.Size(f.asked)
		if f.poolMattered() {
			text := fmt.Sprintf("%s reserved but unallocated; %s requested, %s free", idle, asked, gpu.Size(f.free))
			return on(f.card, yes(text))
		}
		c = on(f.card, no(fmt.Sprintf("%s unused, %s asked", idle, asked)))
	}
	for _, m := range j.said(record.KindDevice) {
		if f, ok := j.failure(m); !ok || !f.Idle.Known() {
			return untold("a message does not say what the pool kept")
		}
	}
	if why := j.notTheGPU(); why != "" {
		return no(why)
	}
	return c
}

// notTheGPU returns what ran out if no program was refused GPU memory, or "" if one may have been.
func (j judge) notTheGPU() string {
	switch {
	case j.limited():
		return "CUDA did not even start"
	case j.hostAlone():
		return "it was host memory"
	}
	return ""
}

// own judges the job's own need: yes if what it used and requested exceeds the GPU even without others' memory.
func (j judge) own() record.Cause {
	c := no("")
	for _, f := range j.failures {
		c = worse(c, on(f.card, need(f)))
	}
	if c.Answer == record.Yes && j.afterFault() {
		return untold(c.Evidence + ", after an error of the GPU")
	}
	if c.Evidence != "" && (c.Answer != record.No || j.every(func(failure) bool { return true })) {
		return c
	}
	for _, m := range j.said(record.KindDevice) {
		if room := j.roomiest(); room > 0 && m.Asked.Bytes > room {
			return yes(atOnce(m.Asked.Bytes, room))
		}
	}
	if why := j.notTheGPU(); why != "" {
		return no(why)
	}
	if j.spread() {
		return untold("what it used on other nodes is not known")
	}
	return j.measured()
}

func worse(a, b record.Cause) record.Cause {
	rank := map[record.Answer]int{record.Yes: 2, record.CannotTell: 1}
	if rank[b.Answer] > rank[a.Answer] || a.Evidence == "" && rank[b.Answer] == rank[a.Answer] {
		return b
	}
	return a
}

func atOnce(asked, room uint64) string {
	return fmt.Sprintf("asked %s at once, of a GPU with %s", gpu.Size(asked), gpu.Size(room))
}

func need(f failure) record.Cause {
	switch use := fmt.Sprintf("used %s, then requested %s more", pair(f.mine, " of ", f.total), gpu.Size(f.asked)); {
	case f.asked > f.total:
		return yes(atOnce(f.asked, f.total))
	case !f.short():
		return no(fmt.Sprintf("%s was free, %s asked", gpu.Size(f.free), gpu.Size(f.asked)))
	case f.restKnown && !f.together(), // or it needs more than the GPU has, whatever others held
		!f.restKnown && f.mine-min(f.mine, f.idle)+f.asked > f.total:
		return yes(use)
	case f.restKnown:
		return no(fmt.Sprintf("%s asked fit in %s", pair(f.mine-min(f.mine, f.idle), " + ", f.asked),
			gpu.Size(f.total)))
	}
	return untold("the message does not say how much it had in all")
}

// measured judges by the job's processes in the recording. A process with 90 % of a GPU has no room for another step.
// Less proves nothing, and neither does a sum over processes.
func (j judge) measured() record.Cause {
	if j.Every == 0 {
		return untold("not measured (the recorder would)")
	}
	c, most := untold("no sample saw any"), uint64(0)
	for _, s := range j.Seen {
		room := j.capacity(s.Device)
		nearlyAll := s.Bytes.Bytes >= room/10*9
		if !s.Own || room == 0 || s.Bytes.Bytes <= most || c.Answer == record.Yes && !nearlyAll {
			continue
		}
		most = s.Bytes.Bytes
		c = untold(fmt.Sprintf("at least %s in one process, sampled every %v", pair(most, " of ", room), j.Every))
		if nearlyAll {
			c.Answer = record.Yes
		}
		c = on(j.mine(s.Device), c)
	}
	return c
}

// full reports whether the job's processes together filled a GPU, or left too little for the request, while the largest
// alone did not.
func (j judge) full(r RecordedUse) bool {
	room, asked, largest := j.capacity(r.Device), uint64(0), uint64(0)
	for _, m := range j.said(record.KindDevice) {
		asked = max(asked, m.Asked.Bytes)
	}
	for _, s := range j.Seen {
		if s.Own && s.Device == r.Device {
			largest = max(largest, s.Bytes.Bytes)
		}
	}
	fills := func(bytes uint64) bool { return bytes >= room/10*9 || bytes+asked > room }
	return room > 0 && fills(r.Own) && !fills(largest)
}

// processes judges whether several processes of the job were on one GPU at once and filled it.
func (j judge) processes() record.Cause {
	for _, f := range j.failures {
		if ours := j.oursBeside(f); ours >= significant && f.restMattered() {
			return on(f.card, yes(fmt.Sprintf("others of your job held %s of it when it failed", gpu.Size(ours))))
		}
	}
	var r RecordedUse // the most processes of the job in one sample of one GPU
	var unused []string
	for _, other := range j.Recorded {
		if other.Together > r.Together {
			r = other
		}
		if card := j.mine(other.Device); other.Unused && card != nil {
			unused = append(unused, fmt.Sprint(card.Index))
		}
	}
	several := fmt.Sprintf("%d processes with %s", r.Together, gpu.Size(r.Own))
	if len(unused) > 0 {
		several += "; idle: GPU " + strings.Join(unused, ",")
	}
	switch {
	case j.alone():
		return no("one alone had it when it failed")
	case r.Together > 1 && j.decided():
		return no(several + ", but not decisive")
	case r.Together > 1 && j.full(r):
		return on(j.mine(r.Device), yes(several))
	case r.Together > 1:
		return on(j.mine(r.Device), untold(several+unweighed))
	case j.strange > 0:
		return untold(fmt.Sprintf("something else held %s; it may be your job's own", gpu.Size(j.strange)))
	case j.figured() && !slices.ContainsFunc(j.failures, func(f failure) bool { return f.sum(j.ours) > 0 }):
		return no("the rest was not your job's")
	case j.limited():
		return no("CUDA did not even start")
	}
	return untold("no two were seen at once")
}
