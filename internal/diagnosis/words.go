package diagnosis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"bookend/internal/oom"
)

// words are a cause's titles in a table and in a headline, and what to try against it.
type words struct {
	title, sentence string
	try             []string
}

var texts = map[Name]words{
	Others:   {"another process", "another process held memory of your GPU", nil},
	Leftover: {"left by an earlier job", "an earlier job left GPU memory in use", nil},
	Unlisted: {"memory without process", "GPU memory was in use without a process", nil},
	Pieces:   {"fragmented memory", "free GPU memory is fragmented", nil},
	Pool: {"framework's pool", "fragmentation inside your framework's pool",
		[]string{"a smaller batch, inputs of one size"}},
	Fault: {"GPU or driver fault", "GPU or driver had a fault", nil},
	Own: {"your own use", "your job needed more than the GPU has",
		[]string{"smaller batch, gradient checkpointing, lower precision, more GPUs"}},
	Processes: {"several processes", "several processes of your job share one GPU",
		[]string{"set the device from the local rank (SLURM_LOCALID, LOCAL_RANK)"}},
	Limits: {"limits, host memory", "a limit of your job, not the GPU",
		[]string{"ulimit -v unlimited; look for ulimit in script and .bashrc"}},
	Share: {"only a share", "your job had only a share of the GPU", nil},
}

var better = map[Name]map[oom.Framework][]string{
	Pool: {
		oom.PyTorch: {"export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"},
		oom.CuPy:    {"cupy.get_default_memory_pool().free_all_blocks()"},
	},
	Own: {oom.JAX: {"export XLA_PYTHON_CLIENT_MEM_FRACTION=.95, if it has the GPU alone",
		"smaller batch, more GPUs"}},
	Processes: {oom.JAX: {"export XLA_PYTHON_CLIENT_PREALLOCATE=false, or one process a GPU",
		"export XLA_PYTHON_CLIENT_MEM_FRACTION=.3 for three on one GPU"}},
}

// Title returns the cause's name in a table.
func (n Name) Title() string { return texts[n].title }

// rank orders causes by how much each explains: the first that is yes comes first in the headline.
var rank = []Name{Limits, Leftover, Others, Unlisted, Pool, Processes, Own, Pieces, Fault, Share}

// asked returns why the diagnosis is worth reporting; "" if it is not, as for a job that succeeded with a full GPU.
func (j judge) asked(d Diagnosis) Reason {
	ofMemory := func(m oom.Message) bool {
		return m.Kind != oom.Shared && m.Kind != oom.Fault && (!ambiguous(m) || j.cramped())
	}
	switch {
	case slices.ContainsFunc(j.Messages, ofMemory):
		return ByMessage
	case len(j.said(oom.Shared)) > 0:
		return ByShared
	case j.failed() != "":
		return ByFailure
	}
	for _, n := range []Name{Others, Leftover, Unlisted, Pieces, Fault} {
		if d.Cause(n).Answer == Yes && (n != Others || j.Shared == "") {
			return ByCause
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

func (j judge) headline(d Diagnosis) string {
	yes, lead := j.leading(d), ""
	switch d.Reason {
	case ByShared:
		return "A kernel wanted more shared memory or registers than a GPU has"
	case ByMessage:
		lead = j.question() + ": "
	case ByFailure:
		lead = j.failed() + ". Found: "
	case ByCause:
		lead = "Seen while your job ran: "
	}
	switch {
	case len(yes) > 0:
		return lead + strings.Join(yes, "; ")
	case d.Reason == ByFailure && j.saidFault() != "":
		return j.failed() + "; its output reports " + j.saidFault()
	case d.Reason == ByFailure:
		return j.failed() + "; " + cmp.Or(j.unsearched(), "no message about memory in its output")
	case j.strange > 0:
		return fmt.Sprintf("%ssomething unknown held %s of the GPU", lead, Size(j.strange))
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
func (j judge) leading(d Diagnosis) (out []string) {
	for _, n := range rank {
		if d.Cause(n).Explains() && (n != Share || d.Reason == ByMessage) && len(out) < 2 {
			out = append(out, j.sentence(n, d.Reason))
		}
	}
	return out
}

func (j judge) sentence(n Name, reason Reason) string {
	switch {
	case n == Pool:
		for _, f := range j.failures {
			if f.poolMattered() && f.Framework != oom.Other {
				return "fragmentation inside " + string(f.Framework)
			}
		}
	case n == Own && reason != ByMessage:
		return "your job used nearly all of the GPU"
	case n != Limits || j.hostMemory().Answer != Yes:
	case !j.hostAlone():
		return "host memory ran out"
	case !j.cramped():
		return "host memory, not the GPU's"
	}
	return texts[n].sentence
}

// nodeIsWell reports whether everything that can be checked was, and nothing is wrong with the node. A process that
// came and went between the ends is never ruled out.
func (j judge) nodeIsWell(d Diagnosis) bool {
	for _, n := range []Name{Leftover, Pieces, Fault} {
		if d.Cause(n).Answer != No {
			return false
		}
	}
	much := func(h held) bool { return h.Unknown != "" || !h.Bytes.Known() || h.Bytes.Bytes >= significant }
	return !slices.ContainsFunc(j.held, much) && j.strange == 0 && j.unlooked(Others) == "" && j.SharedUnknown == ""
}

// try returns what the job's owner can do about the causes found. A job that succeeded needs nothing.
func (j judge) try(d Diagnosis) (out []string) {
	switch d.Reason {
	case ByCause:
		return nil
	case ByShared:
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
			all = append(all, j.remedies(Others)...)
		}
	}
	switch {
	case len(all) > 0 || d.Reason != ByMessage:
	case j.startless():
		all = j.remedies(Limits)
	default:
		all = j.remedies(Own)
	}
	for _, t := range all {
		if len(out) < MaxTry && !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out
}

func (j judge) remedies(n Name) []string {
	if n == Unlisted && j.ownLeft() {
		return []string{"end what your job starts in the background, and what it exports"}
	}
	if slices.Contains([]Name{Others, Leftover, Unlisted, Pieces, Fault}, n) {
		return []string{"another node: sbatch --exclude=" + j.Job.Node}
	}
	if m := j.said(oom.Device); len(m) > 0 && better[n][m[0].Framework] != nil {
		return better[n][m[0].Framework]
	}
	switch host := n == Limits && j.hostMemory().Answer == Yes; {
	case host && j.cramped():
		return append(slices.Clone(texts[n].try), moreHost)
	case host:
		return []string{moreHost}
	}
	return texts[n].try
}

const moreHost = "more host memory: sbatch --mem, or fewer data workers"

// Size formats bytes like the frameworks do, so that users can compare them.
func Size(bytes uint64) string {
	if bytes >= 1<<30 {
		return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30))
	}
	return fmt.Sprintf("%d MiB", bytes>>20)
}

// pair formats two sizes, with the unit only once if it is the same: "92.9 + 12.0 GiB".
func pair(a uint64, between string, b uint64) string {
	first, second := Size(a), Size(b)
	if strings.HasSuffix(second, " GiB") {
		first = strings.TrimSuffix(first, " GiB")
	}
	return first + between + second
}
