package diagnosis

import (
	_ "embed"
	"slices"
	"strings"
	"sync"

	"bookend/internal/record"
)

//go:embed advice.txt
var adviceFile string

// advice has the lines of advice.txt by program and cause: "JAX: own".
var advice = sync.OnceValue(func() map[string][]string {
	all := map[string][]string{}
	for _, p := range paragraphs(adviceFile) {
		programs, causes, _ := strings.Cut(p[0], ": ")
		for program := range strings.SplitSeq(programs, ", ") {
			for cause := range strings.SplitSeq(causes, ", ") {
				all[program+": "+cause] = p[1:]
			}
		}
	}
	return all
})

// advise returns the advice for a cause: that of the program that reported the failure, or else that for any program.
func advise(e evidence, cause record.CauseName) (lines []string) {
	programs := []record.Framework{"any"}
	if len(e.failures) > 0 { // PyTorch within vLLM is vLLM's
		m := e.failures[0].message
		programs = []record.Framework{m.Program, m.Framework, "any"}
	}
	for _, program := range programs {
		for _, line := range advice()[string(program)+": "+string(cause)] {
			lines = append(lines, strings.ReplaceAll(line, "NODE", e.in.Job.Node))
		}
		if lines != nil {
			break
		}
	}
	return lines
}

// try returns what the job's owner can do about the causes found. A job that succeeded needs nothing.
func try(e evidence, d record.Diagnosis) []string {
	type names = []record.CauseName
	// reported, or the finding, says what to do about a fault
	explained := e.metFault || len(e.faults) > 0 && !e.faults[0].ofProgram()
	of := slices.DeleteFunc(explaining(e, d), func(n record.CauseName) bool { return n == record.CauseFault && explained })
	otherwise := rules[names]{
		{e.unexplained > 0 && e.spread, names{"unexplained"}},
		{e.unexplained > 0, names{"unexplained", record.CauseOthers}},
		{d.Reason != record.ByMessage || explained, nil},
		{e.startFailed, names{record.CauseLimits}},
		{true, names{record.CauseOwn}},
	}.first()
	switch d.Reason {
	case record.ByCause:
		return nil
	case record.ByShared:
		return advise(e, "shared")
	}
	if out := remedies(e, of); out != nil {
		return out
	}
	return remedies(e, otherwise)
}

// remedies returns the advice for causes, the first for the cause that explains most.
func remedies(e evidence, of []record.CauseName) (out []string) {
	for _, n := range of {
		for _, t := range remedy(e, n) {
			if len(out) < record.MaxTry && !slices.Contains(out, t) {
				out = append(out, t)
			}
		}
	}
	return out
}

func remedy(e evidence, n record.CauseName) []string {
	ofHost := n == record.CauseLimits && hostMemory(e).Answer == record.Yes
	switch {
	case ofHost && e.addressLimited:
		return append(advise(e, n), advise(e, "host")...)
	case ofHost:
		return advise(e, "host")
	case n == record.CauseUnlisted && ownLeft(e):
		return advise(e, "left")
	}
	return advise(e, n)
}
