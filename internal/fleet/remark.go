package fleet

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Remark is what one node found at the ends of a job: see slurmcmd.Remark.
type Remark struct {
	Job, UID uint32
	Node     string
	Began    time.Time // of its run there, zero if unknown
	Text     string    // "n1: BKD-ORPHAN gpu 0 20.0 GiB"
}

type finding struct {
	Code   string `json:"code"`
	Action string `json:"action"`
	Index  *int   `json:"index"`
	Bytes  figure `json:"bytes"`
}

// Remarks returns remarks about the ended jobs in r with findings that policy reports, of codes that tells accepts.
func Remarks(r io.Reader, tells func(code string) bool) (all []Remark, err error) {
	answers, _, err := read(bufio.NewReaderSize(r, mostLine), false)
	for _, a := range answers {
		for _, j := range slices.Concat(a.doc.Ended, a.doc.Runs) {
			if text := j.remark(tells); text != "" && a.reason == "" {
				all = append(all, Remark{j.JobID, j.UID, a.doc.Node, j.BeganAt, a.doc.Node + ": " + text})
			}
		}
	}
	return all, err
}

func (j run) remark(tells func(code string) bool) string {
	var words []string
	for _, f := range j.Findings {
		text := f.Code
		if f.Index != nil {
			text += fmt.Sprintf(" gpu %d", *f.Index)
		}
		if f.Bytes.Bytes > 0 {
			text += fmt.Sprintf(" %.1f GiB", float64(f.Bytes.Bytes)/(1<<30))
		}
		if slices.Contains(actions, f.Action) && tells(f.Code) && !slices.Contains(words, text) && j.State == "ended" {
			words = append(words, text)
		}
	}
	return strings.Join(words[:min(len(words), 3)], " + ") // for more there is no room
}
