package answer

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"bookend/internal/ledger"
)

// recorded is what the recorder saw of a run.
func (s *Summary) recorded(r ledger.Run) {
	end := r.Epilog()
	if end == nil || end.Recording == nil {
		const why = "nothing is on record of the time between its start and its end"
		s.Unknown.because("peak_bytes", why)
		s.Unknown.because("busy_percent", why)
		return
	}
	if len(end.Recording.Gaps(r.First().At, end.At)) > 0 {
		s.Unknown.because("peak_bytes", "it was not recorded all of the time")
		s.Unknown.because("busy_percent", "it was not recorded all of the time")
		return
	}
	var peak uint64
	untold := false
	var busy ledger.Busy
	for _, g := range end.Recording.GPUs {
		peak = max(peak, g.Own.Bytes)
		busy.Samples, busy.Sum = busy.Samples+g.Busy.Samples, busy.Sum+g.Busy.Sum
		i := slices.IndexFunc(r.Devices, func(d ledger.Assigned) bool { return d.Device.ID == g.ID })
		untold = untold || g.Together == 0 && !g.Unused()
		if g.Unused() && i >= 0 {
			s.IdleGPUs = append(s.IdleGPUs, r.Devices[i].Index)
		}
	}
	if s.PeakBytes = &peak; peak == 0 && untold {
		s.PeakBytes = nil
		s.Unknown.because("peak_bytes", "whose the processes on its GPUs were is not known")
	}
	if busy.Samples == 0 {
		s.Unknown.because("busy_percent", "the driver does not say")
		return
	}
	percent, _ := busy.Mean()
	s.BusyPercent = &percent
}

// recordedText writes what a job used while it ran, as the recorder saw it; clock is the time of day of a moment.
func (r Run) recordedText(w io.Writer) {
	recording, start := r.recording(), r.Record.First()
	if recording == nil || recording.Samples == 0 {
		return
	}
	clock := func(at time.Duration) string { return start.Clock(at).Local().Format(time.TimeOnly) }
	fmt.Fprintf(w, "while it ran: %s, one every %v\n", count(recording.Samples, "sample", "s"), recording.Every)
	for _, g := range recording.Gaps(start.At, r.until(recording)) {
		fmt.Fprintf(w, "  not recorded from %s to %s\n", clock(g.From), clock(g.To))
	}
	for _, d := range r.Record.Devices {
		for _, g := range recording.GPUs {
			if g.ID == d.Device.ID {
				fmt.Fprintf(w, "  GPU %d  %s\n", d.Index, peaks(g, clock))
				table(w, holders(g, r.Record, clock)...)
			}
		}
	}
}

// recording is that of the run's end, or of a running one so far.
func (r Run) recording() *ledger.Recording {
	if e := r.Record.Epilog(); e != nil {
		return e.Recording
	}
	return r.SoFar
}

// until is the end of the time that a recording is of.
func (r Run) until(recording *ledger.Recording) time.Duration {
	if e := r.Record.Epilog(); e != nil {
		return e.At
	}
	return recording.To
}

// peaks words one GPU.
func peaks(g ledger.Recorded, clock func(time.Duration) string) string {
	most := func(what string, m ledger.Most) string {
		return fmt.Sprintf("%s %s at %s", what, size(&m.Bytes), clock(m.At))
	}
	parts := []string{"memory could not be read"}
	if g.Peak.At > 0 {
		parts[0] = most("peak", g.Peak)
	}
	switch {
	case g.Unused():
		parts = append(parts, "no process")
	case g.Together == 0:
		parts = append(parts, "no process that is known to be the job's")
	case g.Own.Bytes < g.Peak.Bytes/10*9 || len(g.Processes) > 1:
		parts = append(parts, most("the job's own", g.Own), count(g.Together, "process", "es")+" at once")
	}
	if g.Unlisted.Bytes > 0 {
		parts = append(parts, most("without a process", g.Unlisted))
	}
	if percent, known := g.Busy.Mean(); known {
		parts = append(parts, fmt.Sprintf("busy %d %%, idle for %v", percent, g.Busy.Idle.Round(time.Second)))
	}
	if g.Unread > 0 {
		parts = append(parts, count(g.Unread, "sample", "s")+" not read")
	}
	return strings.Join(parts, "; ")
}

// holders are the processes that were seen on a GPU, where they are not one of the job's alone.
func holders(g ledger.Recorded, run ledger.Run, clock func(time.Duration) string) (rows []string) {
	const most = 8
	if len(g.Processes) == 1 && g.Together == 1 {
		return nil
	}
	for _, p := range g.Processes[:min(len(g.Processes), most)] {
		whose := fmt.Sprintf("uid %d", p.UID)
		if p.Owner.Found() {
			whose = fmt.Sprintf("job %d", p.Owner.ID)
		}
		if run.Owns(p.Owner) {
			whose = "the job's"
		}
		rows = append(rows, fmt.Sprintf("    PID %d\t%s\t%s at most\t%s to %s", p.PID, whose, size(&p.Most),
			clock(p.First), clock(p.Last)))
	}
	if more := len(g.Processes) + g.More - len(rows); more > 0 {
		rows = append(rows, fmt.Sprintf("    and %d more", more))
	}
	return rows
}
