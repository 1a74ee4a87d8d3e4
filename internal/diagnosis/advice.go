package diagnosis

import (
	"cmp"
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

// advise returns the advice for a cause: that of the program that failed, else of the library that printed the message,
// else that for any program. A line that needs what the message does not have is left out.
func advise(e evidence, cause record.CauseName) []string {
	m := speakerOf(e, cause)
	fill := strings.NewReplacer("NODE", e.in.Job.Node, "SETTING", m.Setting, "FRACTION", fractionOf(m))
	for _, program := range []record.Framework{m.Program, m.Framework, "any"} {
		lines := slices.Clone(advice()[string(program)+": "+string(cause)])
		lacking := func(line string) bool { return strings.Contains(line, "SETTING") && m.Setting == "" }
		lines = slices.DeleteFunc(lines, lacking)
		for i, line := range lines {
			lines[i] = fill.Replace(line)
		}
		if len(lines) > 0 {
			return lines
		}
	}
	return nil
}

// speakerOf returns the message that the advice is for: the first of the kind that the cause is about.
func speakerOf(e evidence, cause record.CauseName) record.Message {
	kinds := map[record.CauseName]record.MessageKind{"host": record.KindHost, "shared": record.KindShared}
	all := e.messages[cmp.Or(kinds[cause], record.KindDevice)]
	return append(slices.Clone(all), record.Message{})[0]
}

// fractionOf returns the variable with which JAX of the message's version sets its share of a GPU. The older name still
// works where the newer is known, but JAX does not start with both.
func fractionOf(m record.Message) string {
	if strings.Contains(m.Line, "JaxRuntimeError") || strings.Contains(m.Line, "jaxlib._jax") {
		return "XLA_CLIENT_MEM_FRACTION"
	}
	return "XLA_PYTHON_CLIENT_MEM_FRACTION"
}

// try returns what the job's owner can do about the causes found. A job that succeeded needs nothing.
func try(e evidence, d record.Diagnosis) []string {
	type names = []record.CauseName
	// reported, or the finding, says what to do about a fault
	explained := e.metFault || len(e.faults) > 0 && !e.faults[0].ofProgram()
	isFault := func(n record.CauseName) bool { return n == record.CauseFault && explained }
	of := slices.DeleteFunc(explaining(e, d), isFault)
	otherwise := rules[names]{
		{e.unexplained > 0 && (e.spread || e.unsampled() != ""), names{"unexplained"}},
		{e.unexplained > 0, names{"unexplained", record.CauseOthers}},
		{d.Reason != record.ByMessage || explained, nil},
		{suspect(d).Name != "" && !e.spread, names{suspect(d).Name, record.CauseOwn}},
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
	atOnce := func(f failure) bool { return f.asked > cmp.Or(e.roomFor(f), beyondAnyGPU) }
	switch {
	case n == record.CauseShare && slices.ContainsFunc(e.failures, failure.isCapped):
		return advise(e, "cap")
	case n == record.CauseOwn && slices.ContainsFunc(e.failures, failure.isBroken):
		return advise(e, "broken")
	case n == record.CauseOwn && slices.ContainsFunc(e.failures, atOnce):
		return append(advise(e, "once"), advise(e, n)...)
	case ofHost && e.addressLimited:
		return append(advise(e, n), advise(e, "host")...)
	case ofHost:
		return advise(e, "host")
	case n == record.CauseUnlisted && ownLeft(e):
		return advise(e, "left")
	case n == record.CauseProcesses && len(e.in.Cards) == 1:
		return advise(e, "single")
	}
	return advise(e, n)
}
