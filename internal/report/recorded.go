package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/record"
)

// idleFrom is how long a job must have run before a GPU that it never used is worth a line.
const idleFrom = 10 * time.Minute

// Running returns what can be reported of a job while it runs, for a terminal that its end report does not reach.
func Running(s Scene) string {
	used, idle := used(s.Recording), idleGPUs(s)
	var out []string
	for _, g := range used {
		where := fmt.Sprintf("%s GPU %d", s.Run.Job.Node, numberOf(s, g.ID))
		if others := mostOfOthers(s.Run, g); others > 0 && !s.Shared {
			out = append(out, fmt.Sprintf("%s: another process held %s while your job ran", where, gpu.Size(others)))
		}
		if g.Unlisted.Bytes >= worthTelling && !s.Shared {
			out = append(out, fmt.Sprintf("%s: %s in use without a process", where, gpu.Size(g.Unlisted.Bytes)))
		}
		if len(g.Faults) > 0 {
			out = append(out, where+": "+errorOf(record.Finding{Xid: g.Faults[0].Code}))
		}
		if g.Together > 1 && len(idle) > 0 {
			out = append(out, fmt.Sprintf("%s: %d processes of your job at once, and none on %d other GPUs of its own",
				where, g.Together, len(idle)))
		}
	}
	tells := s.Show == config.ShowSummary || s.Show == config.ShowAll
	if s.Show == config.ShowNone || len(used) == 0 || len(out) == 0 && !tells {
		return ""
	}
	return lines(append(out, s.place()+": "+strings.Join(given(s.peak(), busy(s), foundBefore(s)), "; "))...)
}

// worthTelling is less than what an idle process takes on an H200, in bytes.
const worthTelling = 512 << 20

// busy words how busy the job's GPUs were, empty if the driver did not tell.
func busy(s Scene) string {
	low, high, lowOn := 101, -1, gpu.ID("")
	for _, g := range cmp.Or(s.Recording, &record.Recording{}).GPUs {
		percent := g.Busy.Mean()
		if percent != nil && *percent < low {
			low, lowOn = *percent, g.ID
		}
		if percent != nil {
			high = max(high, *percent)
		}
	}
	switch {
	case high < 0:
		return ""
	case low == high:
		return fmt.Sprintf("busy %d %%", high)
	}
	return fmt.Sprintf("busy %d (GPU %d) to %d %%", low, numberOf(s, lowOn), high)
}

func foundBefore(s Scene) string {
	var most uint64
	for _, f := range cmp.Or(s.Run.Start, &record.End{}).Findings {
		if aboutMemory(f) {
			most = max(most, f.Bytes.Bytes)
		}
	}
	if most < worthTelling {
		return ""
	}
	return gpu.Size(most) + " was in use before your job started"
}

// mostOfOthers returns the most memory that another job's process was seen to hold on a GPU, 0 if not worth reporting.
func mostOfOthers(run record.Run, g record.GPURecording) (most uint64) {
	for _, p := range g.Processes {
		if p.Owner.Found() && !run.Owns(p.Owner) && p.Most >= worthTelling {
			most = max(most, p.Most)
		}
	}
	return most
}

func (s Scene) began() time.Duration { return cmp.Or(s.Run.Start, &record.End{}).At }

// peak words the most that the job used, as the recorder saw it, empty if it saw nothing.
func (s Scene) peak() string {
	used := used(s.Recording)
	if len(used) == 0 {
		return ""
	}
	low, high := used[0], used[len(used)-1]
	words := "peak "
	if !s.Recording.Close(s.began(), s.Ended) || !s.Recording.Measures(s.began(), s.Ended) {
		words += "at least "
	}
	if len(used) > 1 && low.Own.Bytes < high.Own.Bytes/10*9 {
		least := strings.TrimSuffix(gpu.Size(low.Own.Bytes), " GiB")
		words += fmt.Sprintf("%s (GPU %d) to ", least, numberOf(s, low.ID))
	}
	words += s.of(high.Own.Bytes)
	switch {
	case len(used) > 1:
		return words
	case high.Together == 1:
		return words + ", one process"
	}
	return fmt.Sprintf("%s, %d processes", words, high.Together)
}

// used returns the GPUs on which processes of the job were seen, lowest peak first.
func used(r *record.Recording) []record.GPURecording {
	unused := func(g record.GPURecording) bool { return g.Together == 0 || g.Own.Bytes == 0 }
	all := slices.DeleteFunc(slices.Clone(cmp.Or(r, &record.Recording{}).GPUs), unused)
	slices.SortStableFunc(all, func(a, b record.GPURecording) int { return cmp.Compare(a.Own.Bytes, b.Own.Bytes) })
	return all
}

// numberOf returns Slurm's number of a GPU, -1 if it is none of the job's.
func numberOf(s Scene, id gpu.ID) int {
	if i := s.rank(id); i < len(s.Cards) {
		return s.Cards[i].Index
	}
	return -1
}

func idleGPUs(s Scene) (numbers []string) {
	for _, g := range cmp.Or(s.Recording, &record.Recording{}).GPUs {
		if s.Recording.Idle(g, s.began(), s.Ended) {
			numbers = append(numbers, fmt.Sprint(numberOf(s, g.ID)))
		}
	}
	return numbers
}

// neverUsed continues a node's name by the GPUs that a job of some length did not use, empty if there are none.
func neverUsed(s Scene) string {
	idle := idleGPUs(s)
	switch {
	case len(used(s.Recording)) == 0 || s.Ended-s.began() < idleFrom || len(idle) == 0:
		return ""
	case len(idle) == 1:
		return fmt.Sprintf(" GPU %s was never used by your job", idle[0])
	}
	return fmt.Sprintf(" GPUs %s were never used by your job", strings.Join(idle, ","))
}
