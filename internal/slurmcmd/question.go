package slurmcmd

import (
	"errors"
	"time"

	"bookend/internal/child"
	"bookend/internal/slurmconf"
)

// SlurmdOp is the name of slurmd -G in the records of stuck children.
const SlurmdOp = "slurmd -G"

// Question is what it takes to find out what Slurm's GPU numbers mean.
type Question struct {
	Request NumberingRequest // without Kept
	Kept    *slurmconf.Kept  // the stored answer, nil without one
	Check   bool             // a health check asks
	InJob   bool             // so that slurmd may not be found
	Clock   child.Clock
	Scan    func() time.Duration   // the time for reading Slurm's files
	Slurmd  func() (Slurmd, error) // how to run slurmd, or why it must not be run
}

// Ask begins to find the answer. collect waits for it, and returns Kept itself if that still holds. failure is a panic
// of our own, or a slurmd that could not be killed.
func (q Question) Ask() (collect func() (now *slurmconf.Kept, failure error)) {
	due, limit := false, q.Scan()
	if q.Kept != nil {
		q.Request.Kept, due = q.Kept.Key, q.Kept.Due(q.Clock.Boot(), q.Check)
	}
	wait := child.Async(func() (NumberingReply, error) { return Numbering.Ask(q.Request, limit) })
	return func() (*slurmconf.Kept, error) {
		reply, err := wait()
		switch {
		case err != nil:
			return unclear(err)
		case q.Kept != nil && !due && q.Kept.Holds(reply.Key):
			return q.Kept, nil
		case reply.Unknown != "":
			return unclear(errors.New(reply.Unknown))
		}
		return q.askSlurmd(reply)
	}
}

func unclear(err error) (*slurmconf.Kept, error) {
	var failure error
	if defect := new(child.Panic); errors.As(err, &defect) {
		failure = defect
	}
	return &slurmconf.Kept{List: slurmconf.Unclear("%v", err)}, failure
}

// askSlurmd asks slurmd, and returns its answer if the files that it read did not change meanwhile.
func (q Question) askSlurmd(reply NumberingReply) (*slurmconf.Kept, error) {
	asked := slurmconf.Asked{Key: reply.Key, Own: reply.Own, At: q.Clock.Boot()}
	if daemon := reply.Key.Daemon; daemon.PID != 0 {
		asked.Began = q.Clock.Wall().Add(daemon.Began() - asked.At)
	}
	var stuck error
	asked.List, asked.Failed, stuck = q.listed(reply)
	now := asked.Settle(q.Kept) // the answer in force
	if stuck != nil {           // to be put on record at once, so that no other hook starts another
		return &now, stuck
	}
	if q.InJob && q.Kept == nil && now.Key.Daemon.PID == 0 { // and it may not have read these files
		return unclear(errors.New("which slurmd is running is not known"))
	}
	switch after, err := Numbering.Ask(q.Request, q.Scan()); {
	case err != nil:
		return unclear(err)
	case !reply.Key.Equal(after.Key):
		return unclear(errors.New("slurm.conf, gres.conf or slurmd changed while slurmd -G read them"))
	}
	return &now, nil
}

// listed runs slurmd -G.
func (q Question) listed(reply NumberingReply) (list slurmconf.List, failed bool, stuck error) {
	command, err := q.Slurmd()
	if err != nil {
		return slurmconf.Unclear("%v", err), true, nil
	}
	command.Path, command.Conf, command.Node = reply.Key.Slurmd.Path, reply.Key.Conf, reply.Key.Node
	command.Entries = reply.Entries
	list, res, err := command.List()
	if res.Outcome == child.Abandoned {
		stuck = &child.Error{Op: SlurmdOp, Result: res}
	}
	switch {
	case err != nil:
		return slurmconf.Unclear("%v", err), true, stuck
	case reply.Unsure != "":
		return slurmconf.Unclear("%s", reply.Unsure), false, stuck
	case len(list.GPUs) == 0 || len(list.GPUs) != reply.Count: // the driver may not have been loaded yet
		const words = "slurmd -G lists %d GPUs, slurm.conf gives out %d"
		return slurmconf.Unclear(words, len(list.GPUs), reply.Count), true, stuck
	}
	return list, false, stuck
}
