package diagnosis

import (
	"fmt"

	"bookend/internal/gpu"
	"bookend/internal/oom"
)

// limits judges what is not the card's memory at all: the process's own limits, and host memory.
func (j judge) limits() Cause {
	c := Cause{Name: Limits, Answer: Yes}
	host := j.hostMemory()
	if host.answer == Yes {
		c.Evidence, c.Detail = host.text, host.detail
		return c
	}
	if a, ok := j.capped(); ok {
		c.Evidence = fmt.Sprintf("%s may use %s at most: set by your job", who(a), Size(a.Limit.Bytes))
		return c
	}
	if text := j.addressSpace(); text != "" {
		c.Evidence = text
		return c
	}
	if host.text != "" {
		c.Answer, c.Evidence, c.Detail = host.answer, host.text, host.detail
		if c.Answer == No && !j.balanced() {
			c.Answer, c.Evidence = Unknown, tooOr
		}
		return c
	}
	return j.unlimited(c)
}

// cramped reports a limit of address space.
func (j judge) cramped() bool {
	return j.AddressSpace.Known() && j.AddressSpace.Bytes > 0 && j.AddressSpace.Bytes < Unlimited
}

// capped finds a message of a program that was told not to take all, where the card would have had room.
func (j judge) capped() (oom.Message, bool) {
	for _, m := range j.said(oom.Device) {
		if !m.Limit.Known() || !m.Asked.Known() {
			continue
		}
		used := m.InUse
		if m.Allocated.Known() {
			used = m.Allocated
			if m.Idle.Known() {
				used.Bytes += m.Idle.Bytes
			}
		}
		if !used.Known() || hasRoom(m.Limit.Bytes, used.Bytes, m.Asked.Bytes) {
			continue
		}
		room, known := j.roomiest()
		switch {
		case m.Free.Known() && m.Asked.Bytes <= m.Free.Bytes:
			return m, true
		case !m.Free.Known() && known && j.here(m) && m.Limit.Bytes < room/10*9 &&
			hasRoom(room, used.Bytes, m.Asked.Bytes):
			return m, true
		}
	}
	return oom.Message{}, false
}

// hasRoom reports that what is asked has room beside what is used. It may be any number.
func hasRoom(room, used, asked uint64) bool { return used <= room && asked <= room-used }

// addressSpace finds a limit of address space behind a program that CUDA refused to serve. CUDA needs far more address
// space than the card has memory, and a GPU that was empty at both ends and that no other process of the job was
// seen to fill is not what it ran out of, whatever limit is on record: what a script sets for itself no hook can
// see.
func (j judge) addressSpace() string {
	refused := j.startless()
	for _, m := range j.said(oom.Device) {
		a, full := j.account(m)
		refused = refused || !full || !a.short()
	}
	room, known := j.roomiest()
	if refused && !j.started() && j.cramped() && known && j.AddressSpace.Bytes < room {
		return fmt.Sprintf("ulimit -v is %s; CUDA needs far more than the GPU's memory", Size(j.AddressSpace.Bytes))
	}
	if j.startless() && !j.away() && j.emptyThroughout() && known {
		return fmt.Sprintf("CUDA could not start with %s of GPU memory free: a limit such as ulimit -v", Size(room))
	}
	return ""
}

// started: a process of the job was seen with memory of a card, so CUDA had the address space that it needs.
func (j judge) started() bool {
	for _, s := range j.Seen {
		if s.Own && s.Bytes.Known() && s.Bytes.Bytes > 0 {
			return true
		}
	}
	return len(j.peaks) > 0 && j.peaks[0].Peak.Bytes > 0
}

// emptyThroughout: the cards were clean at both ends, and nobody saw more than half of one in use between them.
func (j judge) emptyThroughout() bool {
	if j.Start == nil || j.End == nil || !j.Start.AtRest(j.Cards) || !j.End.AtRest(j.Cards) || len(j.Cards) == 0 {
		return false
	}
	for _, s := range j.Seen {
		if room, known := j.capacity(s.Device); !s.Bytes.Known() || !known || s.Bytes.Bytes > room/2 {
			return false
		}
	}
	for _, h := range j.Health {
		for _, p := range h.Accounting.Processes {
			if room, known := j.capacity(h.Device); !p.Peak.Known() || known && p.Peak.Bytes > room/2 && j.began(p) {
				return false
			}
		}
	}
	return j.Shared == "" && j.SharedUnknown == ""
}

// began: a process that began while the job ran, or of which nobody knows when.
func (j judge) began(p gpu.Accounted) bool {
	if p.Began.IsZero() || j.WallStart.IsZero() || j.WallEnd.IsZero() {
		return true
	}
	return !p.Began.Before(j.WallStart) && !p.Began.After(j.WallEnd)
}

// unlimited answers where no limit was found.
func (j judge) unlimited(c Cause) Cause {
	c.Answer = No
	unread := j.unreadLog()
	free := j.AddressSpace.Known() && j.AddressSpace.Bytes >= Unlimited
	byHand := j.Job.Exit.Known && (signal(j.Job.Exit.Raw) == 9 || signal(j.Job.Exit.Derived) == 9)
	switch {
	case j.ranOut():
		c.Evidence = "the GPU's memory ran out"
	case byHand && unread != "":
		c.Answer, c.Evidence = Unknown, "ended by signal 9; whether for host memory is not known"
	case j.startless():
		c.Answer, c.Evidence = Unknown, "CUDA could not start for want of memory; why is not known"
	case unread != "":
		c.Answer, c.Evidence = Unknown, unread
	case j.cramped():
		c.Answer, c.Evidence = Unknown, fmt.Sprintf("ulimit -v is %s", Size(j.AddressSpace.Bytes))
	case !free:
		c.Answer, c.Evidence = Unknown, "its ulimit -v is not known (the task hooks tell)"
	case j.unsearched() != "":
		c.Answer, c.Evidence = Unknown, "no ulimit -v, nothing killed; "+j.unsearched()
	case len(j.said(oom.Device)) > 0 && !j.started(): // a CPU's allocator may say the same
		c.Answer, c.Evidence = Unknown, "no ulimit -v at first, nothing killed"
	default:
		c.Evidence = "no ulimit -v, nothing killed"
	}
	return c
}
