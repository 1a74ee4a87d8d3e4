package diagnosis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"bookend/internal/gpu"
	"bookend/internal/record"
)

// words are a cause's titles in a table and in a headline, and what to try against it.
type words struct {
	title, sentence string
	try             []string
}

var texts = map[record.CauseName]words{
	record.CauseOthers:   {"another process", "another process held memory of your GPU", nil},
	record.CauseLeftover: {"left by an earlier job", "an earlier job left GPU memory in use", nil},
	record.CauseUnlisted: {"memory without process", "GPU memory was in use without a process", nil},
	record.CausePieces:   {"fragmented memory", "free GPU memory is fragmented", nil},
	record.CausePool: {"framework's pool", "fragmentation inside your framework's pool",
		[]string{"a smaller batch, inputs of one size"}},
	record.CauseFault: {"GPU or driver fault", "GPU or driver had a fault", nil},
	record.CauseOwn: {"your own use", "your job needed more than the GPU has",
		[]string{"smaller batch, gradient checkpointing, lower precision, more GPUs"}},
	record.CauseProcesses: {"several processes", "several processes of your job share one GPU",
		[]string{"set the device from the local rank (SLURM_LOCALID, LOCAL_RANK)"}},
	record.CauseLimits: {"limits, host memory", "a limit of your job, not the GPU",
		[]string{"ulimit -v unlimited; look for ulimit in script and .bashrc"}},
	record.CauseShare: {"only a share", "your job had only a share of the GPU", nil},
}

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

// Title returns a cause's name in a table.
func Title(n record.CauseName) string { return texts[n].title }

// rank orders causes by how much each explains: the first that is yes comes first in the headline.
var rank = []record.CauseName{
	record.CauseLimits, record.CauseLeftover, record.CauseOthers, record.CauseUnlisted, record.CausePool,
	record.CauseProcesses, record.CauseOwn, record.CausePieces, record.CauseFault, record.CauseShare,
}

// asked returns why the diagnosis is worth reporting; "" if it is not, as for a job that succeeded with a full GPU.
func (j judge) asked(d record.Diagnosis) record.Reason {
	ofMemory := func(m record.Message) bool {
		return m.Kind != record.KindShared && m.Kind != record.KindFault && (!ambiguous(m) || j.cramped())
	}
	switch {
	case slices.ContainsFunc(j.Messages, ofMemory):
		return record.ByMessage
	case len(j.said(record.KindShared)) > 0:
		return record.ByShared
	case j.failed() != "":
		return record.ByFailure
	}
	for _, n := range []record.CauseName{record.CauseOthers, record.CauseLeftover, record.CauseUnlisted,
		record.CausePieces, record.CauseFault} {
		if d.Cause(n).Answer == record.Yes && (n != record.CauseOthers || j.Shared == "") {
			return record.ByCause
		}
	}
	return ""
}

// failed describes how the job failed; "" if it did not or that is unknown. A cancelled job has status 0.
func (j judge) failed() string {
	e := j.Job.Exit
	what, status := "Your job", e.Raw // as wait(2) returns it
	if status == 0 {
		what, status = "A step of your job", e.Derived
	}
	switch s := signal(status); {
	case !e.Known || status == 0:
		return ""
	case s != 0:
		return fmt.Sprintf("%s was ended by signal %d", what, s)
	}
	return fmt.Sprintf("%s failed (exit code %d)", what, status>>8&0xff)
}

func (j judge) headline(d record.Diagnosis) string {
	yes, lead := j.leading(d), ""
	switch d.Reason {
	case record.ByShared:
		return "A kernel wanted more shared memory or registers than a GPU has"
	case record.ByMessage:
		lead = j.question() + ": "
	case record.ByFailure:
		lead = j.failed() + ". Found: "
	case record.ByCause:
		lead = "Seen while your job ran: "
	}
	switch {
	case len(yes) > 0:
		return lead + strings.Join(yes, "; ")
	case d.Reason == record.ByFailure && j.saidFault() != "":
		return j.failed() + "; its output reports " + j.saidFault()
	case d.Reason == record.ByFailure:
		return j.failed() + "; " + cmp.Or(j.unsearched(), "no message about memory in its output")
	case j.strange > 0:
		return fmt.Sprintf("%ssomething unknown held %s of the GPU", lead, gpu.Size(j.strange))
	case j.nodeIsWell(d) && j.startless():
		return fmt.Sprintf("%snothing seen on %s explains it; a limit such as ulimit -v would", lead, j.Job.Node)
	case j.nodeIsWell(d):
		return fmt.Sprintf("%snothing seen on %s explains it: most likely your job itself", lead, j.Job.Node)
	}
	return fmt.Sprintf("%snot known; nothing that was looked at on %s explains it", lead, j.Job.Node)
}

func (j judge) question() string {
	switch {
	case j.startless():
		return "Why CUDA did not start"
	case j.Job.Exit.Known && j.failed() == "" && !j.Cancelled:
		// The program or its script ignored the error.
		return "It ran out of memory, but ended without an error"
	}
	return "Why out of memory"
}

// leading returns the sentences of the causes that stand by themselves, at most the two that explain most.
func (j judge) leading(d record.Diagnosis) (out []string) {
	for _, n := range rank {
		if d.Cause(n).Explains() && (n != record.CauseShare || d.Reason == record.ByMessage) && len(out) < 2 {
			out = append(out, j.sentence(n, d.Reason))
		}
	}
	return out
}

func (j judge) sentence(n record.CauseName, reason record.Reason) string {
	switch {
	case n == record.CausePool:
		for _, f := range j.failures {
			if f.poolMattered() && f.Framework != record.FromOther {
				return "fragmentation inside " + string(f.Framework)
			}
		}
	case n == record.CauseOwn && reason != record.ByMessage:
		return "your job used nearly all of the GPU"
	case n != record.CauseLimits || j.hostMemory().Answer != record.Yes:
	case !j.hostAlone():
		return "host memory ran out"
	case !j.cramped():
		return "host memory, not the GPU's"
	}
	return texts[n].sentence
}

// nodeIsWell reports whether everything that can be checked was, and nothing is wrong with the node. A process that
// came and went between the ends is never ruled out.
func (j judge) nodeIsWell(d record.Diagnosis) bool {
	for _, n := range []record.CauseName{record.CauseLeftover, record.CausePieces, record.CauseFault} {
		if d.Cause(n).Answer != record.No {
			return false
		}
	}
	much := func(h held) bool { return h.Unknown != "" || !h.Bytes.Known() || h.Bytes.Bytes >= significant }
	return !slices.ContainsFunc(j.held, much) && j.strange == 0 && j.unlooked(record.CauseOthers) == "" &&
		j.SharedUnknown == ""
}

// try returns what the job's owner can do about the causes found. A job that succeeded needs nothing.
func (j judge) try(d record.Diagnosis) (out []string) {
	switch d.Reason {
	case record.ByCause:
		return nil
	case record.ByShared:
		return []string{"smaller tiles, fewer stages or fewer threads in that kernel"}
	}
	var all []string
	for _, n := range rank {
		if d.Cause(n).Explains() {
			all = append(all, j.remedies(n)...)
		}
	}
	if j.strange > 0 && len(all) == 0 {
		all = []string{"nvidia-smi in your job: is the other process yours?"}
		if !j.spread() {
			all = append(all, j.remedies(record.CauseOthers)...)
		}
	}
	switch {
	case len(all) > 0 || d.Reason != record.ByMessage:
	case j.startless():
		all = j.remedies(record.CauseLimits)
	default:
		all = j.remedies(record.CauseOwn)
	}
	for _, t := range all {
		if len(out) < record.MaxTry && !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out
}

func (j judge) remedies(n record.CauseName) []string {
	if n == record.CauseUnlisted && j.ownLeft() {
		return []string{"end what your job starts in the background, and what it exports"}
	}
	if slices.Contains([]record.CauseName{record.CauseOthers, record.CauseLeftover, record.CauseUnlisted,
		record.CausePieces, record.CauseFault}, n) {
		return []string{"another node: sbatch --exclude=" + j.Job.Node}
	}
	if m := j.said(record.KindDevice); len(m) > 0 && better[n][m[0].Framework] != nil {
		return better[n][m[0].Framework]
	}
	switch host := n == record.CauseLimits && j.hostMemory().Answer == record.Yes; {
	case host && j.cramped():
		return append(slices.Clone(texts[n].try), moreHost)
	case host:
		return []string{moreHost}
	}
	return texts[n].try
}

const moreHost = "more host memory: sbatch --mem, or fewer data workers"

// pair formats two sizes, with the unit only once if it is the same: "92.9 + 12.0 GiB".
func pair(a uint64, between string, b uint64) string {
	first, second := gpu.Size(a), gpu.Size(b)
	if strings.HasSuffix(second, " GiB") {
		first = strings.TrimSuffix(first, " GiB")
	}
	return first + between + second
}
