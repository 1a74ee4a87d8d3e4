package stage

import (
	"fmt"
	"slices"
	"strings"

	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/runlog"
)

// quieten keeps health checks from filling the log: they come every few minutes. One that found nothing is for who debugs,
// one that found the same as another within the hour as well.
func (h *hook) quieten(e *runlog.Entry) {
	if len(h.found) == 0 {
		e.Level = config.Debug
		return
	}
	if h.store == nil {
		return
	}
	var all []string
	for _, f := range h.found {
		all = append(all, sameAgain(f))
	}
	slices.Sort(all)
	say, suppressed := h.store.Repeat("check "+brief(strings.Join(slices.Compact(all), " ")), h.env.Clock.Boot())
	if e.Fields["suppressed"] = suppressed; !say {
		e.Level = config.Debug
	}
}

// sameAgain names a finding for telling whether it was said: by what it is and whose, not by figures that wander.
func sameAgain(f finding.Finding) string {
	key := string(f.Code)
	if f.GPU != "" {
		key += " " + string(f.GPU)
	}
	if f.Holder != nil {
		key += fmt.Sprintf(" %d", f.Holder.PID)
	}
	return key
}

// brief cuts a key to what a record of what was said has room for.
func brief(key string) string { return key[:min(len(key), 200)] }

// onCardWords is a finding on a card in one line of the log.
func onCardWords(f finding.Finding) string {
	var parts []string
	switch {
	case f.Index != nil:
		parts = append(parts, fmt.Sprintf("GPU %d", *f.Index))
	case f.GPU != "":
		parts = append(parts, "GPU "+string(f.GPU))
	}
	if f.Bytes.Known() && f.Bytes.Bytes > 0 {
		parts = append(parts, fmt.Sprintf("%d MiB", f.Bytes.Bytes>>20))
	}
	if f.Holder != nil {
		parts = append(parts, fmt.Sprintf("process %d", f.Holder.PID))
	}
	if f.Owner != nil {
		parts = append(parts, fmt.Sprintf("job %d (%s)", f.Owner.Job, f.Owner.Level))
	}
	if text := detail(f); text != "" {
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}
