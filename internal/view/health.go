package view

import (
	"fmt"
	"io"
	"strings"

	"bookend/internal/gpu"
	"bookend/internal/health"
	"bookend/internal/ledger"
	"bookend/internal/report"
)

// conditions writes what was read of the cards' condition, a line a card, and what the kernel's log had since the job's
// start. The log's own findings are among the findings.
func conditions(w io.Writer, r ledger.Run, e ledger.End) {
	for _, d := range r.Devices {
		for _, h := range e.Health {
			if h.Device == d.Device.ID && len(h.Facts)+len(h.Accounting.Mode)+len(h.Accounting.Unknown) > 0 {
				fmt.Fprintf(w, "  GPU %d  health: %s\n", d.Index, condition(h))
			}
		}
	}
	k := e.Kernel
	if k == nil {
		return
	}
	if k.Unknown != "" {
		fmt.Fprintf(w, "  kernel log: not read: %s\n", report.Clean(k.Unknown, 400))
	}
	if k.Lost {
		fmt.Fprintln(w, "  kernel log: part of it was overwritten before it was read")
	}
	for _, x := range k.Xids {
		fmt.Fprintf(w, "  kernel log: %s\n", xid(x))
	}
	for _, kill := range k.Kills {
		text := fmt.Sprintf("host memory ran out: PID %d (%s) was ended, %s", kill.PID, kill.Name, kill.Cgroup)
		fmt.Fprintf(w, "  kernel log: %s\n", report.Clean(strings.TrimSuffix(text, ", "), 400))
	}
	if k.Mismatch != "" {
		fmt.Fprintf(w, "  kernel log: %s\n", report.Clean(k.Mismatch, 400))
	}
}

// atRest is what a fact says of a card with which nothing is wrong.
var atRest = map[gpu.FactCode]string{
	gpu.ECCUncorrected: "0", gpu.RemapPending: "no", gpu.RemapFailed: "no", gpu.RemapRows: "0", gpu.RetiredPages: "0", gpu.RetiredPending: "no",
	gpu.RecoveryAction: "none", gpu.PersistenceMode: "on", gpu.ComputeMode: "default", gpu.Throttled: "none",
}

// condition names the facts that are not at rest; of a card that is well it says how many were read.
func condition(h gpu.Health) report.Safe {
	var odd []string
	for _, f := range h.Facts {
		name := strings.ReplaceAll(string(f.Code), "_", " ")
		switch {
		case f.Unknown != "":
			odd = append(odd, fmt.Sprintf("%s unknown: %s", name, f.Unknown))
		case f.Code == gpu.BAR1Used, f.Code == gpu.BAR1Total, f.Value == atRest[f.Code]:
		case f.Code == gpu.FabricState && (f.Value == "completed" || f.Value == "not_supported"):
		default:
			odd = append(odd, name+" "+f.Value)
		}
	}
	text := count(len(h.Facts), "fact", "s") + " read"
	switch {
	case len(h.Facts) == 0: // a start reads accounting alone
		text = "not read"
	case len(odd) == 0:
		text += ", all well"
	}
	for _, o := range odd {
		text += ", " + o
	}
	switch {
	case h.Accounting.Unknown != "":
		text += "; accounting unknown: " + h.Accounting.Unknown
	case h.Accounting.Mode == "on":
		text += fmt.Sprintf("; accounting on, %s", count(len(h.Accounting.Processes), "process", "es"))
	case h.Accounting.Mode != "":
		text += "; accounting " + h.Accounting.Mode + " (nvidia.accounting)"
	}
	return report.Clean(text, 400)
}

// xid writes one error of the driver's with its meaning.
func xid(x gpu.Xid) report.Safe {
	text := fmt.Sprintf("Xid %d on %s", x.Code, x.BusID)
	if x.GI != nil {
		text += fmt.Sprintf(", MIG instance %d", *x.GI)
	}
	if meaning, known := health.XidMeaning(x.Code); known {
		text += ": " + meaning
	}
	if x.PID != 0 {
		text += fmt.Sprintf(", PID %d (%s)", x.PID, x.Name)
	}
	if x.More > 0 {
		text += fmt.Sprintf(", and %d like it before", x.More)
	}
	if x.Text != "" {
		text += ": " + x.Text
	}
	return report.Clean(text, 400)
}
