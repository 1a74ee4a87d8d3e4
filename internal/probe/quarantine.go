package probe

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/node"
	"bookend/internal/slurmcmd"
	"bookend/internal/state"
)

// Quarantine has a job hold a GPU, and keeps on disk that an admin wants it. It waits for a job that has the GPU.
func Quarantine(a *node.Access, q slurmcmd.Quarantine, wait time.Duration, why string) (state.Quarantine, error) {
	var held state.Quarantine
	as := state.Quarantine{Reason: why, Partition: q.Partition, Account: q.Account, Conf: q.Slurm.Conf}
	for until := a.Env.Clock.Boot() + wait; ; time.Sleep(time.Second) {
		err := changeWanted(a, time.Minute, func(wanted []state.Quarantine) ([]state.Quarantine, error) {
			as.Since = a.Env.Clock.Wall()
			var err error
			held, err = hold(a, q, as)
			gone := func(o state.Quarantine) bool { return o.GPU == q.GPU || o.Over(as.Since) }
			return append(slices.DeleteFunc(wanted, gone), held), err
		})
		if !errors.Is(err, slurmcmd.ErrTaken) || a.Env.Clock.Boot() >= until {
			return held, err
		}
	}
}

// hold has a job hold a GPU.
func hold(a *node.Access, q slurmcmd.Quarantine, as state.Quarantine) (state.Quarantine, error) {
	q.Node, q.Clock = a.Job.Node, a.Env.Clock.Boot
	as.GPU, as.UUID = q.GPU, cmp.Or(as.UUID, state.LastCheck.Peek(a.Store).IDAt(q.GPU))
	as.Boot, as.Problem = node.ReadEpoch(a.Config.Paths).Boot, ""
	if kept := node.Numbering.Peek(a.Store); kept != nil {
		as.Conf = cmp.Or(as.Conf, kept.Key.Conf)
	}
	if as.Until.IsZero() && q.For > 0 {
		as.Until = as.Since.Add(q.For)
	}
	q.Keep = as.Note(a.Store, a.Env.Clock.Wall)
	as.Tried, as.Vain = time.Time{}, 0
	var err error
	as.Job, err = q.Begin()
	return as, err
}

// Wanted returns the quarantines that an admin wants, also beyond a reboot.
func Wanted(a *node.Access) ([]state.Quarantine, error) {
	return node.Journal[[]state.Quarantine](a, "quarantines").Read()
}

// numbered returns the GPU that has the number in Slurm, empty if that is not certain. After a reboot it asks slurmd if
// no hook of a job has.
func numbered(a *node.Access, q state.Quarantine) gpu.ID {
	last, env := state.LastCheck.Peek(a.Store), a.Env
	if last != nil && last.IDAt(q.GPU) == "" && q.Conf != "" {
		env.PID = 0 // is no child of slurmd's
		kept := node.ReadNumbering(env, a.Config, a.Job.Node, q.Conf)
		last.Cards = kept.Renumber(last.Cards, a.Config.NVIDIA.GPUMap)
	}
	return last.IDAt(q.GPU)
}

// changeWanted changes what an admin wants, while no other program does.
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
	if err == nil && !slices.Equal(was, now) {
		err = disk.Write(now)
	}
	return err
}

// Release ends the quarantine of a GPU, and reports whether it was in one.
func Release(a *node.Access, s slurmcmd.Scontrol, number string) (found bool, err error) {
	is := func(q state.Quarantine) bool { return fmt.Sprint(q.GPU) == number && q.GPU >= 0 }
	err = changeWanted(a, time.Minute, func(wanted []state.Quarantine) ([]state.Quarantine, error) {
		var err error
		for _, q := range slices.Concat(state.Quarantines.Peek(a.Store), wanted) { // either may have been lost
			if is(q) && err == nil {
				var ended bool
				found = true
				if ended, err = s.Ended(q.Job, a.Job.Node); err == nil && !ended { // or its number is another job's
					err = s.Release(q.Job)
				}
			}
			if is(q) && err == nil { // hooks have to know the job until its epilog, if there is one, removes it
				err = q.Note(a.Store, a.Env.Clock.Wall)(-1, q.Job)
			}
		}
		return slices.DeleteFunc(wanted, is), err
	})
	return found, err
}

// Remake has jobs hold the GPUs that an admin wants in quarantine and none holds, as after a reboot or scancel.
func Remake(a *node.Access) error {
	return changeWanted(a, 0, func(wanted []state.Quarantine) ([]state.Quarantine, error) {
		for i, q := range wanted {
			wanted[i] = remade(a, q)
		}
		return wanted, nil
	})
}

// After tries in a row of which none got the GPU, the node's free GPUs are left to users' jobs for as long as pause.
const (
	tries = 5 // right after a reboot users' jobs may be faster, or slurmctld does not know of it yet
	pause = 10 * time.Minute
)

func remade(a *node.Access, q state.Quarantine) state.Quarantine {
	s := slurmcmd.Scontrol{Path: a.Config.Slurm.Scontrol, Conf: q.Conf, Root: a.Env.EUID == 0,
		Time: func() time.Duration { return 10 * time.Second }}
	here, now := node.ReadEpoch(a.Config.Paths).Boot, a.Env.Clock.Wall()
	ended, err := s.Ended(q.Job, a.Job.Node)
	switch {
	case err != nil: // then it cannot be told
		return q
	case !ended && q.Boot == here:
		q.UUID, q.Problem = cmp.Or(q.UUID, state.LastCheck.Peek(a.Store).IDAt(q.GPU)), ""
		_ = q.Note(a.Store, a.Env.Clock.Wall)(q.GPU, q.Job) // the node's state may have been lost
		return q
	}
	_ = q.Note(a.Store, a.Env.Clock.Wall)(-1, q.Job)
	is := numbered(a, q)
	switch {
	case q.Over(now), q.Vain >= tries && now.Sub(q.Tried).Abs() < pause:
	case q.Boot != here && (is == "" || q.UUID == ""):
		q.Problem = "which GPU has that number since the reboot is not known"
	case is != "" && q.UUID != "" && is != q.UUID:
		q.Problem = fmt.Sprintf("that number was %s and is %s now: bookend release %d", q.UUID, is, q.GPU)
	default:
		again := slurmcmd.Quarantine{Slurm: s, GPU: q.GPU, Partition: q.Partition, Account: q.Account, Rebooted: !ended}
		if !q.Until.IsZero() { // no longer than wanted, whatever the clock says since the reboot
			again.For = min(q.Until.Sub(now), q.Until.Sub(q.Since))
		}
		held, err := hold(a, again, q)
		if err == nil {
			return held
		}
		q.Problem = err.Error()
		if !errors.Is(err, slurmcmd.ErrTaken) { // for that no jobs are queued
			q.Tried, q.Vain = now, q.Vain+1
		}
	}
	return q
}
