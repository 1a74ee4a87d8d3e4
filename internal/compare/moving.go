package compare

import (
	"fmt"

	"bookend/internal/catalog"
	"bookend/internal/record"
)

// moving returns the findings on a GPU that did not settle: what stayed on it, and other live jobs' processes.
func (v view) moving() []record.Finding {
	return append(v.certain(v.stayed()), record.Finding{Code: catalog.Moving, Bytes: v.now.Memory.Used,
		Unknown: fmt.Sprintf("memory still changing, or not watched long enough, after %.1f s",
			v.curve.Span.Seconds()),
		Expected: "memory given back within the settle time"})
}

// stayed returns what every sample showed, with its smallest figure. For a live job's process one sample is enough.
func (v view) stayed() (out []record.Finding) {
	if v.now.ProcessesUnknown != "" {
		return nil
	}
	var soon []uint64 // of each finding
	add := func(f record.Finding, stay record.Stay) {
		if stay.Ending {
			f.AddDoubt(unsettled + "a process that holds this, or may hold it, had just ended")
			if len(f.Candidates) > 0 { // it may be the ended process's, still being freed
				f.Owner = nil
			}
		}
		out, soon = append(out, f), append(soon, stay.Soon)
	}
	for _, p := range v.now.Processes {
		f, worth := v.process(p)
		stay, stayed := v.in.Now.StayOf(v.device.ID, p.PID)
		if stayed {
			f.Bytes = stay.Memory
		}
		if worth && (stayed || f.Code == catalog.Foreign) {
			add(f, stay)
		}
	}
	if rest, stayed := v.in.Now.StayOf(v.device.ID, 0); stayed {
		if f, worth := v.unlisted(rest.Memory); worth {
			add(f, rest)
		}
	}
	excuse(out) // givenBack counts only what is still certain after this
	givenBack(out, soon, v.in.Limits)
	return out
}

const unsettled = "the memory of this GPU did not settle, and "

// givenBack doubts findings whose memory is shrinking, given how much of each will soon be left, unless enough to drain
// will be left of all that is certain.
func givenBack(found []record.Finding, soon []uint64, l record.Limits) {
	var left uint64
	for i, f := range found {
		if f.Unknown == "" && len(f.Doubts) == 0 {
			left += min(soon[i], f.Bytes.Bytes)
		}
	}
	for i := range found {
		if left < l.Drain && soon[i] < found[i].Bytes.Bytes {
			found[i].AddDoubt(unsettled + "this was being given back")
		}
	}
}
