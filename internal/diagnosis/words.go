package diagnosis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
)

// reason returns why the diagnosis is worth reporting; "" if it is not, as for a job that succeeded with a full GPU.
func reason(e evidence, d record.Diagnosis) record.Reason {
	ofMemory := func(m record.Message) bool {
		return m.Kind != record.KindShared && m.Kind != record.KindFault && (!m.Ambiguous() || e.addressLimited)
	}
	found := func(n record.CauseName) bool {
		return d.Cause(n).Answer == record.Yes && (n != record.CauseOthers || e.in.Shared == "")
	}
	return rules[record.Reason]{
		{slices.ContainsFunc(e.in.Messages, ofMemory), record.ByMessage},
		{len(e.messages[record.KindShared]) > 0, record.ByShared},
		{failed(e.in.Job.Exit) != "" || e.in.Cancelled && len(e.faults) > 0, record.ByFailure},
		{slices.ContainsFunc(ofNode, found), record.ByCause},
	}.first()
}

// failed describes how the job failed; "" if it did not or that is unknown. A cancelled job has status 0.
func failed(exit slurm.ExitStatus) string {
	what, status := "Your job", exit.Raw // as wait(2) returns it
	if status == 0 {
		what, status = "A step of your job", exit.Derived
	}
	return rules[string]{
		{!exit.Known || status == 0, ""},
		{signal(status) != 0, fmt.Sprintf("%s was ended by signal %d", what, signal(status))},
		{true, fmt.Sprintf("%s failed (exit code %d)", what, status>>8&0xff)},
	}.first()
}

func headline(e evidence, d record.Diagnosis) string {
	failure := cmp.Or(failed(e.in.Job.Exit), "Your job was cancelled or met its time limit")
	lead := map[record.Reason]string{
		record.ByMessage: question(e) + ": ", record.ByFailure: failure + ". Found: ",
		record.ByCause: "Seen while your job ran: ",
	}[d.Reason]
	found, claim, ofProgram, byFailure := leading(e, d), "", true, d.Reason == record.ByFailure
	if len(e.faults) > 0 {
		claim, ofProgram = "; its output reports "+e.faults[0].Claim, e.faults[0].ofProgram()
	}
	well, node := nodeIsWell(e, d), e.in.Job.Node
	return rules[string]{
		{d.Reason == record.ByShared, "A kernel wanted more shared memory or registers than a GPU has"},
		{len(found) > 0, lead + strings.Join(found, "; ")},
		{byFailure && claim != "", failure + claim},
		{byFailure && e.in.MessagesUnknown != "" && e.in.Every > 0, failure + "; no sample of its GPUs shows why"},
		{byFailure, failure + "; " + cmp.Or(e.unsearched, "no message about memory in its output")},
		{e.unsampled() != "", lead + "your program's message says that others held " + gpu.Size(e.unexplained) +
			", but no sample shows it"},
		{e.unexplained > 0, lead + "something unknown held " + gpu.Size(e.unexplained) + " of the GPU"},
		{!ofProgram, lead + "not known" + claim},
		{perhaps(d) != "", lead + "not known; perhaps " + perhaps(d)},
		{well && e.startFailed, lead + "nothing seen on " + node + " explains it; a limit such as ulimit -v would"},
		{well, lead + "nothing seen on " + node + " explains it: most likely your job itself" + usedMost(e)},
		{true, lead + "not known; nothing that was looked at on " + node + " explains it"},
	}.first()
}

// suspect returns the first cause outside the job of which something was seen that may have mattered, the zero Cause
// for none.
func suspect(d record.Diagnosis) record.Cause {
	for _, n := range []record.CauseName{record.CauseOthers, record.CauseLeftover, record.CauseUnlisted} {
		if c := d.Cause(n); c.Answer == record.CannotTell && strings.Contains(c.Evidence, unweighed) {
			return c
		}
	}
	return record.Cause{}
}

// perhaps words the suspect, with what was seen of it in brackets.
func perhaps(d record.Diagnosis) string {
	c := suspect(d)
	seen, _, _ := strings.Cut(c.Evidence, unweighed)
	if seen == "" {
		return ""
	}
	return causes[slices.IndexFunc(causes, func(o cause) bool { return o.name == c.Name })].sentence + " (" + seen + ")"
}

// usedMost returns the most that samples saw a process of the job use, in brackets; empty if they saw none.
func usedMost(e evidence) string {
	use, _, _ := strings.Cut(measured(e).Evidence, ", sampled")
	if !strings.HasPrefix(use, "at least ") {
		return ""
	}
	return " (" + use + ")"
}

func question(e evidence) string {
	ignored := e.in.Job.Exit.Known && failed(e.in.Job.Exit) == "" && !e.in.Cancelled // by the program, or its script
	return rules[string]{
		{e.startFailed, "Why CUDA did not start"},
		{ignored, "It ran out of memory, but ended without an error"},
		{true, "Why out of memory"},
	}.first()
}

// leading returns the sentences of the causes that stand by themselves, at most the two that explain most.
func leading(e evidence, d record.Diagnosis) (sentences []string) {
	for _, n := range explaining(e, d) {
		if n != record.CauseShare || d.Reason == record.ByMessage {
			sentences = append(sentences, sentence(e, n, d.Reason))
		}
	}
	return sentences[:min(len(sentences), 2)]
}

func sentence(e evidence, n record.CauseName, reason record.Reason) string {
	host := n == record.CauseLimits && hostMemory(e).Answer == record.Yes
	broken := slices.ContainsFunc(e.failures, failure.isBroken)
	capped := slices.ContainsFunc(e.failures, failure.isCapped)
	if n == record.CausePool {
		for _, f := range e.balances {
			if f.poolMattered() && f.message.Framework != record.FromOther {
				return "fragmentation inside " + string(f.message.Framework)
			}
		}
	}
	return rules[string]{
		{n == record.CauseOwn && reason != record.ByMessage, "your job used nearly all of the GPU"},
		{n == record.CauseShare && capped, "a limit that your program set, not the GPU's memory"},
		{host && !hostAlone(e), "host memory ran out"},
		{host && !e.addressLimited && killed(e).Limit > 0, "your job's host memory (--mem), not the GPU's"},
		{host && !e.addressLimited, "host memory, not the GPU's"},
		{n == record.CauseOwn && broken, "a broken size was requested"},
		{true, causes[slices.IndexFunc(causes, func(c cause) bool { return c.name == n })].sentence},
	}.first()
}

// nodeIsWell reports whether everything that can be checked was, and nothing is wrong with the node. A process that
// came and went between the ends is never ruled out.
func nodeIsWell(e evidence, d record.Diagnosis) bool {
	ruledOut := func(n record.CauseName) bool { return d.Cause(n).Answer == record.No }
	much := func(h held) bool { return h.finding.Unknown != "" || mayMatter(h.finding.Bytes) }
	return ruledOut(record.CauseLeftover) && ruledOut(record.CausePieces) && ruledOut(record.CauseFault) &&
		!slices.ContainsFunc(e.held, much) && e.unexplained == 0 && unlooked(e.in, record.CauseOthers) == "" &&
		e.in.SharedUnknown == ""
}

// pair formats two sizes, with the unit only once if it is the same: "92.9 + 12.0 GiB".
func pair(a uint64, between string, b uint64) string {
	first, second := gpu.Size(a), gpu.Size(b)
	if strings.HasSuffix(second, " GiB") {
		first = strings.TrimSuffix(first, " GiB")
	}
	return first + between + second
}
