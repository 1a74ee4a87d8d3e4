package view

import (
	"fmt"
	"io"
	"strings"

	"bookend/internal/answer"
	"bookend/internal/diagnosis"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/oom"
	"bookend/internal/report"
)

// why writes the messages about memory that the job's output had, and each cause of running out of it with the whole
// evidence, whether or not the user was told, unless the job is known to have ended well and nothing speaks of it. PIDs
// and jobs of others are in it: it is for admins.
func why(w io.Writer, r answer.Run, e answer.End) {
	if e.Why != nil || len(e.Messages) > 0 {
		for _, o := range e.Outputs {
			output(w, o)
		}
	}
	for _, m := range e.Messages {
		message(w, m)
	}
	d := e.Why
	if d == nil {
		return
	}
	if d.Reason != "" || r.Exit == nil {
		fmt.Fprintf(w, "  %s\n", reason(*d))
		for _, c := range d.Causes {
			fmt.Fprintf(w, "    %-*s  %-*s %s\n", len(diagnosis.Unknown), said(c.Answer), titleWidth, c.Title,
				evidenced(c))
		}
	}
	for _, p := range d.Peaks {
		fmt.Fprintf(w, "    peak: PID %d had %s at most%s\n", p.PID, mib(p.Bytes), lifetime(p))
	}
	for _, t := range d.Try {
		if strings.HasPrefix(t, diagnosis.TellAdmin) {
			continue // who reads this is the admin
		}
		fmt.Fprintf(w, "    try: %s\n", report.Keep(t, textWidth))
	}
}

// output writes what was looked through of one of the job's outputs.
func output(w io.Writer, o answer.Output) {
	name, text := o.Kind.Name(), "all "+ledger.Length(o.Size)+" searched"
	switch {
	case o.Why != "" && o.Read == 0:
		text = "not searched: " + o.Why
	case o.Read < o.Size:
		text = fmt.Sprintf("last %s of %s searched", ledger.Length(o.Read), ledger.Length(o.Size))
	}
	if o.Path != "" {
		name += " " + o.Path
	}
	fmt.Fprintf(w, "  %s: %s\n", report.Keep(name, 2*nameWidth+textWidth), report.Keep(text, textWidth))
}

// titleWidth is the longest title of a cause.
const titleWidth = 22

// said words an answer so that a yes stands out.
func said(a diagnosis.Answer) string {
	if a == diagnosis.Yes {
		return "YES"
	}
	return string(report.Keep(string(a), nameWidth))
}

func reason(d answer.Why) report.Safe {
	if d.Asked == "" {
		return "Out of memory? How the job ended is not known"
	}
	if d.Reason == diagnosis.ByMessage {
		return report.Keep(fmt.Sprintf("%s (its output says: %s)", d.Headline, d.Asked), textWidth)
	}
	return report.Keep(d.Headline, textWidth)
}

func evidenced(c answer.Cause) report.Safe {
	text := c.Evidence
	if c.Index != nil {
		text = fmt.Sprintf("GPU %d: %s", *c.Index, text)
	}
	if c.Detail != "" {
		text += " [" + c.Detail + "]"
	}
	return report.Keep(text, textWidth)
}

func lifetime(p answer.Peak) string {
	text := ""
	if p.BeganAt != nil {
		text += ", began " + p.BeganAt.Local().Format(timestamp)
	}
	if p.RanSeconds > 0 {
		text += fmt.Sprintf(", ran %.1f s", p.RanSeconds)
	}
	if p.Running {
		text += ", still runs"
	}
	return text
}

// message writes one message of the job's output: what the user's program claims.
func message(w io.Writer, m answer.Message) {
	from := string(m.Framework)
	if m.Framework == oom.Other {
		from = "unnamed"
	}
	head := fmt.Sprintf("its output says (%s, %s)", from, ranOut[m.Kind])
	if m.Count > 1 {
		head += fmt.Sprintf(", %d times", m.Count)
	}
	fmt.Fprintf(w, "  %s: %s\n", report.Keep(head, 2*nameWidth), report.Keep(m.Line, oom.MaxLine))
	if figures := figures(m); figures != "" {
		fmt.Fprintf(w, "    %s\n", figures)
	}
}

// ranOut words what a message says that ran out.
var ranOut = map[oom.Kind]string{
	oom.Device: "GPU memory", oom.Init: "memory for CUDA's start", oom.Host: "host memory",
	oom.Shared: "a kernel's shared memory", oom.Fault: "a GPU error",
}

// figures words what a message says, and nothing of what it does not.
func figures(m answer.Message) string {
	var all []string
	if m.GPU != nil {
		all = append(all, fmt.Sprintf("GPU %d of those it saw", *m.GPU))
	}
	if m.Rank != nil {
		all = append(all, fmt.Sprintf("rank %d", *m.Rank))
	}
	if m.PID != 0 {
		all = append(all, fmt.Sprintf("PID %d", m.PID))
	}
	for _, f := range []struct {
		name  string
		bytes *uint64
	}{
		{"asked", m.Asked}, {"total", m.Total}, {"free", m.Free}, {"in use", m.InUse}, {"pool live", m.PoolLive},
		{"pool idle", m.PoolIdle}, {"limit", m.Limit},
	} {
		if f.bytes != nil {
			all = append(all, f.name+" "+mib(f.bytes))
		}
	}
	for _, p := range m.Others {
		all = append(all, fmt.Sprintf("process %d %s", p.PID, mib(p.Bytes)))
	}
	return strings.Join(all, ", ")
}

// conditions writes what was read of the cards' condition, a line a card, and what the kernel's log had since the job's
// start. The log's own findings are among the findings.
func conditions(w io.Writer, r answer.Run, e answer.End) {
	for _, c := range r.Cards {
		for _, h := range e.Conditions {
			if h.UUID == c.UUID && (len(h.Facts) > 0 || h.Accounting != nil || h.Unknown["accounting"] != "") {
				fmt.Fprintf(w, "  GPU %s  health: %s\n", cardName(c.Card), condition(h))
			}
		}
	}
	k := e.Kernel
	if k == nil {
		return
	}
	var lines []string
	if k.Unread != "" {
		lines = append(lines, "not read: "+k.Unread)
	}
	if k.Lost {
		lines = append(lines, "part of it was overwritten before it was read")
	}
	for _, x := range k.Xids {
		lines = append(lines, xid(x))
	}
	for _, kill := range k.Kills {
		text := fmt.Sprintf("host memory ran out: PID %d (%s) was ended, %s", kill.PID, kill.Process, kill.Cgroup)
		lines = append(lines, strings.TrimSuffix(text, ", "))
	}
	if k.Mismatch != "" {
		lines = append(lines, k.Mismatch)
	}
	for _, line := range lines {
		fmt.Fprintf(w, "  kernel log: %s\n", report.Keep(line, textWidth))
	}
}

// atRest is what a fact says of a card with which nothing is wrong.
var atRest = map[gpu.FactCode][]string{
	gpu.ECCUncorrected: {"0"}, gpu.RemapPending: {"no"}, gpu.RemapFailed: {"no"}, gpu.RemapRows: {"0"},
	gpu.RetiredPending: {"no"}, gpu.RecoveryAction: {"none"}, gpu.PersistenceMode: {"on"},
	gpu.ComputeMode: {"default"}, gpu.Throttled: {"none"}, gpu.FabricState: {"completed", "not_supported"},
}

// condition names the facts that are not at rest; of a card that is well it says how many were read.
func condition(h answer.Condition) report.Safe {
	odd := ""
	for _, f := range h.Facts {
		name := strings.ReplaceAll(string(f.Fact), "_", " ")
		switch {
		case f.Value == nil:
			odd += fmt.Sprintf(", %s unknown: %s", name, f.Unknown["value"])
		case f.Fact == gpu.BAR1Used, f.Fact == gpu.BAR1Total, well(f):
		default:
			odd += ", " + name + " " + *f.Value
		}
	}
	text := count(len(h.Facts), "fact", "s") + " read"
	switch {
	case len(h.Facts) == 0: // a start reads accounting alone
		text = "not read"
	case odd == "":
		text += ", all well"
	}
	text += odd
	switch why := h.Unknown["accounting"]; {
	case why != "":
		text += "; accounting unknown: " + why
	case h.Accounting == nil:
	case *h.Accounting == "on":
		text += fmt.Sprintf("; accounting on, %s", count(len(h.Peaks), "process", "es"))
	default:
		text += "; accounting " + *h.Accounting + " (nvidia.accounting)"
	}
	return report.Keep(text, textWidth)
}

func well(f answer.Fact) bool {
	for _, rest := range atRest[f.Fact] {
		if *f.Value == rest {
			return true
		}
	}
	return false
}

// xid words one error of the driver's with its meaning.
func xid(x answer.Xid) string {
	text := fmt.Sprintf("Xid %d on %s", x.Code, x.BusID)
	if x.Instance != nil {
		text += fmt.Sprintf(", MIG instance %d", *x.Instance)
	}
	if x.Meaning != "" {
		text += ": " + x.Meaning
	}
	if x.PID != 0 {
		text += fmt.Sprintf(", PID %d (%s)", x.PID, x.Process)
	}
	if x.More > 0 {
		text += fmt.Sprintf(", and %d like it before", x.More)
	}
	if x.Text != "" {
		text += ": " + x.Text
	}
	return text
}
