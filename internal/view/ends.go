package view

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/report"
)

// sides writes each card of a job with both ends side by side.
func sides(w io.Writer, r ledger.Run) {
	var last *ledger.End
	if r.Closed() {
		last = r.Last()
	}
	for _, d := range r.Devices {
		fmt.Fprintf(w, "  %s  %s%s\n", inkOf(w).in(bold, fmt.Sprintf("GPU %d", d.Index)), report.Clean(string(d.Device.ID), nameWidth), model(d.Device, r.Start, last))
		left, right := side(d.Device, r.Start, nil, "no record"), side(d.Device, last, r.Start, "not yet")
		row(w, "", "start", "end")
		for i, name := range rows {
			if left[i]+right[i] != "" {
				row(w, name, left[i], right[i])
			}
		}
	}
}

// rows are what is told of a card at both ends.
var rows = [...]string{"used", "free", "largest block", "processes", "watched"}

// Widths of the table: both ends and their names fit 80 columns.
const (
	nameColumn = 15
	endColumn  = 28
)

// besideWidth is the least width of a terminal on which both ends stand beside each other.
const besideWidth = 4 + nameColumn + 2*endColumn

func row(w io.Writer, name, start, end string) {
	if widthOf(w) < besideWidth {
		fmt.Fprintf(w, "    %-*s%s -> %s\n", nameColumn, name, cmp.Or(start, "?"), cmp.Or(end, "?"))
		return
	}
	line := fmt.Sprintf("    %-*s%s  %s", nameColumn, name, padded(start, endColumn), end)
	fmt.Fprintln(w, strings.TrimRight(line, " "))
}

// side is one end of a card, a text for each row; none says why there is nothing.
func side(d gpu.Device, e, before *ledger.End, none string) (out [len(rows)]string) {
	if e == nil {
		out[0] = none
		return out
	}
	r, ok := e.Snapshot.Reading(d.ID)
	if !ok {
		out[0] = "not read"
		return out
	}
	out[0], out[1] = Figure(r.Memory.Used), Figure(r.Memory.Free)
	out[2], out[3] = "not tested", fmt.Sprint(len(r.Processes))
	if r.ProcessesUnknown != "" {
		out[3] = "unknown"
	}
	if p, tested := e.Probe(d.ID); tested {
		out[2] = block(p)
	}
	out[4] = curve(e.Curves[d.ID], dirty(before, d.ID))
	return out
}

func block(p gpu.Probe) string {
	switch p.Result {
	case gpu.ProbeOK, gpu.ProbeGap:
		return Figure(p.Largest)
	case gpu.ProbeSkipped:
		return "not tested"
	}
	return string(p.Result)
}

// model names a card's type and size, where one of its ends was read.
func model(d gpu.Device, ends ...*ledger.End) string {
	text := ""
	if d.Name != "" {
		text = "  " + string(report.Clean(d.Name, nameWidth))
	}
	for _, e := range ends {
		if e == nil {
			continue
		}
		if r, ok := e.Snapshot.Reading(d.ID); ok && r.Memory.Total.Known() {
			return text + "  " + Figure(r.Memory.Total)
		}
	}
	return text
}
