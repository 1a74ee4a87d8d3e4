package diagnosis

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/oom"
)

// Title is what a cause is called in a table.
func (n Name) Title() string { return titles[n] }

var titles = map[Name]string{
	Others: "another process", Leftover: "left by an earlier job", Unlisted: "memory without process",
	Pieces: "memory in pieces", Pool: "framework's pool", Fault: "GPU or driver fault",
	Overhead: "driver overhead", Own: "your own use", Processes: "several processes",
	Limits: "limits, host memory", Share: "only a share",
}

// rank orders the causes by how much each explains: the first that is yes leads the headline.
var rank = []Name{Limits, Leftover, Others, Unlisted, Pool, Processes, Own, Pieces, Overhead, Fault, Share}

// sentences are what a cause is called in a headline.
var sentences = map[Name]string{
	Others: "another process held memory of your GPU", Leftover: "an earlier job left GPU memory in use",
	Unlisted: "GPU memory was in use without a process", Pieces: "free GPU memory came in pieces",
	Pool: "your framework's pool was in pieces", Fault: "GPU or driver had a fault",
	Overhead: "the driver's share of many processes", Own: "your job itself used up the GPU",
	Processes: "several processes of your job shared one GPU", Limits: "a limit of your job, not the GPU",
	Share: "your job had only a share of the GPU",
}

// headline is the answer in one sentence.
func (j judge) headline(d Diagnosis) string {
	lead := ""
	switch d.Reason {
	case ByShared:
		if j.MessagesPart != "" {
			return "A kernel wanted more shared memory or registers than a GPU has"
		}
		return "Not GPU memory: a kernel wanted more shared memory or registers than a GPU has"
	case ByMessage:
		lead = j.asks() + ": "
	case ByFailure:
		if lead = upper(d.Asked) + ". If it lacked GPU memory: "; j.leads(d, Fault) || j.leads(d, Limits) {
			lead = upper(d.Asked) + ". Found: "
		}
	case ByCause, ByWish:
		lead = "Seen while your job ran: "
	}
	if yes := j.leading(d); len(yes) > 0 {
		return lead + strings.Join(yes, "; ")
	}
	switch {
	case d.Reason == ByWish && j.nodeIsWell(d) && j.unsearched() == "":
		return "Nothing was seen that kept GPU memory from your job"
	case d.Reason == ByWish:
		return "Nothing was seen that kept GPU memory from your job, but not all could be looked at"
	case d.Reason == ByFailure:
		return upper(d.Asked) + "; " + j.unexplained()
	case j.strange() > 0:
		text := fmt.Sprintf("%ssomething unknown held %s of the GPU", lead, Size(j.strange()))
		if slices.ContainsFunc(j.Messages, func(m oom.Message) bool { return m.Rank != nil }) {
			text += ", perhaps other ranks of your job"
		}
		return text
	case j.nodeIsWell(d):
		return fmt.Sprintf("%snothing seen on %s explains it: most likely your job itself", lead, j.Job.Node)
	}
	return fmt.Sprintf("%snot known; nothing that was looked at on %s explains it", lead, j.Job.Node)
}

// asks is the question that a message about memory puts.
func (j judge) asks() string {
	text := "Why out of memory"
	switch {
	case j.startless():
		text = "Why CUDA did not start"
	case j.Job.Exit.Known && j.failed() == "" && !j.Cancelled:
		// it caught that and went on, or its script took no notice
		text = "It ran out of memory, but ended without an error"
	}
	if j.first != nil {
		text += " (" + j.ahead() + ")"
	}
	return text
}

// unexplained is what the output of a job that failed says where it names nothing about memory.
func (j judge) unexplained() string {
	switch {
	case len(j.said(oom.Fault)) > 0:
		return "its output tells of a GPU error"
	case len(j.Messages) > 0:
		return "its output may speak of host memory"
	case j.MessagesPart != "":
		return fmt.Sprintf("no known message in what was read of its output (%s)", j.MessagesPart)
	case j.MessagesUnknown != "":
		return j.unsearched()
	}
	return "no known message in its output"
}

// leading words the causes that stand by themselves, the two that explain most.
func (j judge) leading(d Diagnosis) []string {
	var out []string
	for _, n := range rank {
		c := d.Cause(n)
		if c.Answer != Yes || c.With != "" || n == Share && d.Reason != ByMessage || len(out) == 2 {
			continue
		}
		out = append(out, j.sentence(n))
	}
	return out
}

func (j judge) sentence(n Name) string {
	switch {
	case n != Limits || j.hostMemory().answer != Yes:
		return sentences[n]
	case !j.hostAlone():
		return "host memory ran out"
	case j.cramped():
		return sentences[n]
	}
	return "host memory, not the GPU's"
}

// leads reports whether a cause is the first of the headline.
func (j judge) leads(d Diagnosis, n Name) bool {
	yes := j.leading(d)
	return len(yes) > 0 && yes[0] == j.sentence(n)
}

// nodeIsWell: all that can be looked at was, and nothing speaks against the node. That somebody came and went unseen
// between the ends is never ruled out.
func (j judge) nodeIsWell(d Diagnosis) bool {
	for _, n := range []Name{Leftover, Pieces, Fault} {
		if d.Cause(n).Answer != No {
			return false
		}
	}
	for _, h := range j.held() {
		if h.Unknown != "" || !h.Bytes.Known() || h.Bytes.Bytes >= significant {
			return false
		}
	}
	return j.strange() == 0 && j.unlooked(Others) == "" && j.SharedUnknown == ""
}

// try is what the job's owner can do, by the causes found.
func (j judge) try(d Diagnosis) []string {
	switch d.Reason {
	case ByCause, ByWish:
		return nil // it ended well
	case ByShared:
		return []string{"smaller tiles, fewer stages or fewer threads in that kernel"}
	}
	var out []string
	add := func(more ...string) {
		for _, t := range more {
			if len(out) < MaxTry && !slices.Contains(out, t) {
				out = append(out, t)
			}
		}
	}
	for _, n := range rank {
		if c := d.Cause(n); c.Answer == Yes && c.With == "" {
			add(j.remedies(n)...)
		}
	}
	if len(out) == 0 && j.strange() > 0 {
		add("nvidia-smi in your job: is the other process yours?")
		if !j.away() {
			add(j.remedies(Others)...)
		}
	}
	if len(out) == 0 && d.Reason == ByMessage {
		add(j.remedies(Own)...)
	}
	return out
}

// TellAdmin begins the remedy that is not the owner's own.
const TellAdmin = "tell your admin"

// remedies are what to try against one cause, each short enough for a line.
func (j judge) remedies(n Name) []string {
	elsewhere := []string{"another node: sbatch --exclude=" + j.Job.Node,
		fmt.Sprintf("%s: bookend show %d on %s", TellAdmin, j.Job.ID, j.Job.Node)}
	switch n {
	case Unlisted:
		if j.ownLeft(j.stocks(isUnlisted)) {
			return []string{"end what your job starts in the background, and what it exports"}
		}
		return elsewhere
	case Others, Leftover, Pieces, Fault:
		return elsewhere
	case Pool:
		return j.poolRemedies()
	case Processes:
		return j.processRemedies()
	case Overhead:
		return []string{"fewer processes on one GPU"}
	case Limits:
		return j.limitRemedies()
	case Own:
		return []string{"a smaller batch, or a larger GPU", "gradient checkpointing, lower precision",
			"the model spread over more GPUs"}
	}
	return nil
}

func (j judge) poolRemedies() []string {
	for _, m := range j.said(oom.Device) {
		switch m.Framework {
		case oom.PyTorch:
			return []string{"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", "a smaller batch, inputs of one size"}
		case oom.CuPy:
			return []string{"cupy.get_default_memory_pool().free_all_blocks()"}
		}
	}
	return []string{"a smaller batch, inputs of one size"}
}

func (j judge) processRemedies() []string {
	for _, m := range j.said(oom.Device) {
		if m.Framework == oom.JAX {
			return []string{"XLA_PYTHON_CLIENT_PREALLOCATE=false, or one process a GPU",
				"XLA_PYTHON_CLIENT_MEM_FRACTION=.3 for three on one GPU"}
		}
	}
	return []string{"one process a GPU: each rank its own, cuda:LOCAL_RANK"}
}

func (j judge) limitRemedies() []string {
	if j.hostMemory().answer == Yes {
		remedies := []string{"more host memory: sbatch --mem, or fewer data workers"}
		if j.cramped() {
			return append([]string{noLimit}, remedies...)
		}
		return remedies
	}
	if m, ok := j.capped(); ok {
		switch m.Framework {
		case oom.JAX:
			return []string{"XLA_PYTHON_CLIENT_MEM_FRACTION=.95, if it has the GPU alone"}
		case oom.PyTorch:
			return []string{"a larger set_per_process_memory_fraction, or none"}
		}
		return []string{"a larger limit in your program, or none"}
	}
	return []string{noLimit}
}

const noLimit = "ulimit -v unlimited; look for ulimit in script and .bashrc"

// who names what speaks.
func who(m oom.Message) string {
	if m.Framework == oom.Other {
		return "your program"
	}
	return string(m.Framework)
}

// said words a message as the reason to ask.
func said(m oom.Message) string {
	what := map[oom.Kind]string{
		oom.Device: "ran out of GPU memory", oom.Init: "could not start for want of memory",
		oom.Host:   "ran out of host memory",
		oom.Shared: "ran out of a kernel's shared memory",
	}[m.Kind]
	if m.Kind == oom.Host && m.Framework == oom.Slurm {
		return "your job ran out of host memory, as Slurm says"
	}
	return who(m) + " " + what
}

// overflown, in bytes, is more than any machine has.
const overflown = 10 << 50

// Size words bytes as a user compares them with what the framework says.
func Size(bytes uint64) string {
	if bytes >= overflown {
		return fmt.Sprintf("%d PiB", bytes>>50)
	}
	if bytes >= 1<<30 {
		return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30))
	}
	return fmt.Sprintf("%d MiB", bytes>>20)
}

// pair words two sizes with the unit once, where it is one: "92.9 + 12.0 GiB".
func pair(a uint64, between string, b uint64) string {
	first, second := Size(a), Size(b)
	if strings.HasSuffix(first, " GiB") && strings.HasSuffix(second, " GiB") {
		first = strings.TrimSuffix(first, " GiB")
	}
	return first + between + second
}

func figure(f gpu.Figure) string {
	if !f.Known() {
		return "an unknown amount"
	}
	return Size(f.Bytes)
}

// clock words a moment of CLOCK_BOOTTIME as a time of day behind a word such as " at "; empty where the job's end
// has no wall time.
func (j judge) clock(word string, at time.Duration) string {
	if at == 0 || j.WallEnd.IsZero() || j.End == nil || j.End.Snapshot.At == 0 {
		return ""
	}
	return word + j.WallEnd.Add(at-j.End.Snapshot.At).Format("15:04:05")
}

func upper(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
