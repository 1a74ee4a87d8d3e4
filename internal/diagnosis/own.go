package diagnosis

import (
	"cmp"
	"fmt"
	"slices"

	"bookend/internal/gpu"
	"bookend/internal/record"
)

// own judges the job's own need: yes if what it used and requested exceeds the GPU even without others' memory.
func own(e evidence) record.Cause {
	var c record.Cause
	for _, f := range e.failures {
		switch {
		case f.broken:
			return on(f.gpu, yes("asked for more than any GPU has: an overflow, or a wrong build"))
		case f.capped:
			c = worse(c, on(f.gpu, no(byCap)))
		case f.balanced:
			c = worse(c, on(f.gpu, need(f)))
		}
	}
	if c.Evidence != "" && (c.Answer != record.No || e.balanced) {
		return c
	}
	for _, f := range e.failures {
		if need := exceeds(f, e.roomFor(f)); need.Answer == record.Yes && !f.balanced {
			return on(f.gpu, need)
		}
	}
	return cmp.Or(notTheGPU(e), measured(e))
}

const byCap = "a limit that your program set stopped it, not the GPU's memory"

func need(f failure) record.Cause {
	needed, asked := f.mine-min(f.mine, f.idle), gpu.Size(f.asked)
	return rules[record.Cause]{
		{f.asked <= f.total && !f.short(), no(gpu.Size(f.free) + " was free, " + asked + " asked")},
		{f.asked <= f.total && f.restKnown && !f.together(), yes(used(f, f.total))},
		{f.asked <= f.total && f.restKnown, no(pair(needed, " + ", f.asked) + " asked fit in " + gpu.Size(f.total))},
		{true, exceeds(f, f.total)},
	}.first()
}

// exceeds judges whether a process needed more memory than a GPU has, whatever others held. An unknown room is 0.
func exceeds(f failure, room uint64) record.Cause {
	atOnce := room > 0 && f.asked > room
	return rules[record.Cause]{
		{atOnce, yes(fmt.Sprintf("asked %s at once, of a GPU with %s", gpu.Size(f.asked), gpu.Size(room)))},
		{room > 0 && f.asked > 0 && f.mine-min(f.mine, f.idle)+f.asked > room, yes(used(f, room))},
		{true, cannotTell("the message does not say how much it had in all")},
	}.first()
}

func used(f failure, room uint64) string {
	return "used " + pair(f.mine, " of ", room) + ", then requested " + gpu.Size(f.asked) + " more"
}

// fills reports whether memory in use leaves no room for another step: 90 % of a GPU.
func fills(bytes, room uint64) bool { return room > 0 && bytes >= room/10*9 }

// measured judges by the job's processes in the recording. A process that fills a GPU needed more. Less proves nothing,
// and neither does a sum over processes.
func measured(e evidence) record.Cause {
	switch {
	case e.spread:
		return cannotTell("what it used on other nodes is not known")
	case e.in.Every == 0:
		return cannotTell("not measured (the recorder would)")
	}
	c, part := cannotTell("no sample saw any"), 0.0
	for _, s := range e.in.Seen {
		bytes, room := s.Bytes.Bytes, e.in.capacity(s.Device)
		if !s.Own || room == 0 || float64(bytes) <= part*float64(room) {
			continue
		}
		part = float64(bytes) / float64(room)
		use := fmt.Sprintf("at least %s in one process, sampled every %v", pair(bytes, " of ", room), e.in.Every)
		c = rules[record.Cause]{{fills(bytes, room), yes(use)}, {true, cannotTell(use)}}.first()
		c = on(e.assigned(s.Device), c)
	}
	return c
}

// processes judges whether several processes of the job were on one GPU at once and filled it.
func processes(e evidence) record.Cause {
	for _, f := range e.balances {
		if ours := e.siblings(f); f.partMattered(ours) {
			text := fmt.Sprintf("others of your job held %s of it when it failed", gpu.Size(ours))
			return on(f.gpu, yes(text+idleGPUs(e)))
		}
	}
	r, several := mostTogether(e)
	here, crowd, unexplained := e.assigned(r.ID), r.Together > 1, gpu.Size(e.unexplained)
	ours := func(f failure) bool { return f.sum(e.ownPIDs) > 0 }
	return rules[record.Cause]{
		{e.alone, no("one alone had it when it failed")},
		{crowd && e.othersRuledOut, no(several + ", but not decisive")},
		{crowd && fillTogether(e, r), on(here, yes(several))},
		{crowd, on(here, cannotTell(several+unweighed))},
		{e.unexplained > 0, cannotTell("something else held " + unexplained + "; it may be your job's own")},
		{e.restKnown && !slices.ContainsFunc(e.failures, ours), no("the rest was not your job's")},
		{stoppedByLimit(e), no(didNotStart)},
		{true, cannotTell("no two were seen at once")},
	}.first()
}

// mostTogether returns the GPU with the most processes of the job in one sample, and describes its use.
func mostTogether(e evidence) (most record.GPURecording, several string) {
	for _, r := range e.in.Recorded {
		if r.Together > most.Together {
			most = r
		}
	}
	return most, fmt.Sprintf("%d processes with %s", most.Together, gpu.Size(most.Own.Bytes)) + idleGPUs(e)
}

// fillTogether reports whether the job's processes together, but none alone, left too little of a GPU for the request.
func fillTogether(e evidence, r record.GPURecording) bool {
	room, asked, largest := e.in.capacity(r.ID), uint64(0), uint64(0)
	for _, f := range e.failures {
		asked = max(asked, f.asked)
	}
	for _, s := range e.in.Seen {
		if s.Own && s.Device == r.ID {
			largest = max(largest, s.Bytes.Bytes)
		}
	}
	full := func(bytes uint64) bool { return fills(bytes, room) || bytes+asked > room }
	return room > 0 && full(r.Own.Bytes) && !full(largest)
}
