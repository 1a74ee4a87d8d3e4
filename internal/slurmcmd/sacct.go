package slurmcmd

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"bookend/internal/slurm"
)

// Accounted is what Slurm's accounting has of a job.
type Accounted struct {
	Job         string // as users write it: of several, one that failed
	State, Exit string // "FAILED", "1:0"
	Nodes       string // a host list; empty if it never ran
	Comment     string // SystemComment: any operator's
	// Memory is the most that gres/gpumem has of one step, in bytes, by default sampled every 30 s; 0 if not recorded.
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

// Recent asks sacct for the jobs of a user in 30 days, for joblog.Accounted: those of a name, or all if it is empty.
func (c Scontrol) Recent(uid int, name string) (text string, err error) {
	c.most = 32 << 20
	args := []string{fmt.Sprint("-u", uid), "-Pn", "-Snow-30days", "-Enow",
		"-oJobID,State,End,ElapsedRaw,AllocTRES,TRESUsageInMax,JobName"}
	if name != "" {
		args = append(args, "--name="+name)
	}
	return c.sibling("sacct").run(args...)
}

// failedStates are those of a job that did not end well.
const failedStates = "FAILED,OUT_OF_MEMORY,TIMEOUT,NODE_FAIL,CANCELLED,DEADLINE,BOOT_FAIL"

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
			a.Memory = max(a.Memory, slurm.GPUMemory(fields[4]))
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
