package slurmcmd

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"bookend/internal/slurm"
)

// Accounted is what Slurm's accounting has of a job.
type Accounted struct {
	Job         string // as users write it: of several, one that failed
	State, Exit string // "FAILED", "1:0"
	Nodes       string // a host list; empty if it never ran
	Comment     string // SystemComment: any operator's
	// Memory is the most that gres/gpumem has of one step, in bytes; 0 if the site does not record it. Slurm samples it
	// every 30 s unless told otherwise.
	Memory uint64
	More   int // other jobs that the reference names, as of an array
}

// Accounting asks sacct, which is next to scontrol, about a user's own job.
func (c Scontrol) Accounting(job slurm.Ref, uid int) (Accounted, error) {
	c.most = 32 << 20 // an array of 50,000 tasks
	const fields = "-oJobID,State,ExitCode,NodeList,TRESUsageInMax,SystemComment"
	text, err := c.sibling("sacct").run("-j"+job.Text, fmt.Sprint("-u", uid), "-PnD", fields)
	if err != nil {
		return Accounted{}, err
	}
	return parseAccounting(text, job)
}

// failedStates are those of a job that did not end well.
const failedStates = "FAILED,OUT_OF_MEMORY,TIMEOUT,NODE_FAIL,CANCELLED,DEADLINE,BOOT_FAIL"

// LastFailed asks sacct for the last job of a user in a week that did not end well.
func (c Scontrol) LastFailed(uid int) (slurm.Ref, error) {
	c.most = 32 << 20
	text, err := c.sibling("sacct").run(fmt.Sprint("-u", uid), "-XPn", "-Snow-7days", "-Enow",
		"-s"+failedStates, "-oEnd,JobID") // without -E it finds none
	if err != nil {
		return slurm.Ref{}, err
	}
	return lastOf(text)
}

// lastOf returns the job of the line with the latest time. One that has not ended has none: "Unknown".
func lastOf(text string) (slurm.Ref, error) {
	last, id := "", ""
	for line := range strings.Lines(text) {
		if at, job, _ := strings.Cut(strings.TrimSpace(line), "|"); at > last && at[0] != 'U' {
			last, id = at, job
		}
	}
	return slurm.ParseRef(id)
}

// hasFailed reads a state of sacct's, such as "CANCELLED by 1000".
func hasFailed(state string) bool {
	word, _, _ := strings.Cut(state, " ")
	return slices.Contains(strings.Split(failedStates, ","), word)
}

// parseAccounting reads a line of the job, then lines of its steps. Of a requeued job the last run counts.
func parseAccounting(text string, job slurm.Ref) (a Accounted, err error) {
	seen, own := map[string]bool{}, false
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), "|", 6)
		if len(fields) != 6 {
			continue
		}
		id, _, step := strings.Cut(fields[0], ".")
		if !step {
			seen[id] = true
			own = a.Job == "" || id == a.Job || !hasFailed(a.State) && hasFailed(fields[1])
			if own {
				a = Accounted{Job: id, State: fields[1], Exit: fields[2], Nodes: fields[3], Comment: fields[5]}
			}
		}
		if own {
			a.Memory = max(a.Memory, gpuMemory(fields[4]))
		}
	}
	if len(seen) == 0 {
		return a, fmt.Errorf("sacct has no job %s", job.Text)
	}
	if a.Nodes == "None assigned" {
		a.Nodes = ""
	}
	a.More = len(seen) - 1
	return a, nil
}

// gpuMemory is gres/gpumem of a list of TRES, in bytes: a number with a unit of 1024, as "36266M".
func gpuMemory(tres string) uint64 {
	for field := range strings.SplitSeq(tres, ",") {
		text, of := strings.CutPrefix(field, "gres/gpumem=")
		if !of {
			continue
		}
		number := strings.TrimRight(text, "KMGTP")
		n, err := strconv.ParseFloat(number, 64)
		power := strings.Index("KMGTP", cmp.Or(strings.TrimPrefix(text, number), " ")) + 1
		if err == nil && n >= 0 && n < 1<<30 {
			return uint64(n * float64(uint64(1)<<(10*power)))
		}
	}
	return 0
}

// Text says what is known, for the job's user.
func (a Accounted) Text(job slurm.Ref) string {
	text := fmt.Sprintf("%s, exit %s, on %s\n", a.State, a.Exit, cmp.Or(a.Nodes, "no node"))
	if a.Memory > 0 {
		text += fmt.Sprintf("GPU memory of one step: at most %.1f GiB (sampled)\n", float64(a.Memory)/(1<<30))
	}
	if a.Comment != "" {
		text += fmt.Sprintf("comment: %s\n", strings.ReplaceAll(a.Comment, "\n", " "))
	}
	if a.More > 0 {
		text += fmt.Sprintf("this is %s, one of %d tasks or components\n", a.Job, a.More+1)
	}
	if first := slurm.FirstHost(a.Nodes); first != "" {
		text += fmt.Sprintf("Next: read the job's own log, or run: srun -w %s bookend why %s\n", first, job.Text)
	}
	return text
}
