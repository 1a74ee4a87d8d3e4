package main

import (
	"cmp"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	"bookend/internal/record"
	"bookend/test/cluster"
)

// program takes a GPU's memory through one framework, and fails as that does.
type program struct {
	name   string
	kind   string // of the memory that ran out
	says   string // how Bookend's record of the message begins; empty: as any about that kind
	before string // a line of the job's script
}

// programs are those of scenarios/programs.py, and one of CUDA's runtime.
var programs = []program{
	{name: "torch", kind: "device"}, {name: "jax", kind: "device"}, {name: "cupy", kind: "device"}, {name: "numba",
		kind: "device"},
	{name: "plain", kind: "device"}, {name: "triton", kind: "shared"},
	{name: "onnx", kind: "host", says: "ONNX Runtime ", before: "ulimit -v 20000000"}, // it says the same of a GPU's
}

func (r *run) programsDied() {
	r.each(programs, "", "FAILED", func(p program, job *job) {
		r.understood(p, job)
		r.ownFault(p, job)
	})
}

func (r *run) programsCaught() {
	gpus := slices.DeleteFunc(slices.Clone(programs), func(p program) bool { return p.name == "onnx" })
	r.each(gpus, "caught", "COMPLETED", func(p program, job *job) {
		text := unwrapped(job.Output)
		r.holds(p.name+": the job's log",
			"no reason for a failure that was none", text, diagnosed(job).Headline == "" || strings.Contains(text, "ended without an error") || strings.Contains(text, "A kernel wanted"))
	})
}

func (r *run) programsRank() {
	step := fmt.Sprintf("srun --label --ntasks=4 --kill-on-bad-exit=1 %s %s rank", r.python,
		r.site.Program("programs.py"))
	job := r.fails(r.script(step), 0, "--ntasks=4")
	r.understood(programs[0], job)
	c := job.because(record.CauseProcesses)
	r.holds("cause "+string(c.Name), "yes or cannot tell", answered(c), c.Answer != record.No)
	r.ownFault(program{name: "torch"}, job)
	r.holds("the rank that failed", "rank 2", messages(job), strings.Contains(messages(job), "rank 2: "))
}

func (r *run) programsTwice() {
	jax := program{name: "jax", kind: "device"}
	job := r.fails(r.script(r.program(jax, "held")+" &", "sleep 15", "exec "+r.program(jax, "slowly")), 0)
	r.understood(jax, job)
	several := severalAtOnce
	several.either = slices.Concat(several.either, list(record.CauseLimits)) // JAX says much, of which not all is read
	r.answers(job, several)
	r.said(job, "processes of your job")
}

func (r *run) programsUnread() {
	line := "echo job=$SLURM_JOB_ID; exec " + r.program(programs[0], "slowly")
	text, err := r.site.Srun(r.site.Users[0], "--gres=gpu:1", "--nodelist="+r.node, "/bin/sh", "-c", line)
	m := regexp.MustCompile(`job=(\d+)`).FindStringSubmatch(text)
	if err == nil || m == nil {
		panic(fmt.Errorf("srun said %q, error %v: want a job that fails", tail(text), err))
	}
	job := r.finish(cluster.JobID(m[1]))
	d := diagnosed(job)
	r.holds("the headline", "its own use, which the recorder saw, or that its output was not read", d.Headline,
		strings.Contains(d.Headline, "your job itself") ||
			strings.Contains(d.Headline, "your job used nearly all") || strings.Contains(d.Headline, "not read"))
	for _, c := range d.Causes {
		if c.Name == record.CauseOwn || c.Name == record.CausePool {
			r.holds("cause "+string(c.Name), "no no", string(c.Answer), c.Answer != record.No)
		}
	}
	r.holds("the terminal", "has the job's peak", tail(text), strings.Contains(text, "peak "))
}

// each runs the programs side by side, as many as there are GPUs at once, and judges each job.
func (r *run) each(all []program, how, state string, judge func(program, *job)) {
	r.compilePlain()
	var ids []cluster.JobID
	for _, p := range all {
		id := r.submit(0, r.script(p.before, r.program(p, how)), "--gres=gpu:1")
		ids = append(ids, id)
	}
	for i, p := range all {
		job := r.finish(ids[i])
		if r.check(p.name+": the job", state, job.State); job.State == state {
			judge(p, job)
		}
	}
}

func (r *run) program(p program, how string) string {
	if p.name == "plain" {
		return strings.TrimSpace(r.site.Program("plain") + " " + how)
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s %s %s", r.python, r.site.Program("programs.py"), p.name, how))
}

// understood wants the message of the program's failure in the job's record.
func (r *run) understood(p program, job *job) {
	got := messages(job)
	want := cmp.Or(p.says, p.kind+": ")
	r.holds(p.name+": what its output says", "a message with "+want, got, strings.Contains(got, want))
}

// ownFault wants no cause but the job's own: that is a yes or cannot be told, and of the rest none is a yes.
func (r *run) ownFault(p program, job *job) {
	mine := []record.CauseName{record.CauseOwn, record.CauseLimits, record.CauseProcesses}
	d := diagnosed(job)
	for _, c := range d.Causes {
		what := p.name + ": cause " + string(c.Name)
		switch {
		case !slices.Contains(mine, c.Name):
			r.holds(what, "no or cannot tell", answered(c), c.Answer != record.Yes)
		case c.Name == record.CauseOwn && p.kind == "device", c.Name == record.CauseLimits && p.kind == "host":
			r.holds(what, "yes or cannot tell", answered(c), c.Answer != record.No)
		}
	}
	r.holds(p.name+": its diagnosis", "every cause judged", len(d.Causes), len(d.Causes) == len(causes))
}

func answered(c record.Cause) string { return string(c.Answer) + ": " + c.Evidence }

// diagnosed is what a job's end says of a shortage, empty where there is none.
func diagnosed(job *job) (d record.Diagnosis) {
	if at := job.AtEnd().Diagnosis; at != nil {
		d = *at
	}
	return d
}

// messages are those that were found in a job's output, in a line.
func messages(job *job) string {
	var all []string
	for _, m := range job.AtEnd().Messages {
		said := fmt.Sprintf("%s %s: %s", m.Framework, m.Kind, m.Line)
		if m.Rank != nil {
			said = fmt.Sprintf("rank %d: %s", *m.Rank, said)
		}
		all = append(all, said)
	}
	return strings.Join(all, "; ")
}

// compilePlain builds the program of CUDA's runtime with the machine's own compiler.
func (l *lane) compilePlain() {
	nvcc, err := exec.LookPath("nvcc")
	if err != nil {
		panic(fmt.Errorf("the programs scenarios need CUDA's compiler: %w", err))
	}
	out, err := exec.Command(nvcc, "-o", l.site.Program("plain"), l.site.Program("plain.cu")).CombinedOutput()
	if err != nil {
		panic(fmt.Errorf("%s: %w: %s", nvcc, err, out))
	}
}
