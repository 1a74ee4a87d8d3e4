package world

import (
	"fmt"
	"math/rand/v2"
)

// Tracking is how Slurm keeps track of a job's processes, and so what /proc says of them.
type Tracking int

// The ways of tracking.
const (
	Linuxproc   Tracking = iota // no cgroup; what leaves the process tree survives its job
	CgroupID                    // cgroup with job_N
	CgroupSLUID                 // cgroup with the SLUID alone (26.05)
)

// Sharing says whether jobs share cards by right, and how that can be known.
type Sharing int

// The ways of sharing.
const (
	Exclusive    Sharing = iota
	SharedByName         // a partition that the configuration names
	SharedByMPS          // CUDA_MPS_ACTIVE_THREAD_PERCENTAGE is in the hooks' environment
	SharedShards         // shards, and gres.conf tells
	MaybeShards          // gres.conf cannot be read
	Gang                 // jobs take turns on a card
)

// Site is what a node's administrators chose.
type Site struct {
	Tracking   Tracking
	Sharing    Sharing
	SLUIDs     bool // the hooks' environment has SLURM_JOB_SLUID (25.11)
	StartTimes bool // it has SLURM_JOB_START_TIME (23.02)
	MIG        bool
	NUMA       bool // the operating system keeps files in the cards' memory
	AMD        bool // the cards are AMD's
	InJob      bool // PrologFlags=RunInJob
	ReusesPIDs bool // pid_max is small
	TwoNodes   bool // another slurmd runs on this host, whose GPUs this one does not give out
	// Disorder allows hooks to be missing or to come twice. There, and where a job without GPUs runs, a job's
	// process always carries its job's mark (a cgroup, or its environment): without record and mark a process of a
	// live job looks like any other, and no hook on earth could tell.
	Disorder bool
}

func drawSite(r *rand.Rand) Site {
	one := func(in int) bool { return r.IntN(in) == 0 }
	s := Site{
		Tracking: Tracking(pick(r, 40, 40, 20)),
		Sharing:  Sharing(pick(r, 80, 5, 4, 4, 2, 5)),
		MIG:      one(60), NUMA: one(100), InJob: one(60),
		ReusesPIDs: one(3), Disorder: one(3), StartTimes: !one(3),
	}
	s.TwoNodes = one(4)
	s.SLUIDs = s.Tracking == CgroupSLUID || one(3)
	if s.AMD = one(15); s.AMD {
		s.MIG, s.NUMA = false, false
	}
	return s
}

// String names a site in a story.
func (s Site) String() string { type plain Site; return fmt.Sprintf("site %+v", plain(s)) }
