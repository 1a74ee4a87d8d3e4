package condition

import (
	"fmt"
	"strconv"
	"strings"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
)

// Explanation is the meaning and remedy of a code, a number or a pasted text. explain says what a code means here.
func Explanation(what string, explain func(catalog.Code) string) string {
	what = strings.TrimSpace(what[:min(len(what), 64<<10)])
	n, err := strconv.Atoi(what)
	xid, isXid := gpu.NamedXid(what)
	var paragraphs []string
	switch c, ok := catalog.Parse(what); {
	case ok:
		paragraphs = []string{explain(c)}
	case isXid:
		paragraphs = explainXid(gpu.Xid{Code: xid}, explain)
	case catalog.Topic(what) != "":
		paragraphs = []string{catalog.Topic(what)}
	case err == nil:
		paragraphs = explainExit(n, explain)
		if e, known := catalog.LookupXid(n); known && !e.Old() { // a plain number is rather an exit code
			paragraphs = append(paragraphs, explainXid(gpu.Xid{Code: n}, explain)...)
		}
		paragraphs = append(paragraphs, explainReturned(what)...)
	default:
		paragraphs = explainPasted(what, explain)
	}
	return catalog.Explanation(paragraphs)
}

// explainXid explains an error of a driver: by its number alone, or with what a line of the kernel's log says.
func explainXid(x gpu.Xid, explain func(catalog.Code) string) []string {
	row, _ := catalog.LookupXid(x.Code)
	ofDevice := row.Code == catalog.KernelLog || x.Code == gpu.PCIeFatal // which need be no GPU
	cause := string(row.Cause)
	switch {
	case ofDevice && row.Cause == catalog.ByHardware:
		cause = "hardware: the device with this address, or what is behind it"
	case x.Code == cleanedUp:
		cause = "what came before it: an earlier error, or whatever ended the program"
	}
	title, lines := gpu.Error(x.Code), [][2]string{{"means", row.Meaning}, {"cause", cause}}
	if x.BusID != "" {
		of := map[bool]string{true: "device", false: "GPU"}[ofDevice]
		title += fmt.Sprintf(" of %s %s %s", of, x.BusID, x.Instance)
	}
	if first, _ := catalog.LookupXid(x.CausedBy); x.CausedBy != 0 { // that is the error, and this its consequence
		lines[1][1] = fmt.Sprintf("%s (Xid %d: %s)", first.Cause, x.CausedBy, first.Meaning)
	}
	if x.OwnerPID() != 0 {
		lines = append(lines, [2]string{"process", fmt.Sprintf("PID %d (%.48s)", x.PID, x.Name)})
	}
	if x.Recovery != "" {
		lines = append(lines, [2]string{"recovery", "the driver now asks for: " + x.Recovery})
	}
	if row.Asks != "" {
		lines = append(lines, [2]string{"asked", row.Asks})
	}
	if row.Doubt != "" {
		lines = append(lines, [2]string{"doubt", row.Doubt})
	}
	return []string{catalog.Paragraph(strings.TrimSpace(title), "an error that the driver writes to the kernel log",
		lines...), explain(row.Code)}
}

func explainExit(n int, explain func(catalog.Code) string) []string {
	text := catalog.ExitMeaning(n)
	if text == "" {
		return nil
	}
	paragraphs := []string{catalog.Paragraph(fmt.Sprintf("exit code %d of Bookend's hooks", n), text)}
	if c, known := catalog.OfExit(n); known {
		paragraphs = append(paragraphs, explain(c))
	}
	return paragraphs
}

// explainPasted explains lines of the kernel's log, a drain reason, codes of Bookend, and what a library returned.
func explainPasted(what string, explain func(catalog.Code) string) (paragraphs []string) {
	for _, x := range gpu.PastedErrors(what) {
		paragraphs = append(paragraphs, explainXid(x, explain)...)
	}
	if gpu.PastedMismatch(what) {
		paragraphs = append(paragraphs, explain(catalog.Mismatch))
	}
	if len(paragraphs) > 0 {
		return paragraphs
	}
	for _, r := range catalog.SlurmReasons(what) {
		form := strings.ReplaceAll(r.Form, "#", "*")
		paragraphs = append(paragraphs, catalog.Paragraph("drain reason "+form, "Slurm's own text, not Bookend's",
			[2]string{"means", r.Meaning}, [2]string{"do", r.Remedy}))
	}
	for _, c := range catalog.Mentioned(what) {
		paragraphs = append(paragraphs, explain(c))
	}
	if strings.Contains(what, " good: bookend quarantine ") { // the end of a reason
		paragraphs = append(paragraphs, catalog.Paragraph("bookend quarantine", "the node's other GPUs are good",
			[2]string{"do", "run it: it keeps the faulty GPU from jobs, and ends the drain (docs/admin.md#a-bad-gpu)"}))
	}
	return append(paragraphs, explainReturned(what)...)
}

func explainReturned(what string) (paragraphs []string) {
	for _, r := range gpu.FindReturned(what) {
		paragraphs = append(paragraphs, catalog.Paragraph(r.Title(), "a return code of "+r.Library,
			[2]string{"means", r.Meaning}, [2]string{"do", r.Remedy}))
	}
	return paragraphs
}
