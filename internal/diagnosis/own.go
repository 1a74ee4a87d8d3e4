package diagnosis

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/oom"
)

// pool judges pieces inside the framework's own pool.
func (j judge) pool() Cause {
	c := Cause{Name: Pool, Answer: Unknown, Evidence: "no message in its output tells"}
	if why := j.unsearched(); why != "" {
		c.Evidence = why
	}
	for _, a := range j.accounts {
		if !a.Idle.Known() {
			continue
		}
		c.Answer, c.Evidence = No, fmt.Sprintf("%s unused, %s asked", Size(a.Idle.Bytes), Size(a.asked))
		if a.poolMattered() {
			c.Answer = Yes
			c.Evidence = fmt.Sprintf("%s unused, but in pieces; %s asked, %s free", Size(a.Idle.Bytes),
				Size(a.asked), Size(a.free))
			return j.at(c, a)
		}
		c = j.at(c, a)
	}
	switch mute := slices.IndexFunc(j.said(oom.Device), j.mute); {
	case mute >= 0:
		c.Answer, c.Index = Unknown, nil
		c.Evidence = fmt.Sprintf("%s does not say what its pool kept", who(j.said(oom.Device)[mute]))
	case j.startless():
		c.Answer, c.Evidence = No, "CUDA did not even start"
	case j.hostAlone():
		c.Answer, c.Evidence = No, "it was host memory"
	}
	return c
}

// mute: a message does not say what its framework's pool kept.
func (j judge) mute(m oom.Message) bool {
	_, ok := j.account(m)
	return !ok || !m.Idle.Known()
}

// own judges the job's own need: whether all that it used and asked for would have fit on the card, had nothing else
// been there.
func (j judge) own() Cause {
	c := Cause{Name: Own, Answer: No}
	for _, a := range j.accounts {
		c = worse(c, j.at(j.need(Cause{Name: Own}, a), a))
	}
	if c.Evidence != "" && (c.Answer != No || j.balanced()) {
		return c
	}
	c = Cause{Name: Own, Answer: No}
	for _, m := range j.said(oom.Device) {
		if room, known := j.roomiest(); known && m.Asked.Known() && m.Asked.Bytes > room {
			c.Answer, c.Evidence = Yes, atOnce(m.Asked.Bytes, room)
			return c
		}
	}
	switch {
	case j.startless() && j.addressSpace() != "":
		c.Evidence = "CUDA did not even start"
		return c
	case j.hostAlone():
		c.Evidence = "it was host memory"
		return c
	}
	if c = j.measured(c); c.Answer == Yes && j.away() {
		c.Answer, c.Evidence = Unknown, c.Evidence+"; on which node it failed is not known"
	}
	return c
}

// atOnce words a single allocation that no GPU of the kind has room for.
func atOnce(asked, room uint64) string {
	if asked >= overflown {
		return fmt.Sprintf("asked %s at once: a number that overflowed, or was less than 0", Size(asked))
	}
	return fmt.Sprintf("asked %s at once, of a GPU with %s", Size(asked), Size(room))
}

// need judges one balance.
func (j judge) need(c Cause, a account) Cause {
	c.Answer = No
	switch use := fmt.Sprintf("%s in use, %s more asked, of %s", Size(a.mine), Size(a.asked), Size(a.total)); {
	case a.asked > a.total:
		c.Answer, c.Evidence = Yes, atOnce(a.asked, a.total)
	case !a.short():
		c.Evidence = fmt.Sprintf("%s was free, %s asked", Size(a.free), Size(a.asked))
	case a.ownNeed():
		c.Answer, c.Evidence = Yes, use
	case a.restKnown:
		c.Evidence = fmt.Sprintf("%s asked fit in %s", pair(a.mine-min(a.mine, a.idle), " + ", a.asked), Size(a.total))
	case a.mine >= a.total/5*4 && a.asked > a.free+a.idle: // little is left for anybody else
		c.Answer, c.Evidence = Yes, use
	default:
		c.Answer, c.Evidence = Unknown, "the message does not say how much it had in all"
	}
	return c
}

// measured judges by what the driver's accounting and other hooks saw of the job's processes. From nine tenths of a
// card on a process had it to itself, and no room for another step.
func (j judge) measured(c Cause) Cause {
	c.Answer, c.Evidence = Unknown, j.unmeasured()
	for _, p := range j.peaks {
		room, known := j.capacity(p.device)
		if !known || !p.Peak.Known() {
			continue
		}
		c.Index = j.index(p.device)
		c.Evidence = fmt.Sprintf("at most %s in a process", pair(p.Peak.Bytes, " of ", room))
		switch why := j.unsearched(); {
		case p.Peak.Bytes >= room/10*9:
			c.Answer = Yes
		case !j.inTurn() || p.Peak.Bytes >= room/2 || !j.fits(p.Peak.Bytes, room):
		case why != "" && len(j.said(oom.Device)) == 0:
			c.Evidence += "; " + why
		default:
			c.Answer = No
		}
		return c
	}
	var most Sighting
	for _, s := range j.Seen {
		if s.Own && s.Bytes.Known() && s.Bytes.Bytes > most.Bytes.Bytes {
			most = s
		}
	}
	if room, known := j.capacity(most.Device); known && most.Bytes.Bytes > 0 {
		c.Index, c.Detail = j.index(most.Device), fmt.Sprintf("PID %d; %s", most.PID, j.unmeasured())
		if c.Evidence = fmt.Sprintf("%s or more%s", pair(most.Bytes.Bytes, " of ", room),
			j.clock(", seen at ", most.At)); most.Bytes.Bytes >= room/10*9 {
			c.Answer = Yes
		}
	}
	return c
}

// fits reports that no message asked for so much that it would not have fit beside used.
func (j judge) fits(used, room uint64) bool {
	for _, m := range j.said(oom.Device) {
		if !m.Asked.Known() || !hasRoom(room, min(room, used), m.Asked.Bytes) {
			return false
		}
	}
	return true
}

// inTurn: by the accounting of every card, all processes that can have been the job's are known, and ran one at a time.
func (j judge) inTurn() bool {
	on := map[gpu.ID]bool{}
	for _, h := range j.Health {
		on[h.Device] = h.Accounting.Mode == "on"
		for _, p := range h.Accounting.Processes {
			dated := func(q peak) bool { return q.device == h.Device && q.PID == p.PID && !q.Began.IsZero() }
			if !j.foreign[p.PID] && j.began(p) && !slices.ContainsFunc(j.peaks, dated) {
				return false
			}
		}
	}
	unaccounted := func(c finding.Card) bool { return !on[c.Device.ID] }
	n, _ := overlap(j.peaks)
	return n == 1 && len(j.Cards) > 0 && !slices.ContainsFunc(j.Cards, unaccounted)
}

// unmeasured says why nothing was measured, and what would change that.
func (j judge) unmeasured() string {
	for _, h := range j.Health {
		switch {
		case h.Accounting.Unknown != "":
			return "no figures; accounting: " + h.Accounting.Unknown
		case h.Accounting.Mode == "off":
			return "not measured: accounting is off (your admin can set nvidia.accounting)"
		case h.Accounting.Mode == "on":
			return "accounting has no process of your job"
		}
	}
	return "not measured: accounting was not read"
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
			if p.Peak.Known() && (j.sightedOn(h.Device, p.PID) || j.begun(h.Device, p)) {
				all = append(all, peak{p, h.Device})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b peak) int { return cmp.Compare(b.Peak.Bytes, a.Peak.Bytes) })
	return all
}

func (j judge) sightedOn(id gpu.ID, pid int) bool {
	return slices.ContainsFunc(j.Seen, func(s Sighting) bool { return s.Own && s.Device == id && s.PID == pid })
}

// begun: nobody but the job can have started this process.
func (j judge) begun(id gpu.ID, p gpu.Accounted) bool {
	alone := j.Shared == "" && j.SharedUnknown == "" && !j.foreign[p.PID]
	for _, h := range j.held() {
		if h.GPU == id && (live(h.Finding) || h.Unknown != "") {
			alone = false
		}
	}
	for _, s := range j.Seen {
		if s.Device == id && !s.Own {
			alone = false
		}
	}
	dated := !p.Began.IsZero() && !j.WallStart.IsZero() && !j.WallEnd.IsZero()
	return alone && j.byID(id) != nil && dated && !p.Began.Before(j.WallStart) && !p.Began.After(j.WallEnd)
}

func largest(peaks []peak) []gpu.Accounted {
	var out []gpu.Accounted
	for _, p := range peaks[:min(len(peaks), MaxPeaks)] {
		out = append(out, p.Accounted)
	}
	return out
}

// processes judges whether several processes of the job were on one card at once.
func (j judge) processes() Cause {
	c := Cause{Name: Processes, Answer: Unknown}
	for _, a := range j.accounts {
		if ours := j.oursIn(a); ours >= significant && a.restMattered() {
			c.Answer, c.Evidence = Yes, fmt.Sprintf("others of your job held %s of it when it failed", Size(ours))
			return j.at(c, a)
		}
	}
	n, at, id := j.together()
	if most, device := overlap(j.peaks); most > n {
		n, at, id = most, 0, device
	}
	switch {
	case n > 1 && j.ruledOut(id) && j.decided():
		c.Answer, c.Evidence = No, "one alone had it when it failed"
	case n > 1 && j.decided():
		c.Answer, c.Evidence = No, fmt.Sprintf("%d%s, but not decisive", n, j.clock(" at ", at))
	case n > 1 && j.away():
		c.Index, c.Evidence = j.index(id), fmt.Sprintf("%d of your job on one GPU%s; on which node it failed is "+
			"not known", n, j.clock(" at ", at))
	case n > 1:
		c.Answer, c.Index, c.Evidence = Yes, j.index(id),
			fmt.Sprintf("%d of your job on one GPU%s", n, j.clock(" at ", at))
	case j.goneEverywhere():
		c.Answer, c.Evidence = No, "one alone had it when it failed"
	case j.strange() > 0:
		c.Evidence = fmt.Sprintf("something else held %s; it may be your job's own", Size(j.strange()))
	case j.foundAll():
		c.Answer, c.Evidence = No, "the rest was not your job's"
	case j.startless() && j.addressSpace() != "":
		c.Answer, c.Evidence = No, "CUDA did not even start"
	case j.inTurn():
		c.Answer, c.Evidence = No, "one at a time, by accounting"
	case n == 1:
		c.Evidence = "one seen" + j.clock(" at ", at) + ", " +
			j.looked("and no more", "and nobody looked again (a health check would)")
	default:
		c.Evidence = j.looked("none seen", "nobody looked while it ran (a health check would)")
	}
	return c
}

// decided reports that every balance names a cause that others' memory is no part of.
func (j judge) decided() bool {
	for _, a := range j.accounts {
		if a.restMattered() || !a.restKnown {
			return false
		}
	}
	return j.balanced()
}

// together is the most processes of the job that one look saw on one card.
func (j judge) together() (most int, at time.Duration, id gpu.ID) {
	type look struct {
		at time.Duration
		id gpu.ID
	}
	seen := map[look]int{}
	for _, s := range j.Seen {
		if !s.Own {
			continue
		}
		l := look{s.At, s.Device}
		if seen[l]++; seen[l] > most {
			most, at, id = seen[l], s.At, s.Device
		}
	}
	return most, at, id
}

// looked words that at all looks of health checks there was no more than that; nobody where there was no look.
func (j judge) looked(seen, nobody string) string {
	if j.Checks == 0 {
		return nobody
	}
	if j.Checks == 1 {
		return seen + " at one look while it ran"
	}
	return fmt.Sprintf("%s at %d looks while it ran", seen, j.Checks)
}

// overlap is the most processes of accounting that ran on one card at once.
func overlap(peaks []peak) (most int, id gpu.ID) {
	for _, p := range peaks {
		if p.Began.IsZero() {
			continue
		}
		n := 0
		for _, q := range peaks { // those that ran when p began
			runs := q.Running || p.Began.Before(q.Began.Add(q.Ran))
			if q.device == p.device && !q.Began.IsZero() && !q.Began.After(p.Began) && runs || q == p {
				n++
			}
		}
		if n > most {
			most, id = n, p.device
		}
	}
	return most, id
}

// overhead judges what the driver takes: its reserve, and a context for each process beyond the first.
func (j judge) overhead(processes Cause) Cause {
	c := Cause{Name: Overhead, Answer: Unknown, Evidence: "only " + j.reserve() +
		fmt.Sprintf("%s a process", Size(context))}
	n, _, id := j.together()
	if most, device := overlap(j.peaks); most > n {
		n, id = most, device
	}
	for _, a := range j.about(id) {
		extra := uint64(max(n, 1)-1) * context
		if extra >= significant && a.short() && !a.ownNeed() && a.asked <= a.free+extra && a.rest >= extra {
			c.Answer, c.With = Yes, Processes
			c.Evidence = fmt.Sprintf("%d processes of your job: about %s besides their data", n,
				Size(uint64(n)*context))
			return j.at(c, a)
		}
	}
	switch {
	case processes.Answer == No, j.decided(), processes.Answer == Yes && n > 1 && j.figured():
		c.Answer = No
	case n > 1:
		c.Evidence += fmt.Sprintf(", %d seen; whether that mattered cannot be told", n)
	default:
		c.Evidence += ", how many is not known"
	}
	return c
}

// reserve words what the driver keeps of the job's cards for itself.
func (j judge) reserve() string {
	for _, c := range j.Cards {
		if j.End == nil {
			break
		}
		if r, ok := j.End.Snapshot.Reading(c.Device.ID); ok && r.Memory.Reserved.Known() {
			return Size(r.Memory.Reserved.Bytes) + ", and "
		}
	}
	return ""
}
