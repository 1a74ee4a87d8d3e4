package main

import (
	"cmp"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"

	"bookend/test/gpu/runrecord"
	"bookend/test/pidns"
)

// A chain is steps that build on each other; each is a scenario of its own.
type chain struct {
	group string
	gpus  int  // that the machine must have; 0: one
	torch bool // needs PyTorch; a rehearsal plays it
	real  bool // is left out of a rehearsal, which would only repeat another chain
	mode  string
	brisk bool              // is judged after a shorter settle time, which is not what it is about
	all   bool              // wants a search of all processes: a rehearsal in a PID namespace leaves it out
	goes  bool              // ends with what goes away by itself: a rehearsal's epilog looks on for as long as it takes
	with  map[string]string // further sections of Bookend's configuration
	steps []step
}

// step is a scenario: the code that brings it about and judges what Bookend makes of it. What is true is in truths.md.
//
// Its control, if it has one, is one more run with the rule switched off that it is about. The judge must then call it
// wrong: else it would have passed a Bookend without that rule.
type step struct {
	name    string
	do      func(*run)
	off     map[string]string // of its control: sections of Bookend's configuration
	despite string            // of its control, in words, where the step itself arranges it
}

// control is what its control switches off, empty without one.
func (s step) control() string { return s.despite + strings.TrimSpace(render(s.off)) }

//go:embed truths.md
var truths string

// told returns a scenario's title, and what is true in it: its row in truths.md.
func (s step) told() (title, truth string) {
	_, row, _ := strings.Cut(truths, "\n| "+s.name+" | ")
	row, _, _ = strings.Cut(row, " |\n")
	title, truth, _ = strings.Cut(row, " | ")
	return title, truth
}

// settings are what a chain configures beside the lane's own, with what a control switches off: the shipped settle
// times leave no time for three runs of everything. A rehearsal's times are short as they are.
func (c chain) settings(rehearsal bool, off map[string]string) map[string]string {
	all := map[string]string{}
	if c.brisk && !rehearsal {
		all["settle"] = "{epilog: {stable: 1.5s, max: 4s}}"
	}
	if c.goes && rehearsal {
		all["settle"] = "{prolog: {stable: 200ms, max: 1s}, epilog: {stable: 30s, max: 50s}}"
	}
	maps.Copy(all, c.with)
	maps.Copy(all, off)
	return all
}

// rehearsable reports a chain that a rehearsal can play here.
func (c chain) rehearsable() bool { return !c.real && !(c.all && pidns.Own() != "") }

type scene struct {
	left    *job              // the job that left something
	holder  *runrecord.Holder // what it left
	others  []runrecord.Holder
	control bool
}

// The groups that --only knows. Each takes minutes on a real GPU; groupProbe has the cost of a probe besides.
const (
	groupBase     = "base"     // who left what
	groupWhy      = "why"      // why a job ran out of memory
	groupProbe    = "probe"    // test allocations and the cards' condition
	groupCheck    = "check"    // what the health check makes of the node between jobs and beside them
	groupHidden   = "hidden"   // what a user can do to what a job leaves
	groupRecorded = "recorded" // what is seen between a job\'s two ends
	groupFaults   = "faults"   // errors that the driver logs
	groupPrograms = "programs" // out of memory in programs of many frameworks
	several       = "multi"    // every scenario that needs more than one GPU, of whatever group
)

// What controls switch off.
var (
	ignoreOrphan = map[string]string{"policy": "{epilog: {BKD-ORPHAN: ignore}}"}
	allShared    = map[string]string{"slurm": "{shared_partitions: [main]}"}
	blind        = map[string]string{"thresholds": "{report: 1000GiB, drain: 1000GiB}"}
	unrecorded   = map[string]string{"record": "{every: 0s}"}
	deaf         = map[string]string{"job_log": "{read: false}"}
)

// base are who left what. What holds memory after a job was started by the daemon, for Slurm ends everything in the
// job's own cgroup.
var base = []chain{
	{torch: true, mode: "observe", steps: one("torch-clean", (*run).torchClean)},
	{mode: "observe", steps: one("cuda-clean", (*run).cudaClean)},
	{mode: "observe", steps: one("no-gpu", (*run).noGPU)},
	{mode: "observe", steps: []step{{name: "orphan-observe", do: (*run).orphanObserved},
		{name: "inherited", do: (*run).orphanInherited, off: map[string]string{"policy": "{prolog: {BKD-DIRTY: ignore}}"}},
		{name: "freed", do: (*run).orphanGone}}},
	{mode: "enforce", steps: without(ignoreOrphan, "orphan-enforce", leftIn("orphan", "cudajob", asItIs))},
	{mode: "enforce", steps: one("orphan-moving", (*run).orphanMoving)},
	{mode: "enforce", all: true, steps: []step{{name: "phantom", do: (*run).phantom,
		off: map[string]string{"policy": "{epilog: {BKD-PHANTOM: ignore}}"}},
		{name: "phantom-inherited", do: func(r *run) { r.inherit(r.phantomLeft()) }}}},
	{torch: true, real: true, mode: "enforce", steps: one("torch-phantom", (*run).torchPhantom)},
	{mode: "enforce", all: true, steps: []step{{name: "residue", do: (*run).residue, off: blind},
		{name: "residue-inherited", do: func(r *run) { r.inherit(r.exportedLeft()) }}}},
	{mode: "enforce", all: true, steps: without(blind, "residue-innocent", (*run).innocent)},
	{mode: "enforce", brisk: true, steps: one("ipc", (*run).imported)},
	{mode: "enforce", brisk: true, steps: without(ignoreOrphan, "stopped",
		leftIn("orphan stopped", "cudajob", inState("T"), "--stop", "--name", "a) R (b"))},
	{mode: "enforce", brisk: true, steps: without(ignoreOrphan, "leaderless",
		leftIn("dying orphan", "cudajob", inState("Z"), "--leader-exits"))},
	{mode: "enforce", brisk: true, steps: without(ignoreOrphan, "pidns",
		leftIn("container orphan", contained, inOwnNamespace))},
	{torch: true, mode: "enforce", steps: one("loader-killed", (*run).loaderKilled)},
	{torch: true, mode: "enforce", goes: true,
		steps: without(map[string]string{"settle": "{epilog: {stable: 200ms, max: 500ms}}"}, "workers", (*run).outlived)},
	{mode: "enforce", goes: true, steps: one("pieces", (*run).pieces)},
	{mode: "enforce", steps: one("near-full", (*run).nearFull)},
	{group: groupProbe, mode: "enforce", all: true, steps: despite("the probe locks another file than Bookend asks for",
		"probe", (*run).probe)},
	{group: groupProbe, mode: "enforce", all: true, steps: one("probe-stays", (*run).probeStays)},
	{mode: "enforce", brisk: true, steps: without(ignoreOrphan, "mps-clients", mps(2, exitOrphan))},
	{mode: "enforce", brisk: true, steps: one("mps-idle", mps(0, 0, "--mib", "64", "--sleep", "0"))},
	{mode: "enforce", steps: without(allShared, "stray", (*run).stray)},
	{mode: "enforce", steps: without(allShared, "foreign-unknown", foreign(true))},
	{gpus: 2, mode: "enforce", steps: without(allShared, "foreign", foreign(false, "--gres=gpu:1"))},
	{gpus: 2, mode: "observe", steps: one("neighbours", (*run).neighbours)},
	{gpus: 4, mode: "enforce", steps: without(ignoreOrphan, "many", (*run).manyAtOnce)},
	{gpus: 2, torch: true, real: true, mode: "enforce", steps: one("nccl-killed", (*run).reduceKilled)},
	{gpus: 2, mode: "observe", steps: one("numbering", (*run).numberAgrees)},
	{gpus: 2, mode: "enforce", steps: one("numbering-typed", (*run).numberingTyped)},
	{gpus: 2, mode: "enforce", steps: one("numbering-left-out", (*run).numberingLeftOut)},
	{gpus: 2, mode: "enforce", steps: one("numbering-shuffled", (*run).numberingShuffled)},
}

// whys are why a job ran out of memory, each with a control that takes from Bookend what it needs for the answer. What
// PyTorch says of it on the way is real.
var whys = []chain{
	{torch: true, mode: "observe", brisk: true, steps: without(deaf, "oom-self", (*run).oomSelf)},
	{torch: true, mode: "observe", brisk: true, steps: without(deaf, "oom-pool", (*run).oomPool)},
	{torch: true, mode: "observe", brisk: true, steps: without(allShared, "oom-foreign", (*run).oomForeign)},
	{torch: true, mode: "observe", brisk: true, steps: without(unrecorded, "oom-passing", (*run).oomPassing)},
	{torch: true, mode: "observe", brisk: true, steps: without(blind, "oom-inherited", (*run).oomInherited)},
	{torch: true, mode: "observe", brisk: true, steps: without(deaf, "oom-ulimit", (*run).oomLimit)},
	{torch: true, mode: "observe", brisk: true, steps: without(allShared, "oom-silent", (*run).oomSilent)},
}

// probes are about test allocations, and about what is read beside them.
var probes = []chain{
	{mode: "enforce", steps: without(map[string]string{"probe": "{at: never}"}, "probe-idle", (*run).probeIdle)},
	{mode: "enforce", steps: one("probe-near-full", (*run).probeNearFull)},
	{mode: "observe", brisk: true, steps: one("probe-neighbour", (*run).probeNeighbour)},
	{mode: "enforce", steps: one("probe-killed", (*run).probeKilled)},
	{mode: "enforce", with: map[string]string{"probe": "{pattern: 1s, every: 0s}"},
		steps: one("probe-pattern", (*run).probePattern)},
	{mode: "enforce", brisk: true, steps: one("probe-planted", (*run).probePlanted)},
	{mode: "enforce", all: true, steps: one("probe-hooks", (*run).probeHooks)},
	{mode: "observe", steps: without(map[string]string{"backend": "/nonexistent"}, "health", (*run).cardsCondition)},
}

// checks are about the health check, which the lane starts as slurmd does.
var checks = []chain{
	{mode: "enforce", brisk: true, steps: despite("a process takes memory before the last of them",
		"check-idle", (*run).checkIdle)},
	{mode: "enforce", brisk: true, steps: without(map[string]string{"policy": "{health_check: {BKD-ORPHAN: ignore}}"},
		"check-orphan", (*run).checkOrphan)},
	{mode: "enforce", brisk: true,
		with: map[string]string{"drain": "{reason_by: healthcheck, resume: {enabled: true, after: 2}}"},
		steps: without(map[string]string{"drain": "{reason_by: healthcheck, resume: {enabled: false, after: 2}}"},
			"check-resume", (*run).checkResume)},
	{mode: "enforce", brisk: true, steps: despite("the job's record is out of the way",
		"check-busy", (*run).checkBusy)},
}

// hidden are leftovers made to look like something that excuses them.
var hidden = []chain{
	{mode: "enforce", steps: without(ignoreOrphan, "hidden-waits",
		hiding(inState("D"), "--vfork"))},
	{mode: "enforce", steps: without(ignoreOrphan, "hidden-sawtooth",
		hiding(asItIs, "--churn", "300", "--churn-mib", "4"))},
	{mode: "enforce", steps: without(ignoreOrphan, "hidden-sinking", hiding(asItIs, "--sink", "700"))},
	{mode: "enforce", steps: without(ignoreOrphan, "hidden-id", (*run).hiddenByID)},
	{mode: "enforce", steps: without(ignoreOrphan, "hidden-name", hiding(asItIs, "--name", "nvidia-cuda-mps"))},
	{mode: "enforce", all: true, steps: without(map[string]string{"policy": "{epilog: {BKD-PHANTOM: ignore}}"},
		"hidden-passers", (*run).hiddenAmongPassers)},
}

// recorded are about what the recorder sees between a job's two ends. Their controls have none.
var recorded = []chain{
	{mode: "observe", brisk: true, steps: without(unrecorded, "recorded-growing", (*run).recordedGrowing)},
	{torch: true, mode: "observe", brisk: true, steps: without(unrecorded, "recorded-several", (*run).recordedSeveral)},
	{gpus: 2, torch: true, mode: "observe", brisk: true,
		steps: without(unrecorded, "recorded-piled", (*run).recordedPiled)},
	{torch: true, mode: "observe", brisk: true, steps: without(unrecorded, "recorded-spikes", (*run).recordedSpikes)},
	{mode: "enforce", brisk: true, steps: without(unrecorded, "recorded-stray", (*run).recordedStray)},
	{mode: "enforce", steps: without(unrecorded, "recorded-leak", (*run).recordedLeak)},
	{gpus: 2, mode: "enforce", brisk: true, steps: without(unrecorded, "recorded-trespass", (*run).recordedTrespass)},
}

// frameworks are out of memory in programs of many of them. No fake says what these say.
var frameworks = []chain{
	{torch: true, real: true, mode: "observe", brisk: true, steps: one("programs-died", (*run).programsDied)},
	{torch: true, real: true, mode: "observe", brisk: true, steps: one("programs-caught", (*run).programsCaught)},
	{torch: true, real: true, mode: "observe", brisk: true, steps: one("programs-rank", (*run).programsRank)},
	{torch: true, real: true, mode: "observe", brisk: true, steps: one("programs-unread", (*run).programsUnread)},
	{torch: true, real: true, mode: "observe", brisk: true, steps: without(unrecorded, "programs-twice",
		(*run).programsTwice)},
	{torch: true, real: true, mode: "observe", brisk: true, steps: one("programs-remedied", (*run).programsRemedied)},
}

// one is a step without a control; without and despite are steps with one.
func one(name string, do func(*run)) []step { return []step{{name: name, do: do}} }

func without(off map[string]string, name string, do func(*run)) []step {
	return []step{{name: name, do: do, off: off}}
}

func despite(what, name string, do func(*run)) []step {
	return []step{{name: name, do: do, despite: what}}
}

func chains() (all []chain) {
	for _, g := range []struct {
		name string
		of   []chain
	}{{groupBase, base}, {groupWhy, whys}, {groupProbe, probes}, {groupCheck, checks}, {groupHidden, hidden}, {groupRecorded, recorded},
		{groupFaults, faults}, {groupPrograms, frameworks}} {
		for _, c := range g.of {
			c.group = cmp.Or(c.group, g.name)
			all = append(all, c)
		}
	}
	return all
}

// checkNames refuses names that no scenario has.
func checkNames(only []string) error {
	known := []string{groupBase, groupWhy, groupProbe, groupCheck, groupHidden, groupRecorded, groupFaults,
		groupPrograms, several}
	for _, g := range benchmarks {
		known = append(known, g.name)
	}
	for _, c := range chains() {
		for _, s := range c.steps {
			known = append(known, s.name)
		}
	}
	for _, name := range only {
		if !slices.Contains(known, name) {
			return fmt.Errorf("no scenario %q; there are %s", name, strings.Join(known, ", "))
		}
	}
	return nil
}

func (r *run) torchClean() {
	r.clean(r.run1(r.script("exec "+r.torch("clean.py", "--mib 4096 --sleep 1")), "--gres=gpu:1"))
}

func (r *run) cudaClean() {
	r.clean(r.run1(r.script("$CUDAJOB alloc --mib 4096 --sleep 1"), "--gres=gpu:1"))
}

func (r *run) noGPU() {
	job := r.run1("#!/bin/sh\necho no GPU needed\n")
	r.check("start of the job", "no record", verdict(job.Start))
	r.check("end of the job", "no record", verdict(job.End))
	r.check("lines in Bookend's log", 0, len(job.Hooks))
	r.check("the job's log", "no GPU needed\n", job.Output)
}
