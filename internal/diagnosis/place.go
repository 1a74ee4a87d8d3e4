package diagnosis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"bookend/internal/record"
)

func (e evidence) idle(c record.Assigned) bool { return slices.Contains(e.in.Idle, c.Device.ID) }

// onlyUsed returns the GPU that the job used if samples saw none of its other GPUs in use, else nil. It is also nil if
// the program's own number means an idle GPU: that one may have been used too briefly for a sample.
func (e evidence) onlyUsed(m record.Message) *record.Assigned {
	inUse := func(c record.Assigned) bool { return !e.idle(c) }
	used := slices.IndexFunc(e.in.Cards, inUse)
	ours := func(r record.GPURecording) bool {
		return r.ID == e.in.Cards[used].Device.ID && r.Own.Bytes >= significant
	}
	switch {
	case used < 0, slices.ContainsFunc(e.in.Cards[used+1:], inUse), !slices.ContainsFunc(e.in.Recorded, ours),
		m.GPU != nil && *m.GPU < len(e.in.Cards) && e.idle(e.in.Cards[*m.GPU]):
		return nil
	}
	return &e.in.Cards[used]
}

// listed puts words before Slurm's indexes of the GPUs that are meant; it is empty if there are none.
func (e evidence) listed(words string, meant func(record.Assigned) bool) string {
	var list []string
	for _, c := range e.in.Cards {
		if meant(c) {
			list = append(list, fmt.Sprint(c.Index))
		}
	}
	if list == nil {
		return ""
	}
	return words + strings.Join(list, ",")
}

// idleGPUs lists the job's GPUs on which no sample found a process, empty if there are none.
func idleGPUs(e evidence) string { return e.listed("; idle: GPU ", e.idle) }

// byList returns the GPU that a program's own number means in the job's list, nil if that is not certain. Tasks get
// equal parts of a job's GPUs, so all of them see each GPU if one of them counts beyond half. CUDA counts by bus.
func (e evidence) byList(m record.Message) *record.Assigned {
	cards, highest := e.in.Cards, 0
	for _, o := range e.in.Messages {
		if o.GPU != nil {
			highest = max(highest, *o.GPU)
		}
	}
	byBus := slices.IsSortedFunc(cards, func(a, b record.Assigned) int { // false if two are equal
		return cmp.Or(cmp.Compare(a.Device.BusID, b.Device.BusID), -1)
	})
	sure := byBus && highest < len(cards) && 2*(highest+1) > len(cards)
	if m.GPU == nil || !sure || e.idle(cards[*m.GPU]) {
		return nil
	}
	return &cards[*m.GPU]
}

// where names the GPUs on which memory ran out, by the program's own number if Slurm's is not certain. It is empty if
// no message has a number, and for a job of several nodes.
func where(e evidence) string {
	out, named := map[int]bool{}, ""
	for _, f := range e.failures {
		if mine := cmp.Or(f.gpu, e.byList(f.message)); mine != nil {
			out[mine.Index] = true
		} else if f.message.GPU != nil {
			named = cmp.Or(named, fmt.Sprintf(", your program's GPU %d", *f.message.GPU))
		}
	}
	switch list := e.listed(" GPU ", func(c record.Assigned) bool { return out[c.Index] }); {
	case e.spread:
		return ""
	case len(out) > 1:
		return strings.Replace(list, "GPU", "GPUs", 1)
	default:
		return cmp.Or(list, named)
	}
}
