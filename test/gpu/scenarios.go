package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"bookend/test/gpu/record"
)

// A chain is steps that build on each other; each is a scenario of its own.
type chain struct {
	gpus     int  // that the machine must have
	torch    bool // needs PyTorch; a rehearsal plays it
	real     bool // is left out of a rehearsal, which would only repeat another chain
	mode     string
	brisk    bool              // is judged after a shorter settle time, which is not what it is about
	with     map[string]string // further sections of Bookend's configuration
	group    string
	steps    []step
	controls []control
}

// settings are what a chain configures beside the lane's own: the shipped settle times leave no time for three runs
// of everything. A rehearsal's times are short as they are.
func (c chain) settings(rehearsal bool) map[string]string {
	all := map[string]string{}
	maps.Copy(all, c.with)
	if c.brisk && !rehearsal {
		all["settle"] = "{epilog: {stable: 1.5s, max: 4s}}"
	}
	return all
}

// step is a scenario: what is true, in words, and the code that brings it about and judges what Bookend makes of it.
type step struct {
	name, title, truth string
	do                 func(*run)
}

// control is one more run of a step with the rule switched off that it is about. The judge must then call it wrong:
// else it would have passed a Bookend without that rule.
type control struct {
	step string
	off  map[string]string // sections of Bookend's configuration
	what string            // in words, where configuration cannot switch it off
}

// without is the control of a step with other sections of configuration.
func without(s step, off map[string]string) []control { return []control{{step: s.name, off: off}} }

// despite is one that the step itself arranges.
func despite(s step, what string) []control { return []control{{step: s.name, what: what}} }

func (c control) String() string {
	return strings.TrimSpace(c.what + strings.TrimSpace(render(c.off)))
}

// scene is what the steps of a chain share.
type scene struct {
	left   *record.Job    // the job that left something
	holder *record.Holder // what it left
	others []record.Holder
	off    *control
}

func chains() []chain {
	base := slices.Concat(cleanChains(), leftoverChains(), transientChains(), mpsChains(), strangerChains(),
		severalChains(), numberingChains())
	return slices.Concat(in(groupBase, base), in(groupWhy, whyChains()), in(groupProbe, probeChains()),
		in(groupCheck, checkChains()), in(groupRecorded, recordedChains()),
		in(groupPrograms, programsChains()))
}

// The groups that --only knows. Each takes minutes on a real GPU; groupProbe has the cost of a probe besides.
const (
	groupBase     = "base"     // who left what
	groupWhy      = "why"      // why a job ran out of memory
	groupProbe    = "probe"    // test allocations and the cards' condition
	groupCheck    = "check"    // what the health check makes of the node between jobs and beside them
	groupRecorded = "recorded" // what is seen between a job's two ends
	groupPrograms = "programs" // out of memory in programs of many frameworks
	several       = "multi"    // every scenario that needs more than one GPU, of whatever group
)

// in puts chains into a group that are in none yet.
func in(group string, all []chain) []chain {
	for i := range all {
		if all[i].group == "" {
			all[i].group = group
		}
	}
	return all
}

// checkNames refuses names that no scenario has.
func checkNames(only []string) error {
	known := []string{timingsName, costName, recordCostName, groupBase, groupWhy, groupProbe, groupCheck, groupRecorded,
		groupPrograms, several}
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

func cleanChains() []chain {
	return []chain{
		{gpus: 1, torch: true, mode: "observe", steps: []step{torchClean}},
		{gpus: 1, mode: "observe", steps: []step{cudaClean}},
		{gpus: 1, mode: "observe", steps: []step{noGPU}},
	}
}

var torchClean = step{
	name: "torch-clean", title: "PyTorch job that ends well",
	truth: "PyTorch multiplies matrices and ends: nothing was on the GPU before, nothing is left.",
	do: func(r *run) {
		job := r.run1(r.cleanTorch(), "--gres=gpu:1")
		r.clean(job)
	},
}

// cleanTorch is PyTorch, and in a rehearsal what plays it.
func (r *run) cleanTorch() string {
	if r.fake > 0 {
		return r.script("exec $CUDAJOB alloc --mib 4096 --sleep 1")
	}
	return r.script(fmt.Sprintf("exec %s %s", r.python, r.site.Program("clean.py")))
}

var cudaClean = step{
	name: "cuda-clean", title: "CUDA C job that ends well",
	truth: "A C program fills 4 GiB through the driver API and ends: nothing was on the GPU before, nothing is left.",
	do: func(r *run) {
		job := r.run1(r.script("$CUDAJOB alloc --mib 4096 --sleep 1"), "--gres=gpu:1")
		r.clean(job)
	},
}

var noGPU = step{
	name: "no-gpu", title: "Job without GPUs",
	truth: "The job asked for no GPU: Bookend has no business with it, and writes nothing anywhere.",
	do: func(r *run) {
		job := r.run1("#!/bin/sh\necho no GPU needed\n")
		r.check("start of the job", "no record", verdict(job.Start))
		r.check("end of the job", "no record", verdict(job.End))
		r.check("lines in Bookend's log", "0", fmt.Sprint(len(job.Hooks)))
		r.check("the job's log", "no GPU needed\n", job.Output)
	},
}
