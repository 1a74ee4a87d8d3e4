package view

import (
	"fmt"
	"io"
	"strings"

	"bookend/internal/diagnosis"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/oom"
	"bookend/internal/report"
)

// why writes the messages about memory that the job's output had, and each cause of running out of it with the whole
// evidence, whether or not the user was told, unless the job is known to have ended well and nothing speaks of it. PIDs
// and jobs of others are in it: it is for admins.
func why(w io.Writer, r ledger.Run, e ledger.End) {
	if e.Diagnosis != nil || len(e.Messages) > 0 {
		for _, o := range e.Outputs {
			output(w, o)
		}
	}
	for _, m := range e.Messages {
		message(w, m)
	}
	d := e.Diagnosis
	if d == nil {
		return
	}
	if d.Reason != "" || !r.Job.Exit.Known {
		fmt.Fprintf(w, "  %s\n", reason(*d))
		for _, c := range d.Causes {
			fmt.Fprintf(w, "    %-*s  %-*s %s\n", len(diagnosis.Unknown), said(c.Answer), titleWidth, c.Name.Title(), evidenced(c))
		}
	}
	for _, p := range d.Peaks {
		fmt.Fprintf(w, "    peak: PID %d had %s at most%s\n", p.PID, Figure(p.Peak), lifetime(p))
	}
	for _, t := range d.Try {
		if strings.HasPrefix(t, diagnosis.TellAdmin) {
			continue // who reads this is the admin
		}
		fmt.Fprintf(w, "    try: %s\n", report.Clean(t, 400))
	}
}

// output writes what was looked through of one of the job's outputs.
func output(w io.Writer, o ledger.Output) {
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
	fmt.Fprintf(w, "  %s: %s\n", report.Clean(name, 2*nameWidth+ledger.MaxOutputPath), report.Clean(text, 200))
}

// titleWidth is the longest title of a cause.
const titleWidth = 22

// said words an answer so that a yes stands out.
func said(a diagnosis.Answer) string {
	if a == diagnosis.Yes {
		return "YES"
	}
	return string(report.Clean(string(a), nameWidth))
}

func reason(d diagnosis.Diagnosis) report.Safe {
	if d.Asked == "" {
		return "Out of memory? How the job ended is not known"
	}
	if d.Reason == diagnosis.ByMessage {
		return report.Clean(fmt.Sprintf("%s (its output says: %s)", d.Headline, d.Asked), 400)
	}
	return report.Clean(d.Headline, 400)
}

func evidenced(c diagnosis.Cause) report.Safe {
	text := c.Evidence
	if c.Index != nil {
		text = fmt.Sprintf("GPU %d: %s", *c.Index, text)
	}
	if c.Detail != "" {
		text += " [" + c.Detail + "]"
	}
	return report.Clean(text, 400)
}

func lifetime(p gpu.Accounted) string {
	text := ""
	if !p.Began.IsZero() {
		text += ", began " + p.Began.Local().Format(timestamp)
	}
	if p.Ran > 0 {
		text += fmt.Sprintf(", ran %.1f s", p.Ran.Seconds())
	}
	if p.Running {
		text += ", still runs"
	}
	return text
}

// message writes one message of the job's output: what the user's program claims.
func message(w io.Writer, m oom.Message) {
	from := string(m.Framework)
	if m.Framework == oom.Other {
		from = "unnamed"
	}
	head := fmt.Sprintf("its output says (%s, %s)", from, ranOut[m.Kind])
	if m.Count > 1 {
		head += fmt.Sprintf(", %d times", m.Count)
	}
	fmt.Fprintf(w, "  %s: %s\n", report.Clean(head, 2*nameWidth), report.Keep(m.Line, oom.MaxLine))
	if said := figures(m); said != "" {
		fmt.Fprintf(w, "    %s\n", said)
	}
}

// ranOut words what a message says that ran out.
var ranOut = map[oom.Kind]string{
	oom.Device: "GPU memory", oom.Init: "memory for CUDA's start", oom.Host: "host memory", oom.Shared: "a kernel's shared memory", oom.Fault: "a GPU error",
}

// figures words what a message says, and nothing of what it does not.
func figures(m oom.Message) string {
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
		name string
		gpu.Figure
	}{
		{"asked", m.Asked}, {"total", m.Total}, {"free", m.Free}, {"in use", m.InUse}, {"pool live", m.Allocated}, {"pool idle", m.Idle}, {"limit", m.Limit},
	} {
		if f.Known() {
			all = append(all, f.name+" "+Figure(f.Figure))
		}
	}
	for _, p := range m.Others {
		all = append(all, fmt.Sprintf("process %d %s", p.PID, Figure(p.Memory)))
	}
	return strings.Join(all, ", ")
}
