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
		others := mostOfOthers(s.Run, g)
		switch {
		case others > 0 && !s.Shared:
			held := gpu.Size(others)
			out = append(out, fmt.Sprintf("%s: another process held %s while your job ran", where, held))
		case g.Together > 1 && len(idle) > 0:
			out = append(out, fmt.Sprintf("%s: %d processes of your job at once, and none on %d other GPUs of its own",
				where, g.Together, len(idle)))
		}
	}
	tells := s.Show == config.ShowSummary || s.Show == config.ShowAll
	if s.Show == config.ShowNone || len(used) == 0 || len(out) == 0 && !tells {
		return ""
	}
	return lines(append(out, s.place()+": "+s.peak())...)
}

// mostOfOthers returns the most memory that another job's process was seen to hold on a GPU, 0 if not worth reporting.
func mostOfOthers(run record.Run, g record.GPURecording) (most uint64) {
	const worthTelling = 512 << 20 // less than what an idle process takes on an H200
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
func used(r *record.Recording) (all []record.GPURecording) {
	if r == nil {
		return nil
	}
	for _, g := range r.GPUs {
		if g.Together > 0 && g.Own.Bytes > 0 {
			all = append(all, g)
		}
	}
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
	if s.Recording == nil {
		return nil
	}
	for _, g := range s.Recording.GPUs {
		if s.Recording.Idle(g, s.began(), s.Ended) {
			numbers = append(numbers, fmt.Sprint(numberOf(s, g.ID)))
		}
	}
	return numbers
}

func neverUsed(s Scene) []string {
	idle := idleGPUs(s)
	switch {
	case len(used(s.Recording)) == 0 || s.Ended-s.began() < idleFrom || len(idle) == 0:
		return nil
	case len(idle) == 1:
		return []string{fmt.Sprintf("%s GPU %s was never used by your job", s.Run.Job.Node, idle[0])}
	}
	return []string{fmt.Sprintf("%s GPUs %s were never used by your job", s.Run.Job.Node, strings.Join(idle, ","))}
}
