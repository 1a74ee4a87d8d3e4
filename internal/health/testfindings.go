package health

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
)

// Outcome is a card's test, and what bears on how much it proves.
type Outcome struct {
	gpu.Probe
	Seen int // processes, one after the other, that came to this result
	// Earlier is when an earlier hook tested the card (wall time); zero where this hook did.
	Earlier time.Time
}

// Bad reports that no memory could be had.
func (o Outcome) Bad() bool { return o.Result == gpu.ProbeBroken || o.Result == gpu.ProbeBlocked }

// Retry reports a result that is worth another process's look at the card alone: a bad one, and one of a process that
// had started CUDA for several cards together and could not test this one, be it for another's sake.
func (o Outcome) Retry(together bool) bool {
	return o.Bad() || together && o.Result == gpu.ProbeSkipped && o.Times.Init > 0
}

// Again is what to believe after a second process has tested the card alone: the later result, which is surer where
// both agree.
func (o Outcome) Again(second gpu.Probe) Outcome {
	if second.Result == gpu.ProbeSkipped {
		return o
	}
	after := Outcome{Probe: second, Seen: 1}
	if o.Result == second.Result && o.error() == after.error() {
		after.Seen = o.Seen + 1
	}
	return after
}

func (o Outcome) error() int {
	if o.Error == nil {
		return -1
	}
	return o.Error.Code
}

func FoundByTests(cards []finding.Card, outcomes []Outcome) (found []finding.Finding) {
	for _, c := range cards {
		for _, o := range outcomes {
			if o.Device == c.Device.ID && o.Device != "" && (o.Bad() || o.Result == gpu.ProbeGap) {
				found = append(found, o.finding(c))
			}
		}
	}
	return found
}

func (o Outcome) finding(c finding.Card) finding.Finding {
	f := finding.Finding{GPU: c.Device.ID, Index: &c.Index, Expected: "a block as large as the free memory"}
	switch o.Result {
	case gpu.ProbeGap:
		f.Code, f.Bytes = code.Gap, gpu.Unknown("free memory or largest block unknown")
		if o.Free.Known() && o.Largest.Known() {
			f.Bytes = gpu.Bytes(o.Free.Bytes - min(o.Free.Bytes, o.Largest.Bytes))
		}
		f.Observed = fmt.Sprintf("%s free, but at most %s in one block, after %d attempts", size(o.Free),
			size(o.Largest), o.Attempts)
	case gpu.ProbeBlocked:
		f.Code, f.Observed = code.Blocked, o.reason()
		if o.Free.Known() {
			f.Observed = fmt.Sprintf("none of %s free could be allocated: %s", size(o.Free), f.Observed)
		}
	case gpu.ProbeBroken:
		f.Code, f.Observed, f.Expected = code.Broken, o.reason(), "memory can be had through CUDA"
	}
	if !o.Earlier.IsZero() {
		f.Observed = fmt.Sprintf("tested at %s, at an earlier job's end or start: %s",
			o.Earlier.UTC().Format("2006-01-02 15:04:05 UTC"), f.Observed)
		f.Doubts = append(f.Doubts, "it was tested by an earlier hook and may have been repaired since")
	}
	if o.Bad() && o.Seen < 2 {
		f.Doubts = append(f.Doubts, "seen once, by one process")
	}
	if own := o.own(c.Device); o.Bad() && own != "" {
		f.Doubts = append(f.Doubts, own)
	}
	return f
}

func size(f gpu.Figure) string {
	if !f.Known() {
		return "an unknown amount"
	}
	if f.Bytes >= 1<<30 {
		return fmt.Sprintf("%.1f GiB", float64(f.Bytes)/(1<<30))
	}
	return fmt.Sprintf("%d MiB", f.Bytes>>20)
}

// reason words the failed call with its meaning and remedy, or else says why without one.
func (o Outcome) reason() string {
	e := o.Error
	if e == nil {
		return o.Why
	}
	text := fmt.Sprintf("%s: %s", e.Call, e.Name)
	if e.Code > 0 { // others are the backend's own: the driver gave none
		text += fmt.Sprintf(" (%d)", e.Code)
	}
	for _, more := range []string{o.Why, e.Meaning, e.Remedy} {
		if more != "" && more != text { // a backend may say the same in its own words
			text += "; " + strings.TrimSuffix(more, ".")
		}
	}
	return text
}

// own says why a bad result may be the test's own: the errors that limits of the hook's process, a library in the wrong
// place or device nodes that it was denied lead to are the vendor's.
func (o Outcome) own(d gpu.Device) string {
	switch e := o.Error; {
	case e == nil:
		return "no call is known to have failed: the backend itself may be at fault"
	case slices.Contains(gpu.VendorOf(d).Surroundings, e.Code) && o.Result == gpu.ProbeBroken, e.Code <= 0,
		strings.HasPrefix(e.Call, "dl"):
		return "the error may come from the test's own surroundings (library, limits, device nodes)"
	}
	return ""
}
