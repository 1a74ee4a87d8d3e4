// Package drain knows what Bookend has to do with a drained node: the text of its drain reasons, and when a health check may
// put that in the place of Slurm's own, or put the node back to work. What Slurm says and what is on record are values here.
package drain

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/report"
	"bookend/internal/slurm"
)

// MaxReason is the longest drain reason in bytes. Shown are the characters of it that "sinfo -R" has room for: code and card
// stand in them.
const (
	MaxReason = 120
	Shown     = 20
)

// Grammar is the form of a reason as a regular expression: a published interface. Its groups are code, Slurm's number of the
// card, MiB, PID, job, hook, and the job again.
const Grammar = `^(BKD(?:-[A-Z]+)+)(?: g(?:pu)?=([0-9]+))?(?: ([0-9]+)MiB)?(?: pid=([0-9]+))? job=([0-9]+) (prolog|epilog); see: bookend show ([0-9]+)$`

const (
	toCard   = "gpu="
	toCardIn = "g=" // where the code is so long that the card would not be shown
	toPID    = "pid="
	toJob    = "job="
	mib      = "MiB"
	atProlog = "prolog"
	atEpilog = "epilog"
	remedy   = "; see: bookend show "
)

// Reason is a drain reason of ours as data. No name that a user chose is in it, and no bracket: Slurm shows who wrote it and
// when in brackets behind it.
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
	if f.Holder != nil && !f.Holder.Gone && f.Holder.PID > 0 && f.Holder.PID <= math.MaxInt32 { // who is gone holds nothing: the number may be another's
		r.PID = uint32(f.Holder.PID)
	}
	return r
}

// Text is the reason as Slurm shows it: the one composer there is.
func (r Reason) Text() report.Safe {
	text := string(r.Code)
	if r.GPU != nil {
		text += r.card()
	}
	if r.MiB > 0 {
		text += fmt.Sprintf(" %d%s", r.MiB, mib)
	}
	if r.PID > 0 {
		text += fmt.Sprintf(" %s%d", toPID, r.PID)
	}
	hook := atEpilog
	if r.Phase == slurm.Prolog {
		hook = atProlog
	}
	text += fmt.Sprintf(" %s%d %s%s%d", toJob, r.Job, hook, remedy, r.Job)
	return report.Clean(text, MaxReason)
}

func (r Reason) card() string {
	card := fmt.Sprintf(" %s%d", toCard, *r.GPU)
	if len(r.Code)+len(card) > Shown {
		card = fmt.Sprintf(" %s%d", toCardIn, *r.GPU)
	}
	return card
}

// first is the form that the first release wrote: it named the GPU in full behind a long code, and figures of 0.
const first = `^BKD(?:-[A-Z]+)+(?: gpu=(?:0|-?[1-9][0-9]*))?(?: (?:0|[1-9][0-9]*)MiB)?` +
	`(?: pid=(?:0|-?[1-9][0-9]{0,6}))? job=([0-9]+) (?:prolog|epilog); see: bookend show ([0-9]+)$`

// Ours reports whether a text is, byte for byte, one that a release of Bookend writes or wrote: whatever somebody changed is
// not ours any more. A form that changes stays known here, since nodes show it until they are resumed.
func Ours(text string) bool {
	r, ok := Parse(text)
	if !ok || len(text) > MaxReason {
		return false
	}
	if string(r.Text()) == text {
		return true
	}
	older := regexp.MustCompile(first).FindStringSubmatch(text)
	return older != nil && older[1] == older[2] && older[1] == fmt.Sprint(r.Job)
}

// Recorded reports whether a text that is on record as ours can be: it begins with a code. The words behind it may be those of
// another release.
func Recorded(text string) bool {
	name, _, _ := strings.Cut(text, " ")
	return validCode(name) && len(text) <= maxWhy
}

// Parse reads what is stable in a reason: code, GPU, memory, process, job and hook. It tolerates any other words, which differ
// from release to release; whether the text is as Bookend wrote it Ours tells.
func Parse(text string) (Reason, bool) {
	fields := strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == ';' || r == ',' })
	if len(fields) == 0 || !validCode(fields[0]) || !strings.HasPrefix(text, fields[0]) {
		return Reason{}, false
	}
	r := Reason{Code: code.Code(fields[0])}
	for _, f := range fields[1:] {
		r.take(f)
	}
	if r.Job == 0 {
		return Reason{}, false
	}
	return r, true
}

// take reads one field. What it does not understand it leaves out.
func (r *Reason) take(field string) {
	switch {
	case field == atProlog:
		r.Phase = slurm.Prolog
	case field == atEpilog:
		r.Phase = slurm.Epilog
	case strings.HasPrefix(field, toCard):
		r.takeCard(field[len(toCard):])
	case strings.HasPrefix(field, toCardIn):
		r.takeCard(field[len(toCardIn):])
	case strings.HasPrefix(field, toPID):
		r.PID = number32(field[len(toPID):])
	case strings.HasPrefix(field, toJob):
		r.Job = slurm.JobID(number32(field[len(toJob):]))
	case strings.HasSuffix(field, mib):
		r.MiB, _ = strconv.ParseUint(strings.TrimSuffix(field, mib), 10, 64)
	}
}

func (r *Reason) takeCard(text string) {
	if n, err := strconv.ParseUint(text, 10, 32); err == nil {
		number := uint32(n)
		r.GPU = &number
	}
}

func number32(text string) uint32 {
	n, _ := strconv.ParseUint(text, 10, 32)
	return uint32(n)
}

// validCode reports whether s has the form of a code: a later release may know more of them.
func validCode(s string) bool {
	words := strings.Split(s, "-")
	for _, w := range words {
		if w == "" || strings.ContainsFunc(w, func(c rune) bool { return c < 'A' || c > 'Z' }) {
			return false
		}
	}
	return words[0] == "BKD" && len(words) > 1
}
