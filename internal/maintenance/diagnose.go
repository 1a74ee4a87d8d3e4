package maintenance

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"bookend/internal/condition"
	"bookend/internal/gpu"
	"bookend/internal/node"
	"bookend/internal/record"
	"bookend/internal/slurmcmd"
	"bookend/internal/state"
)

// Diagnose has DCGM test all GPUs of a node while no job can use them, or prints or submits the job that does.
type Diagnose struct {
	Access *node.Access // without a store: of another host's node
	Slurm  slurmcmd.Scontrol
	Level  int // of dcgmi diag
	Dry    bool
	Submit bool
	Say    func(format string, args ...any)
}

func Diagnoses(a *node.Access) ([]gpu.Diagnosis, error) {
	return node.Journal[[]gpu.Diagnosis](a, "diagnoses").Read()
}

// Diagnosed says what hardware that is still here failed in a diagnosis and passed none of at least that level since.
func Diagnosed(a *node.Access) string {
	all, _ := Diagnoses(a) // bookend diagnose reports an unreadable one
	last, passed := state.LastCheck.Peek(a.Store), 0
	for _, d := range slices.Backward(all) {
		var failed []string
		for _, f := range d.Faults() {
			is := func(c record.Assigned) bool { return c.Device.ID == f.GPU }
			if last == nil || f.GPU == "" || slices.ContainsFunc(last.Cards, is) {
				failed = append(failed, f.Summary())
			}
		}
		switch {
		case len(failed) > 0 && d.Level > passed:
			return fmt.Sprintf("dcgmi diag -r %d at %s: %s", d.Level, d.At.Local().Format(time.DateTime),
				strings.Join(failed, "; "))
		case len(d.Faults()) == 0 && d.Unknown == "":
			passed = max(passed, d.Level)
		}
	}
	return ""
}

// Perform makes the diagnosis, and returns whether all tests passed; unknown if none was made, or if what failed may
// not be the hardware.
func (d Diagnose) Perform() (passed record.Answer, err error) {
	a := d.Access
	why := "this host has no records of it"
	if a.Store != nil {
		why = d.mayHaveJob()
	}
	if why != "" {
		return d.asJob(why)
	}
	release, err := a.Store.Turns.Check(time.Minute)
	if err != nil {
		return record.CannotTell, fmt.Errorf("a health check, reset or diagnosis is at work, try again: %w", err)
	}
	defer release()
	now := SampleAll(a, time.Duration(a.Config.Deadlines.Epilog.Driver), false)
	if why := occupied(a, now); why != "" {
		return record.CannotTell, errors.New(why)
	}
	dcgmi := filepath.Join(filepath.Dir(a.Config.Reset.NVIDIASMI), "dcgmi")
	limit := time.Duration(d.Level) * 20 * time.Minute
	if d.Dry {
		d.Say("%s diag -r %d -j, at most %v, between two %[1]s discovery -l", dcgmi, d.Level, limit)
		return record.Yes, nil
	}
	const runs = "bookend: %s diag -r %d runs, at most %v; if you stop this, DCGM's tests go on\n"
	fmt.Fprintf(a.Env.Stderr, runs, dcgmi, d.Level, limit)
	found := d.runDCGM(node.Programs(a, limit).Run, dcgmi, now.Snapshot)
	for _, line := range found.Lines() {
		d.Say("%s", line)
	}
	err = d.keep(found)
	switch {
	case len(found.Faults()) > 0:
		return record.No, err
	case found.Unknown == "" && len(found.Failed) == 0:
		return record.Yes, err
	}
	return record.CannotTell, err
}

func (d Diagnose) mayHaveJob() string {
	if nodes, err := state.Nodes(d.Access.Config.Paths.Run, ""); len(nodes) > 1 || err != nil {
		return "several nodes of Slurm share the GPUs of this host"
	}
	return d.Slurm.Vacant(d.Access.Job.Node, d.Access.Env.Getenv("SLURM_JOB_ID"))
}

// occupied returns why the GPUs cannot be tested now: a process of no service of the node is on one, or may be.
func occupied(a *node.Access, now node.Glance) string {
	if now.Problem != "" {
		return fmt.Sprintf("ask driver: %.200q", now.Problem)
	}
	for _, r := range now.Snapshot.Readings {
		if r.ProcessesUnknown != "" {
			return fmt.Sprintf("the processes on GPU %s are unknown: %.200q", r.Device.ID, r.ProcessesUnknown)
		}
		for _, p := range r.Processes {
			if who := now.Who[p.PID]; !who.OfSystem() {
				return fmt.Sprintf("process %d (%.48q) is on GPU %s: end it first", p.PID, who.Name, r.Device.ID)
			}
		}
	}
	return ""
}

// runDCGM runs DCGM's tests. Its numbers count for a GPU only if they are of the same one before and after.
func (d Diagnose) runDCGM(run func(command ...string) (text string, ended bool, err error), dcgmi string,
	now gpu.Snapshot) gpu.Diagnosis {
	before, _, errBefore := run(dcgmi, "discovery", "-l")
	text, ended, err := run(dcgmi, "diag", "-r", fmt.Sprint(d.Level), "-j")
	after, _, errAfter := run(dcgmi, "discovery", "-l")
	ids := map[int]gpu.ID{}
	if errBefore == nil && errAfter == nil && before == after {
		ids = gpu.DCGMIDs(before, now)
	}
	found := gpu.ReadDiagnosis(text, ids)
	found.At, found.Level = d.Access.Env.Clock.Wall(), d.Level
	if !ended || found.Unknown != "" && err != nil { // other than 0 is also the status after a failed test
		found.Unknown = strings.TrimPrefix(fmt.Sprintf("%s; %v", found.Unknown, err), "; ")
	}
	parts := func(r gpu.Reading) bool { return r.Device.Parent != "" }
	if n := len(slices.DeleteFunc(slices.Clone(now.Readings), parts)); found.Tested < n && len(found.Faults()) == 0 {
		found.Unknown = cmp.Or(found.Unknown, fmt.Sprintf("it tested %d of %d GPUs", found.Tested, n))
	}
	if why := d.mayHaveJob(); why != "" {
		found.Unknown = "a job may have been on the GPUs meanwhile: " + why
	}
	return found
}

func (d Diagnose) keep(found gpu.Diagnosis) error {
	const most = 20
	all, err := Diagnoses(d.Access)
	if all = append(all, found); err == nil {
		err = node.Journal[[]gpu.Diagnosis](d.Access, "diagnoses").Write(all[max(0, len(all)-most):])
	}
	var of []gpu.ID // empty if it is not known of which
	for _, f := range found.Faults() {
		of = append(of, f.GPU)
	}
	for _, id := range slices.Compact(slices.Sorted(slices.Values(of))) {
		card := lastSeen(cmp.Or(state.LastCheck.Peek(d.Access.Store), &record.Check{}), id)
		left, failed := RenewReason(d.Access, d.Slurm, condition.Diagnosed(card))
		if left != "" {
			d.Say("no drain has it as its reason: %s", left)
		}
		err = errors.Join(err, failed)
	}
	return err
}

func (d Diagnose) asJob(why string) (record.Answer, error) {
	name := d.Access.Job.Node
	command := fmt.Sprintf("exec bookend diagnose --level %d %s", d.Level, name)
	output := filepath.Join(d.Access.Config.Paths.Var, "diagnose-%j.out")
	args, err := d.Slurm.Alone(name, "bookend-diagnose", output, command)
	switch {
	case err != nil:
		return record.CannotTell, fmt.Errorf("%s is not tested now: %s; %w", name, why, err)
	case d.Submit && !d.Dry:
		text, err := d.Slurm.Submit(args)
		d.Say("%s; it waits for %s to be empty. Its result: bookend status there, and %s", text, name, output)
		return record.Yes, err
	}
	d.Say("%s is not tested now: %s. The job that has it alone, as root, or with --submit:", name, why)
	d.Say("sbatch '%s'", strings.Join(args, "' '"))
	return record.CannotTell, nil
}

// RenewReason gives a drain of ours the reason of a finding that no health check can tell to be over; left is why not.
func RenewReason(a *node.Access, s slurmcmd.Scontrol, f record.Finding) (left string, err error) {
	memory, err := a.Store.Drain()
	now, unread := s.Node(a.Job.Node)
	if err := errors.Join(err, unread); err != nil {
		return "", err
	}
	in := memory.Facts(now, a.Env.Clock.Wall(), node.ReadEpoch(a.Config.Paths))
	if len(state.Quarantines.Peek(a.Store)) == 0 {
		in.Last, in.Standing = state.LastCheck.Peek(a.Store), state.Standing.Peek(a.Store)
	}
	at := a.Env.Clock.Boot()
	next := in.Renew(f, at, s.Conf)
	if next.Reason == "" {
		return next.Why, nil
	}
	if err := a.Store.SwapDrain(memory, next.Memory); err != nil {
		return "", fmt.Errorf("remember the drain's reason: %w", err)
	}
	return "", s.Drain(a.Job.Node, next.Reason, in.Renews(f, at, s.Conf))
}
