package slurmcmd

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"bookend/internal/slurm"
	"bookend/internal/slurmconf"
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

// Remark is a line about a job's run on one node for Slurm's accounting: "n1: BKD-ORPHAN gpu 0 20.0 GiB".
type Remark struct {
	Job, UID uint32 // Job is Slurm's own number, also of an array's task
	Node     string
	Began    time.Time
	Text     string
}

// Commenter writes remarks into the SystemComment of jobs.
type Commenter struct {
	Slurm Scontrol // sacct and sacctmgr are next to scontrol
	Most  int      // jobs to write
	Dry   bool     // only say what would be written
	Say   func(format string, args ...any)
}

func (c Commenter) Write(all []Remark) error {
	of, count := map[uint32][]Remark{}, map[string]int{}
	for _, r := range all {
		of[r.Job] = append(of[r.Job], r)
	}
	jobs := slices.Sorted(maps.Keys(of))
	records, err := c.Slurm.accounts(jobs)
	for _, job := range jobs {
		result := untried
		if err == nil && count[written] < c.Most {
			result, err = c.write(records[job], of[job])
		}
		count[result]++
	}
	for _, result := range slices.Sorted(maps.Keys(count)) {
		c.Say("%s: %d", result, count[result])
	}
	return err
}

const written, untried = "written", "left for the next run"

// write leaves a job whose newest record may mean another run, and one with a comment that is not ours.
func (c Commenter) write(records []account, remarks []Remark) (string, error) {
	text, job := "", account{}
	for _, r := range remarks {
		if of, certain := r.record(records); certain {
			job, text = of, r.addTo(cmp.Or(text, of.comment))
		}
	}
	switch {
	case text == "":
		return "not certainly the job's last run", nil
	case job.comment != "" && !strings.HasPrefix(job.comment, ours):
		return "with another's comment", nil
	case strings.EqualFold(text, job.comment): // Slurm 22.05 stores it in lower case
		return "there already", nil
	}
	out, result, err := "", "not written (--dry-run)", error(nil)
	if !c.Dry {
		result = written
		out, err = c.Slurm.sibling("sacctmgr").run("-i", "modify", "job", "where", "jobid="+job.id, "set",
			"SystemComment="+text)
	}
	switch {
	case strings.Contains(out, "Nothing modified"):
		return "not yet in the accounting", nil
	case err != nil:
		return untried, err
	}
	c.Say("job %s: %s", job.id, text)
	return result, nil
}

const (
	ours        = "bookend " // begins each comment of ours
	mostComment = 200        // bytes
)

// addTo adds the remark to a comment unless that has it. For what does not fit there is no room.
func (r Remark) addTo(comment string) string {
	const between = "; "
	has := strings.ToLower(between + strings.TrimPrefix(comment, ours) + between)
	switch text := comment + between + r.Text; {
	case comment == "":
		return ours + r.Text
	case strings.Contains(has, strings.ToLower(between+r.Text+between)), len(text) > mostComment:
		return comment
	default:
		return text
	}
}

// account is a record of a job, of which a requeued one has several. A time that Slurm does not know is zero.
type account struct {
	id, uid, nodes, comment string // id as sacctmgr must name the job
	submit, start, end      time.Time
}

// record returns the newest record of the job, and whether the remark is certainly about that and no other one.
func (r Remark) record(all []account) (newest account, certain bool) {
	const skew = 10 * time.Second // of two hosts' clocks
	fits := func(a account) bool {
		return a.start.Before(r.Began.Add(skew)) && (a.end.IsZero() || r.Began.Before(a.end.Add(skew)))
	}
	fit := 0
	for _, a := range all {
		if !a.submit.Before(newest.submit) {
			newest = a
		}
		if fits(a) {
			fit++
		}
	}
	on, _ := slurmconf.Contains(newest.nodes, r.Node)
	over := fits(newest) && !newest.start.IsZero() && !newest.end.IsZero()
	return newest, fit == 1 && over && newest.uid == fmt.Sprint(r.UID) && on && slurm.ValidNode(r.Node)
}

// accounts asks sacct for all records of jobs.
func (c Scontrol) accounts(jobs []uint32) (map[uint32][]account, error) {
	all := map[uint32][]account{}
	c.most = 32 << 20     // arrays of 50,000 tasks
	const atOnce = 10_000 // an argument may have 128 KiB
	for some := range slices.Chunk(jobs, atOnce) {
		if err := c.accountsOf(some, all); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (c Scontrol) accountsOf(jobs []uint32, all map[uint32][]account) error {
	const fields = "-oJobIDRaw,JobID,UID,NodeList,Submit,Start,End,SystemComment"
	list := strings.Trim(strings.ReplaceAll(fmt.Sprint(jobs), " ", ","), "[]")
	text, err := c.sibling("sacct").run("-XDPn", fields, "-j"+list)
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), "|", 8)
		job, known := slurm.ParseJobID(f[0])
		if len(f) != 8 || !known {
			continue
		}
		a := account{id: f[0], uid: f[2], nodes: f[3], comment: f[7]}
		if strings.ContainsAny(f[1], "_+") { // the number alone may mean a whole array
			a.id = f[1]
		}
		for i, at := range []*time.Time{&a.submit, &a.start, &a.end} {
			*at, _ = time.Parse(timeForm, f[4+i])
		}
		all[uint32(job)] = append(all[uint32(job)], a)
	}
	return err
}
