package main

import (
	"cmp"
	"encoding/json"
	"fmt"

	"bookend/internal/record"
	"bookend/test/soak/world"
)

func inWords(s world.Stock) string {
	text := ""
	for _, i := range s {
		whose := "nobody's"
		if j := i.Creator.Job; j != nil {
			whose = fmt.Sprintf("job %d's", j.ID)
		}
		text += fmt.Sprintf("[%d MiB of process %d, %s, %s, way %d, unlisted %v]",
			i.Bytes/world.MiB, i.Creator.PID, whose, i.Fate, i.Way, i.Unlisted)
	}
	if text == "" {
		return "nothing there"
	}
	return text
}

// say tells a listener what the hook made of it all.
func (h *hook) say() {
	if h.tell == nil {
		return
	}
	say := func(format string, args ...any) { h.tell(h.node.Boottime(h.node.Now), fmt.Sprintf(format, args...)) }
	last := h.node.Boottime(h.seen.last).Seconds()
	say("%s of job %d (%s): %s, exit %d, last look at %.3f s", h.Phase, h.job.ID, cmp.Or(h.damage.kind, "whole"), h.Action, h.Exit, last)
	for _, c := range h.Seen.Cards {
		curve := h.Seen.Side.Curves[c.Device.ID]
		r, _ := h.Seen.Side.Snapshot.Reading(c.Device.ID)
		say("  %s: %s, %d looks over %.2f s, used %d MiB, listed %v", c.Device.ID, curve.State, curve.Looks,
			curve.Span.Seconds(), r.Memory.Used.Bytes/world.MiB, r.Processes)
		if curve.State == record.Clean && len(h.node.Stock(h.card(c.Device.ID), h.seen.last)) > 0 {
			say("  in truth: %s", inWords(h.node.Stock(h.card(c.Device.ID), h.seen.last)))
		}
	}
	for i, f := range h.Found {
		text, _ := json.Marshal(f)
		say("  %s, action %s", text, h.Of(i).Action)
	}
}
