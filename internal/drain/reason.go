// Package drain knows what Bookend has to do with a drained node: the text of its drain reasons, and when a health
// check may put that in the place of Slurm's own, or put the node back to work. What Slurm says and what is on record
// are values here.
package drain

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"strconv"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/report"
	"bookend/internal/slurm"
)

// MaxReason is the longest drain reason in bytes. Shown are the characters of it that "sinfo -R" has room for: they
// have the code and the card.
const (
	MaxReason = 120
	Shown     = 20
)

// Grammar is the form of a reason as a regular expression: a published interface. Its groups are code, Slurm's number
// of the card, MiB, PID, job, hook, and the job again. Every reason that a release of Bookend wrote has it, since nodes
// show them until they are resumed: the first release named the GPU in full behind a long code, and figures of 0 or
// below. It may only grow.
const Grammar = `^(BKD(?:-[A-Z]+)+)(?: g(?:pu)?=(0|-?[1-9][0-9]*))?(?: (0|[1-9][0-9]*)MiB)?` +
	`(?: pid=(0|-?[1-9][0-9]*))? job=([1-9][0-9]*) (prolog|epilog); see: bookend show ([0-9]+)$`

// Reason is a drain reason of ours as data. No name that a user chose is in it, and no bracket: Slurm shows who wrote
// it and when in brackets behind it.
type Reason struct {
	Code  code.Code
	GPU   *uint32 // Slurm's number of the card; nil where it is about no single one
	MiB   uint64  // of memory that it is about, 0 for none
	PID   uint32  // the process that holds it, 0 for none
	Job   slurm.JobID
	Phase slurm.Context // slurm.Prolog or slurm.Epilog
}

// For is the reason for a finding of a job's hook.
func For(f finding.Finding, job slurm.JobID, phase slurm.Context) Reason {
	r := Reason{Code: f.Code, Job: job, Phase: slurm.Epilog}
	if phase == slurm.Prolog {
		r.Phase = slurm.Prolog
	}
	if f.Index != nil && *f.Index >= 0 && *f.Index <= math.MaxUint16 {
		n := uint32(*f.Index)
		r.GPU = &n
	}
	if f.Bytes.Known() {
		r.MiB = f.Bytes.Bytes >> 20
	}
	// A process that is gone holds nothing: its number may be another's.
	if f.Holder != nil && !f.Holder.Gone && f.Holder.PID > 0 && f.Holder.PID <= math.MaxInt32 {
		r.PID = uint32(f.Holder.PID)
	}
	return r
}

// Text is the reason as Slurm shows it: the one composer there is.
func (r Reason) Text() report.Safe {
	text := string(r.Code)
	if r.GPU != nil {
		card := fmt.Sprintf(" gpu=%d", *r.GPU)
		if len(text)+len(card) > Shown { // after a code so long the card would not be shown
			card = fmt.Sprintf(" g=%d", *r.GPU)
		}
		text += card
	}
	if r.MiB > 0 {
		text += fmt.Sprintf(" %dMiB", r.MiB)
	}
	if r.PID > 0 {
		text += fmt.Sprintf(" pid=%d", r.PID)
	}
	hook := "epilog"
	if r.Phase == slurm.Prolog {
		hook = "prolog"
	}
	text += fmt.Sprintf(" job=%d %s; see: bookend show %d", r.Job, hook, r.Job)
	return report.Clean(text, MaxReason)
}

// Parse reads a reason that a release of Bookend wrote, byte for byte: whatever an admin changed is not ours any more.
func Parse(text string) (r Reason, ours bool) {
	found := regexp.MustCompile(Grammar).FindStringSubmatch(text)
	if found == nil || len(text) > MaxReason || found[5] != found[7] {
		return Reason{}, false
	}
	var err error
	number := func(text string, bits int) uint64 {
		n, wrong := strconv.ParseInt(cmp.Or(text, "0"), 10, bits)
		err = cmp.Or(err, wrong)
		return uint64(max(n, 0))
	}
	r = Reason{Code: code.Code(found[1]), MiB: number(found[3], 64), PID: uint32(number(found[4], 32)),
		Phase: slurm.Epilog}
	if found[6] == "prolog" {
		r.Phase = slurm.Prolog
	}
	if card := uint32(number(found[2], 32)); found[2] != "" && found[2][0] != '-' {
		r.GPU = &card
	}
	job := number(found[5], 64)
	if err != nil || job > math.MaxUint32 {
		return Reason{}, false
	}
	r.Job = slurm.JobID(job)
	return r, true
}

// Ours reports whether a text is a reason of Bookend's, unchanged.
func Ours(text string) bool {
	_, ours := Parse(text)
	return ours
}

// Recorded reports whether a text that is on record as ours can be: it begins with a code. The words behind it may be
// those of another release.
func Recorded(text string) bool {
	begins, _ := regexp.MatchString(`^BKD(-[A-Z]+)+( |$)`, text)
	return begins && len(text) <= maxWhy
}
