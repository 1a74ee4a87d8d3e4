package joblog

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"bookend/internal/child"
	"bookend/internal/record"
	"bookend/internal/slurm"
)

// Usage is what a run used, as the recorder saw it: on one node or, merged, on all of them.
type Usage struct {
	Name    string  `json:"name"` // of the job: the user's claim; empty without task hooks
	End     string  `json:"end"`  // Ended, "failed" or "unknown"
	RanOut  bool    `json:"out_of_memory"`
	Seconds float64 `json:"duration_seconds"`
	Nodes   int     `json:"nodes"` // of the job; 0 if unknown
	Every   float64 `json:"every_seconds"`
	// Unmeasured is why a peak may have been higher; empty if the samples cover the whole run.
	Unmeasured string `json:"unmeasured"`
	GPUs       []Used `json:"gpus"`
}

// Ended is the end of a run whose script and steps exited 0, and that was neither cancelled nor requeued.
const Ended = "ok"

// Used is what was used of one GPU.
type Used struct {
	Model string `json:"model"`
	Total uint64 `json:"total_bytes"`  // 0 if unknown
	Peak  uint64 `json:"peak_bytes"`   // in use on the GPU, of all of its processes
	Busy  *int   `json:"busy_percent"` // mean
	// Shared is "MIG", "MPS", "other jobs" or "leftover memory" if the job had only a part of the GPU.
	Shared string `json:"shared"`
}

// PastRun is one of a user's earlier runs.
type PastRun struct {
	Job string    `json:"job"`
	At  time.Time `json:"ended_at"`
	Usage
}

// Model is a type of GPU that a run of the user's had, and what the listed runs' peaks mean for it.
type Model struct {
	Name   string `json:"model"`
	Total  uint64 `json:"total_bytes"`
	Answer string `json:"answer"` // "ran there", "fits", "may not fit" or "unknown"
	Why    string `json:"why"`
}

// Peaks is printed by "bookend peaks".
type Peaks struct {
	Version int       `json:"version"`
	Kind    string    `json:"kind"`
	Name    string    `json:"name"`   // of the listed runs; empty: any
	Source  string    `json:"source"` // spool, or sacct, which does not know the GPUs
	Runs    []PastRun `json:"runs"`   // newest first, at most mostRuns
	Models  []Model   `json:"models"` // only with a name
}

const mostRuns = 10

// NewPeaks returns the last runs of a job name, or of any if that is empty, and what follows from them.
func NewPeaks(version int, source, name string, all []Spooled) Peaks {
	p := Peaks{Version: version, Kind: "peaks", Name: name, Source: source, Runs: []PastRun{}, Models: []Model{}}
	runs := merged(all)
	for _, r := range runs {
		if (name == "" || r.Name == name) && len(p.Runs) < mostRuns {
			p.Runs = append(p.Runs, r)
		}
	}
	for i := 0; name != "" && len(p.Runs) > 0 && i < len(runs); i++ {
		for _, u := range runs[i].GPUs {
			m := Model{Name: u.Model, Total: u.Total}
			m.Answer, m.Why = p.fit(m)
			if u.is(m) && !slices.Contains(p.Models, m) {
				p.Models = append(p.Models, m)
			}
		}
	}
	slices.SortStableFunc(p.Models, func(a, b Model) int { return cmp.Compare(b.Total, a.Total) })
	return p
}

// is reports whether a run had a whole GPU of the type, of known size.
func (u Used) is(m Model) bool {
	return u.Shared == "" && u.Total > 0 && u.Model == m.Name && u.Total == m.Total
}

// merged joins the nodes of each run, the newest run first. Without the file of each node a peak may have been higher.
func merged(all []Spooled) (runs []PastRun) {
	at, files := map[string]int{}, []int{}
	slices.SortStableFunc(all, func(a, b Spooled) int { return b.At.Compare(a.At) })
	for _, s := range all {
		// Clusters that share a home have the same ids.
		u, run := s.Used, fmt.Sprint(s.Cluster, s.ID, s.Restart, s.SLUID, s.Used.Nodes)
		i, known := at[run]
		switch {
		case u.Nodes == 0 && len(u.GPUs) == 0: // a file of an earlier release
		case !known:
			at[run], u.GPUs = len(runs), append([]Used{}, u.GPUs...)
			runs, files = append(runs, PastRun{s.Job, s.At, u}), append(files, 1)
		default:
			r := &runs[i]
			files[i]++
			r.Name, r.Unmeasured = cmp.Or(r.Name, u.Name), cmp.Or(r.Unmeasured, u.Unmeasured)
			r.End = min(r.End, u.End) // a failure anywhere, else what the first node read in the output
			r.RanOut, r.GPUs = r.RanOut || u.RanOut, append(r.GPUs, u.GPUs...)
			r.Seconds, r.Every = max(r.Seconds, u.Seconds), max(r.Every, u.Every)
		}
	}
	for i := range runs {
		r := &runs[i]
		if r.Nodes != files[i] {
			r.Unmeasured = cmp.Or(r.Unmeasured, fmt.Sprintf("reports came from %d of %d nodes", files[i], r.Nodes))
		}
		if r.Nodes < files[i] {
			r.End = "unknown" // of two jobs of one id
		}
	}
	return runs
}

// fit says what the runs' peaks mean for a type of GPU. It never says that a GPU is too small: a program may need less
// than it took. What more it would take on another type is not known either. Many programs take a share of the GPU,
// such as half: less of a smaller one.
func (p Peaks) fit(m Model) (answer, why string) {
	const unknown = "unknown"
	here, most, share, doubt, enough := 0, uint64(0), 0.0, "", false
	for _, r := range p.Runs {
		peak, only, small := uint64(0), true, true
		for _, u := range r.GPUs {
			peak, only, small = max(peak, u.Peak), only && u.is(m), small && u.Total > 0 && u.Total <= m.Total
			if u.Shared != "" || u.Total == 0 {
				doubt = cmp.Or(doubt, "a run had a part of a GPU, or one of unknown size")
				continue
			}
			most, share = max(most, u.Peak), max(share, float64(u.Peak)/float64(u.Total))
		}
		switch {
		case r.RanOut:
			doubt = "a run ran out of memory"
		case r.End != Ended:
		case strings.Contains(r.Job, "+"): // the script, and so the name, is the first component's
			doubt = cmp.Or(doubt, "a run was a part of a heterogeneous job")
		case peak <= record.MaxBaseline: // its script may have gone on without them
			doubt = cmp.Or(doubt, "a run did not use its GPUs")
		default:
			doubt, enough = cmp.Or(doubt, r.Unmeasured), enough || small
			if only {
				here++
			}
		}
	}
	used := "used " + gib(most)
	switch {
	case here > 0:
		return "ran there", fmt.Sprintf("%d of %d runs had exit 0 there", here, len(p.Runs))
	case share >= 0.45:
		return unknown, "the program took about half of the GPU that it got, or more"
	case most > m.Total && !enough:
		return mayNotFit, used
	case p.Runs[0].End != Ended:
		return unknown, "the last run did not end well, as far as is known"
	case doubt != "":
		return unknown, doubt
	case most+max(m.Total/10, 2<<30) > m.Total:
		return unknown, used + ", which leaves less than a tenth"
	}
	return "fits", used
}

const mayNotFit = "may not fit"

// FitRequest asks what a user's last runs of a job's name on a cluster mean for a GPU.
type FitRequest struct {
	Dir, User, Home, Cluster, Name string // Dir as configured
	UID                            uint32
	GPU                            Model
}

// MayNotFit returns a line for the job's log, empty unless those runs used more than the GPU has. The spool's file
// system may hang, and its files are as the user left them.
var MayNotFit = child.NewOperation("peaks", fitOf)

func fitOf(r FitRequest) (string, error) {
	dir, refused := openSpool(spoolDir(r.Dir, r.User, r.Home), r.UID)
	if refused != "" {
		return "", fmt.Errorf("open spool: %s", refused)
	}
	defer dir.Close()
	var all []Spooled
	files, named := spoolFiles(dir), 0 // each file takes time
	for i := 0; i < len(files) && named <= mostRuns; i++ {
		s, ours := readSpooled(dir, files[i].Name())
		if !ours || s.Cluster != r.Cluster {
			continue
		}
		all = append(all, s)
		if s.Used.Name == r.Name { // that of the run's first node
			named++
		}
	}
	return NewPeaks(0, "", r.Name, all).warning(r.GPU), nil
}

// warning is a line of at most 160 characters, without control characters.
func (p Peaks) warning(m Model) string {
	unnamed := []string{"wrap", "sbatch"} // what sbatch calls scripts that are no file: any of the user's
	if len(p.Runs) == 0 || slices.Contains(unnamed, p.Name) {
		return ""
	}
	answer, used := p.fit(m)
	if answer != mayNotFit {
		return ""
	}
	head, name := "bookend: your last run of ", strconv.QuoteToASCII(p.Name)
	if n := len(p.Runs); n > 1 {
		head = fmt.Sprintf("bookend: your last %d runs of ", n)
	}
	const form = " peaked at %s on one GPU; here a GPU has %s: it may not fit. See: bookend peaks NAME"
	tail := fmt.Sprintf(form, strings.TrimPrefix(used, "used "), gib(m.Total))
	if room := 160 - len(head+tail); len(name) > room {
		name = name[:room-3] + "..."
	}
	return head + name + tail
}

func gib(bytes uint64) string { return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30)) }

// Text writes the runs and, of one job name, what their peaks mean for each type of GPU.
func (p Peaks) Text(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "JOB\tNAME\tENDED\tRAN\tEND\tPEAK\tBUSY\tGPUS")
	every, partly := 0.0, ""
	for _, r := range p.Runs {
		end := r.End
		if r.RanOut {
			end = "no memory"
		}
		fmt.Fprintln(t, strings.Join([]string{r.Job, cmp.Or(r.Name, "?"), r.At.Local().Format("01-02 15:04"),
			(time.Duration(r.Seconds) * time.Second).String(), end, r.cells()}, "\t"))
		every, partly = max(every, r.Every), cmp.Or(partly, r.Unmeasured)
	}
	_ = t.Flush() // errors of w are kept by w
	if every > 0 {
		fmt.Fprintf(w, "Sampled every %g s: a shorter peak may be missing.\n", every)
	}
	if partly != "" {
		fmt.Fprintf(w, ">= means that the peak may have been higher: %s.\n", partly)
	}
	if len(p.Models) == 0 {
		return
	}
	fmt.Fprintf(w, "\nWhat these runs of %s mean for the GPUs that your jobs have had:\n", p.Name)
	for _, m := range p.Models {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", m.Name, gib(m.Total), m.Answer, m.Why)
	}
	_ = t.Flush()
	fmt.Fprintln(w, "fits: a tenth of it stays free, with as many GPUs as these runs had. Other input may\n"+
		"need more, and the same input on another type of GPU too. All other types: unknown.\n"+
		"A program that takes a fixed share of its GPU, as JAX does, has less on a smaller one.")
}

// cells returns the highest peak of a run's GPUs, their mean use, and which they are.
func (r PastRun) cells() string {
	most, sum, count, models := Used{}, 0, 0, map[string]int{}
	for _, u := range r.GPUs {
		if u.Busy != nil {
			sum, count = sum+*u.Busy, count+1
		}
		if u.Peak >= most.Peak {
			most = u
		}
		models[strings.TrimSpace(cmp.Or(u.Model, "?")+" "+u.Shared)]++
	}
	peak, busy, names := gib(most.Peak), "-", ""
	if most.Total > 0 {
		peak = strings.TrimSuffix(peak, "GiB") + "of " + gib(most.Total)
	}
	switch {
	case len(r.GPUs) == 0:
		peak = "unknown"
	case r.Unmeasured != "":
		peak = ">= " + peak
	}
	if count > 0 {
		busy = fmt.Sprintf("%d %%", sum/count)
	}
	for _, name := range slices.Sorted(maps.Keys(models)) {
		names += fmt.Sprintf(", %d %s", models[name], name)
	}
	return peak + "\t" + busy + "\t" + cmp.Or(strings.TrimPrefix(names, ", "), "-")
}

// Accounted is what sacct has of a user's jobs that have ended: see slurmcmd.Recent. Lines of steps follow their job's.
// NewPeaks leaves out those without GPUs.
func Accounted(text string) (all []Spooled) {
	one := false // a step's figure is the sum of all GPUs that a task used
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), "|", 7)
		if len(f) != 7 {
			continue
		}
		job, _, step := strings.Cut(f[0], ".")
		end, err := time.Parse("2006-01-02T15:04:05", f[2])
		if !step && err == nil {
			one = slices.Contains(strings.Split(f[4], ","), "gres/gpu=1")
			ran, _ := strconv.Atoi(f[3])
			state := "failed"
			if f[1] == "COMPLETED" {
				state = Ended
			}
			all = append(all, Spooled{ID: slurm.JobID(len(all)), Job: job, At: end, Used: Usage{Name: f[6],
				End: state, RanOut: f[1] == "OUT_OF_MEMORY", Seconds: float64(ran),
				Nodes: min(1, strings.Count(f[4], "gres/gpu")), Unmeasured: "these are Slurm's samples"}})
		}
		if n := slurm.GPUMemory(f[5]); n > 0 && one && len(all) > 0 && all[len(all)-1].Job == job {
			u := &all[len(all)-1].Used
			u.GPUs = []Used{{Peak: max(n, append(u.GPUs, Used{})[0].Peak)}}
		}
	}
	return all
}
