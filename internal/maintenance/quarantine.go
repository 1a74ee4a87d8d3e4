package maintenance

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/node"
	"bookend/internal/slurmcmd"
	"bookend/internal/state"
)

// Quarantine has jobs hold GPUs, all of the node's if q has none, and keeps on disk that an admin wants it. It waits
// for jobs that have GPUs. It returns those that are held now; with an error, of all GPUs these may be some.
func Quarantine(a *node.Access, q slurmcmd.Quarantine, wait time.Duration, why string) ([]state.Quarantine, error) {
	var held []state.Quarantine
	as := state.Quarantine{Reason: why, Partition: q.Partition, Account: q.Account, Conf: q.Slurm.Conf}
	all, todo := len(q.GPUs) == 0, q.GPUs
	for until := a.Env.Clock.Boot() + wait; ; time.Sleep(time.Second) {
		err := changeWanted(a, time.Minute, func(wanted []state.Quarantine) ([]state.Quarantine, error) {
			var err error
			var each, now []state.Quarantine
			as.Since, held = a.Env.Clock.Wall(), nil
			if all {
				held, todo, err = splitAll(a, q.Slurm, wanted)
			}
			for _, as.GPU = range todo {
				each = append(each, as)
			}
			if err != nil || len(each) == 0 {
				return wanted, err
			}
			now, err = hold(a, q, each...)
			held = append(held, now...)
			gone := func(o state.Quarantine) bool { return o.Over(as.Since) || slices.ContainsFunc(now, o.SameGPU) }
			return append(slices.DeleteFunc(wanted, gone), now...), err
		})
		if err == nil || !errors.Is(err, slurmcmd.ErrTaken) || a.Env.Clock.Boot() >= until {
			return held, notHeld(todo, held, err)
		}
	}
}

func notHeld(wanted []int, held []state.Quarantine, err error) error {
	rest := slices.DeleteFunc(wanted, func(n int) bool {
		return slices.ContainsFunc(held, state.Quarantine{GPU: n}.SameGPU)
	})
	if err == nil || len(rest) == 0 {
		return err
	}
	return fmt.Errorf("GPU %s is not held: %w", strings.ReplaceAll(strings.Trim(fmt.Sprint(rest), "[]"), " ", ","), err)
}

// splitAll returns which of the node's GPUs jobs hold as an admin wants, and the numbers of the others.
func splitAll(a *node.Access, s slurmcmd.Scontrol, wanted []state.Quarantine,
) (held []state.Quarantine, rest []int, err error) {
	n, err := s.GPUs(a.Job.Node)
	for number := range n {
		i := slices.IndexFunc(wanted, state.Quarantine{GPU: number}.SameGPU)
		if i >= 0 && s.Runs(wanted[i].Job, a.Job.Node) {
			held = append(held, wanted[i])
		} else {
			rest = append(rest, number)
		}
	}
	if n == 0 && err == nil {
		err = errors.New("the node has no GPUs in Slurm")
	}
	return held, rest, err
}

func hold(a *node.Access, q slurmcmd.Quarantine, wanted ...state.Quarantine) (held []state.Quarantine, err error) {
	last, kept := state.LastCheck.Peek(a.Store), node.Numbering.Peek(a.Store)
	q.Node, q.Clock, q.GPUs = a.Job.Node, a.Env.Clock.Boot, nil
	for i := range wanted {
		as := &wanted[i]
		as.UUID = cmp.Or(as.UUID, last.IDAt(as.GPU))
		as.Boot, as.Problem, as.Tried, as.Vain = node.ReadEpoch(a.Config.Paths).Boot, "", time.Time{}, 0
		if kept != nil {
			as.Conf = cmp.Or(as.Conf, kept.Key.Conf)
		}
		if as.Until.IsZero() && q.For > 0 {
			as.Until = as.Since.Add(q.For)
		}
		q.GPUs = append(q.GPUs, as.GPU)
	}
	q.Keep = state.Note(a.Store, a.Env.Clock.Wall, wanted...)
	jobs, err := q.Begin()
	for job, number := range jobs {
		as := wanted[slices.Index(q.GPUs, number)]
		as.Job = job
		held = append(held, as)
	}
	slices.SortFunc(held, func(x, y state.Quarantine) int { return cmp.Compare(x.GPU, y.GPU) })
	return held, err
}

// Wanted returns the quarantines that an admin wants, also beyond a reboot.
func Wanted(a *node.Access) ([]state.Quarantine, error) {
	return node.Journal[[]state.Quarantine](a, "quarantines").Read()
}

// Quarantines describes the GPUs in quarantine, and those that are to be.
func Quarantines(a *node.Access, now time.Time) (texts []string, err error) {
	held := state.Quarantines.Peek(a.Store)
	for _, q := range held {
		if q.GPU >= 0 {
			texts = append(texts, fmt.Sprintf("GPU %d is in quarantine since %s, held by job %d: %s", q.GPU,
				q.Since.Local().Format(time.DateTime), q.Job, cmp.Or(q.Reason, "no reason given")))
		}
	}
	wanted, err := Wanted(a)
	for _, q := range wanted {
		if !q.Over(now) && !slices.ContainsFunc(held, q.SameGPU) {
			texts = append(texts, fmt.Sprintf("GPU %d is to be in quarantine (%s), BUT NO JOB HOLDS IT: %s", q.GPU,
				q.Reason, cmp.Or(q.Problem, "the next health check has one hold it")))
		}
	}
	return texts, err
}

// numbered returns the GPU with a number in Slurm, empty if not certain. After a boot it asks slurmd if no hook has.
func numbered(a *node.Access, q state.Quarantine) gpu.ID {
	last, env := state.LastCheck.Peek(a.Store), a.Env
	if last != nil && last.IDAt(q.GPU) == "" && q.Conf != "" {
		env.PID = 0 // is no child of slurmd's
		kept := node.ReadNumbering(env, a.Config, a.Job.Node, q.Conf)
		last.Cards = kept.Renumber(last.Cards, a.Config.NVIDIA.GPUMap)
	}
	return last.IDAt(q.GPU)
}

// changeWanted changes what an admin wants, while no other program does; with an error, what was done before it.
func changeWanted(a *node.Access, wait time.Duration, to func([]state.Quarantine) ([]state.Quarantine, error)) error {
	done, err := a.Store.Turns.Quarantine(wait)
	if err != nil {
		return fmt.Errorf("another quarantine is at work, try again: %w", err)
	}
	defer done()
	disk := node.Journal[[]state.Quarantine](a, "quarantines")
	was, err := disk.Read()
	if err != nil {
		return err
	}
	now, err := to(slices.Clone(was))
	if !slices.Equal(was, now) {
		err = errors.Join(err, disk.Write(now))
	}
	return err
}

// Release ends the quarantine of a GPU, of all if the number is empty, and reports whether there was one.
func Release(a *node.Access, s slurmcmd.Scontrol, number string) (found bool, err error) {
	is := func(q state.Quarantine) bool { return q.GPU >= 0 && (number == "" || fmt.Sprint(q.GPU) == number) }
	err = changeWanted(a, time.Minute, func(wanted []state.Quarantine) ([]state.Quarantine, error) {
		all := slices.Concat(state.Quarantines.Peek(a.Store), wanted) // either may have been lost
		all = slices.DeleteFunc(all, func(q state.Quarantine) bool { return !is(q) })
		found = len(all) > 0
		var left []state.Quarantine
		var failed error
		for _, q := range all {
			if err := releaseJob(a, s, q); err != nil {
				left, failed = append(left, q), errors.Join(failed, err)
			}
		}
		over := func(o state.Quarantine) bool { return is(o) && !slices.ContainsFunc(left, o.SameGPU) }
		return slices.DeleteFunc(wanted, over), failed
	})
	return found, err
}

// releaseJob ends the job that holds a GPU, if its number is not another job's. Hooks have to know it until its epilog,
// if there is one, removes it.
func releaseJob(a *node.Access, s slurmcmd.Scontrol, q state.Quarantine) error {
	ended, err := s.Ended(q.Job, a.Job.Node)
	if err == nil && !ended {
		err = s.Release(q.Job)
	}
	if err != nil {
		return err
	}
	return state.Note(a.Store, a.Env.Clock.Wall, q)(-1, q.Job)
}

// lost is a quarantine that no job holds.
type lost struct {
	index    int // in the list of those wanted
	rebooted bool
}

// RestoreQuarantines has jobs hold the GPUs that an admin wants in quarantine and none holds, as after a reboot or
// scancel: all that were wanted alike at once, lest users' jobs get the others meanwhile.
func RestoreQuarantines(a *node.Access) error {
	return changeWanted(a, 0, func(wanted []state.Quarantine) ([]state.Quarantine, error) {
		var all []lost
		for i, q := range wanted {
			now, is, rebooted := review(a, q)
			wanted[i] = now
			if is {
				all = append(all, lost{i, rebooted})
			}
		}
		for len(all) > 0 {
			rebooted, like := all[0].rebooted, wanted[all[0].index]
			is := func(l lost) bool { return l.rebooted == rebooted && wanted[l.index].Alike(like) }
			group := slices.DeleteFunc(slices.Clone(all), func(l lost) bool { return !is(l) })
			all = slices.DeleteFunc(all, is)
			holdAgain(a, wanted, group)
		}
		return wanted, nil
	})
}

// After tries in a row of which none got the GPU, the node's free GPUs are left to users' jobs for as long as pause.
const (
	tries = 5 // right after a reboot users' jobs may be faster, or slurmctld does not know of it yet
	pause = 10 * time.Minute
)

// holdAgain has jobs hold GPUs of one group, and keeps in wanted what came of it.
func holdAgain(a *node.Access, wanted []state.Quarantine, group []lost) {
	var each []state.Quarantine
	for _, l := range group {
		each = append(each, wanted[l.index])
	}
	q, now := each[0], a.Env.Clock.Wall()
	again := slurmcmd.Quarantine{Slurm: scontrolOf(a, q), Partition: q.Partition, Account: q.Account,
		Rebooted: group[0].rebooted}
	if !q.Until.IsZero() { // no longer than wanted, whatever the clock says since the reboot
		again.For = min(q.Until.Sub(now), q.Until.Sub(q.Since))
	}
	held, err := hold(a, again, each...)
	for _, l := range group {
		w := &wanted[l.index]
		if i := slices.IndexFunc(held, w.SameGPU); i >= 0 {
			*w = held[i]
			continue
		}
		w.Problem = err.Error()
		if !errors.Is(err, slurmcmd.ErrTaken) { // for that no jobs are queued
			w.Tried, w.Vain = now, w.Vain+1
		}
	}
}

func scontrolOf(a *node.Access, q state.Quarantine) slurmcmd.Scontrol {
	return slurmcmd.Scontrol{Path: a.Config.Slurm.Scontrol, Conf: q.Conf, Root: a.Env.EUID == 0,
		Time: func() time.Duration { return 10 * time.Second }}
}

// review returns what is known now of a quarantine, whether another job has to hold the GPU, and whether Slurm does not
// know yet that the node was rebooted.
func review(a *node.Access, q state.Quarantine) (_ state.Quarantine, again, rebooted bool) {
	here, now := node.ReadEpoch(a.Config.Paths).Boot, a.Env.Clock.Wall()
	ended, err := scontrolOf(a, q).Ended(q.Job, a.Job.Node)
	switch {
	case err != nil: // then it cannot be told
		return q, false, false
	case !ended && q.Boot == here:
		q.UUID, q.Problem = cmp.Or(q.UUID, state.LastCheck.Peek(a.Store).IDAt(q.GPU)), ""
		_ = state.Note(a.Store, a.Env.Clock.Wall, q)(q.GPU, q.Job) // the node's state may have been lost
		return q, false, false
	}
	_ = state.Note(a.Store, a.Env.Clock.Wall, q)(-1, q.Job)
	is := numbered(a, q)
	switch {
	case q.Over(now), q.Vain >= tries && now.Sub(q.Tried).Abs() < pause:
	case q.Boot != here && (is == "" || q.UUID == ""):
		q.Problem = "which GPU has that number since the reboot is not known"
	case is != "" && q.UUID != "" && is != q.UUID:
		q.Problem = fmt.Sprintf("that number was %s and is %s now: bookend release %d", q.UUID, is, q.GPU)
	default:
		return q, true, !ended
	}
	return q, false, false
}
