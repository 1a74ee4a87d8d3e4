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

// better is what to try with a framework instead.
var better = map[record.CauseName]map[record.Framework][]string{
	record.CausePool: {
		record.FromPyTorch: {"export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"},
		record.FromCuPy:    {"cupy.get_default_memory_pool().free_all_blocks()"},
	},
	record.CauseOwn: {record.FromJAX: {"export XLA_PYTHON_CLIENT_MEM_FRACTION=.95, if it has the GPU alone",
		"smaller batch, more GPUs"}},
	record.CauseProcesses: {record.FromJAX: {"export XLA_PYTHON_CLIENT_PREALLOCATE=false, or one process a GPU",
		"export XLA_PYTHON_CLIENT_MEM_FRACTION=.3 for three on one GPU"}},
}

// reason returns why the diagnosis is worth reporting; "" if it is not, as for a job that succeeded with a full GPU.
func reason(e evidence, d record.Diagnosis) record.Reason {
	ofMemory := func(m record.Message) bool {
		return m.Kind != record.KindShared && m.Kind != record.KindFault && (!m.Ambiguous() || e.addressLimited)
	}
	found := func(n record.CauseName) bool {
		return d.Cause(n).Answer == record.Yes && (n != record.CauseOthers || e.in.Shared == "")
	}
	switch {
	case slices.ContainsFunc(e.in.Messages, ofMemory):
		return record.ByMessage
	case len(e.messages[record.KindShared]) > 0:
		return record.ByShared
	case failed(e.in.Job.Exit) != "", e.in.Cancelled && len(e.faults) > 0:
		return record.ByFailure
	case slices.ContainsFunc(ofNode, found):
		return record.ByCause
	}
	return ""
}

// failed describes how the job failed; "" if it did not or that is unknown. A cancelled job has status 0.
func failed(exit slurm.ExitStatus) string {
	what, status := "Your job", exit.Raw // as wait(2) returns it
	if status == 0 {
		what, status = "A step of your job", exit.Derived
	}
	switch s := signal(status); {
	case !exit.Known || status == 0:
		return ""
	case s != 0:
		return fmt.Sprintf("%s was ended by signal %d", what, s)
	}
	return fmt.Sprintf("%s failed (exit code %d)", what, status>>8&0xff)
}

func headline(e evidence, d record.Diagnosis) string {
	failure := cmp.Or(failed(e.in.Job.Exit), "Your job was cancelled or met its time limit")
	lead := map[record.Reason]string{
		record.ByMessage: question(e) + ": ", record.ByFailure: failure + ". Found: ",
		record.ByCause: "Seen while your job ran: ",
	}[d.Reason]
	found := leading(e, d)
	switch {
	case d.Reason == record.ByShared:
		return "A kernel wanted more shared memory or registers than a GPU has"
	case len(found) > 0:
		return lead + strings.Join(found, "; ")
	case d.Reason == record.ByFailure && len(e.faults) > 0:
		return failure + "; its output reports " + e.faults[0].Claim
	case d.Reason == record.ByFailure:
		return failure + "; " + cmp.Or(e.unsearched, "no message about memory in its output")
	case e.unexplained > 0:
		return fmt.Sprintf("%ssomething unknown held %s of the GPU", lead, gpu.Size(e.unexplained))
	case len(e.faults) > 0 && !e.faults[0].ofProgram():
		return lead + "not known; its output reports " + e.faults[0].Claim
	case nodeIsWell(e, d) && e.startFailed:
		return fmt.Sprintf("%snothing seen on %s explains it; a limit such as ulimit -v would", lead, e.in.Job.Node)
	case nodeIsWell(e, d):
		return fmt.Sprintf("%snothing seen on %s explains it: most likely your job itself", lead, e.in.Job.Node)
	}
	return fmt.Sprintf("%snot known; nothing that was looked at on %s explains it", lead, e.in.Job.Node)
}

func question(e evidence) string {
	switch {
	case e.startFailed:
		return "Why CUDA did not start"
	case e.in.Job.Exit.Known && failed(e.in.Job.Exit) == "" && !e.in.Cancelled:
		// The program or its script ignored the error.
		return "It ran out of memory, but ended without an error"
	}
	return "Why out of memory"
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
	switch {
	case n == record.CausePool:
		for _, f := range e.balances {
			if f.poolMattered() && f.message.Framework != record.FromOther {
				return "fragmentation inside " + string(f.message.Framework)
			}
		}
	case n == record.CauseOwn && reason != record.ByMessage:
		return "your job used nearly all of the GPU"
	case n != record.CauseLimits || hostMemory(e).Answer != record.Yes:
	case !hostAlone(e):
		return "host memory ran out"
	case !e.addressLimited:
		return "host memory, not the GPU's"
	}
	return causes[n].sentence
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

// try returns what the job's owner can do about the causes found. A job that succeeded needs nothing.
func try(e evidence, d record.Diagnosis) (out []string) {
	var all []string
	// reported, or the finding, says what to do about a fault
	explained := e.metFault || len(e.faults) > 0 && !e.faults[0].ofProgram()
	for _, n := range explaining(e, d) {
		if n != record.CauseFault || !explained {
			all = append(all, remedies(e, n)...)
		}
	}
	switch {
	case d.Reason == record.ByCause:
		return nil
	case d.Reason == record.ByShared:
		return []string{"smaller tiles, fewer stages or fewer threads in that kernel"}
	case len(all) > 0:
	case e.unexplained > 0:
		all = []string{"nvidia-smi in your job: is the other process yours?"}
		if !e.spread {
			all = append(all, remedies(e, record.CauseOthers)...)
		}
	case d.Reason != record.ByMessage, explained:
	case e.startFailed:
		all = remedies(e, record.CauseLimits)
	default:
		all = remedies(e, record.CauseOwn)
	}
	for _, t := range all {
		if len(out) < record.MaxTry && !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out
}

const moreHost = "more host memory: sbatch --mem, or fewer data workers"

func remedies(e evidence, n record.CauseName) []string {
	if n == record.CauseUnlisted && ownLeft(e) {
		return []string{"end what your job starts in the background, and what it exports"}
	}
	if slices.Contains(ofNode, n) {
		return []string{"another node: sbatch --exclude=" + e.in.Job.Node}
	}
	if len(e.failures) > 0 && better[n][e.failures[0].message.Framework] != nil {
		return better[n][e.failures[0].message.Framework]
	}
	switch host := n == record.CauseLimits && hostMemory(e).Answer == record.Yes; {
	case host && e.addressLimited:
		return append(slices.Clone(causes[n].try), moreHost)
	case host:
		return []string{moreHost}
	}
	return causes[n].try
}

// pair formats two sizes, with the unit only once if it is the same: "92.9 + 12.0 GiB".
func pair(a uint64, between string, b uint64) string {
	first, second := gpu.Size(a), gpu.Size(b)
	if strings.HasSuffix(second, " GiB") {
		first = strings.TrimSuffix(first, " GiB")
	}
	return first + between + second
}
