package main

import (
	"slices"
	"strings"
)

// band is a row of the architecture; imports go from upper rows to lower ones.
type band int

const (
	unknown  band = iota
	values        // what things are
	pure          // what follows from them
	ground        // clock, goroutines: for effects and above
	effects       // what touches the system
	stage         // the order of things
	mains         // programs
	testTree      // programs and packages under test/
)

// bands has every package of the tree. A new package is a decision about the architecture: it is taken here.
var bands = map[band][]string{
	values: {"internal/gpu", "internal/slurm", "internal/code", "internal/config", "internal/wire"},
	pure: {"internal/resolve", "internal/settle", "internal/drain", "internal/slurmconf", "internal/gresconf", "internal/numbering", "internal/attrib", "internal/finding", "internal/ledger", "internal/look", "internal/policy", "internal/report",
		"internal/oom", "internal/health", "internal/probe", "internal/diagnosis", "internal/timeline"},
	ground: {"internal/clock", "internal/confine", "internal/nogpu", "internal/routine"},
	effects: {
		"internal/asuser", "internal/backend", "internal/child", "internal/cleanup", "internal/holders", "internal/inventory", "internal/joblog",
		"internal/kmsg", "internal/metrics", "internal/runlog", "internal/safefile", "internal/scontrol", "internal/slurmd", "internal/slurmfiles", "internal/state",
	},
	stage: {"internal/stage", "internal/doctor", "internal/page", "internal/view", "internal/answer"},
	mains: {"prolog", "epilog", "healthcheck", "admin", "cuda", "rocm"},
}

// siblings are the effects that other effects may use.
var siblings = []string{"internal/child", "internal/safefile", "internal/asuser"}

// vendors are the folders that may be linked with a vendor's library.
var vendors = []string{"cuda", "rocm"}

func bandOf(dir string) band {
	if dir == "test" || strings.HasPrefix(dir, "test/") || dir == "deploy" {
		return testTree
	}
	for b, dirs := range bands {
		if slices.Contains(dirs, dir) {
			return b
		}
	}
	return unknown
}

// mayImport says whether a package of folder from may import one of folder to, and if not why.
func mayImport(from, to string, test bool) (why string) {
	a, b := bandOf(from), bandOf(to)
	switch {
	case a == testTree || b == unknown || b == testTree && test:
		return ""
	case b == testTree:
		return "what ships must not depend on what tests it"
	case a == pure && b == ground:
		return "the pure band gets time as a value and starts nothing, so that its tests are tables"
	case b > a:
		return "imports point from upper rows to lower ones only, so that each row can be understood without those above"
	case a == effects && b == effects && !slices.Contains(siblings, to) && !test:
		return "an effect knows no other effect but child, safefile and asuser: stage joins them"
	}
	return ""
}
