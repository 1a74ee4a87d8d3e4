// Package drain handles the drain of a node: the text of Bookend's drain reasons, when a health check may replace
// Slurm's own reason with it, and when it may resume the node.
package drain

import (
	"fmt"
	"math"
	"regexp"
	"strconv"

	"bookend/internal/record"
	"bookend/internal/safetext"
	"bookend/internal/slurm"
)

// MaxReason is the longest drain reason in bytes. Shown is how many characters "sinfo -R" shows: code and GPU.
const (
	MaxReason = 120
	Shown     = 20
)

// Grammar is the form of a reason as a regular expression: a published interface. Its groups are the code, Slurm's GPU
// number, MiB, PID, job, hook, and the job again. It matches every reason that any release wrote, since nodes show them
// until they are resumed: the first release wrote gpu= in full after a long code, and numbers of 0 or below. It may
// only be extended. The last group is the GPU again, if the others can work meanwhile.
const Grammar = `^(BKD(?:-[A-Z]+)+)(?: g(?:pu)?=(0|-?[1-9][0-9]*))?(?: (0|[1-9][0-9]*)MiB)?` +
	`(?: pid=(0|-?[1-9][0-9]*))?` +
	`(?: job=([1-9][0-9]*) (prolog|epilog); see: bookend show ([0-9]+)| healthcheck; see: bookend status)` +
	`(?:; [1-9][0-9]* of [1-9][0-9]* good: bookend quarantine --resume (0|[1-9][0-9]*))?$`

var words = map[slurm.Context]string{slurm.Prolog: "prolog", slurm.Epilog: "epilog"}

// Compose composes the reason for a finding. It has no name from a user, and no bracket, which Slurm adds.
func Compose(f record.Finding, job slurm.JobID, phase slurm.Context) safetext.Safe {
	text := string(f.Code)
	if f.Index != nil && *f.Index >= 0 && *f.Index <= math.MaxUint16 {
		card := fmt.Sprintf(" gpu=%d", *f.Index)
		if len(text)+len(card) > Shown { // after such a long code the GPU would not be shown
			card = fmt.Sprintf(" g=%d", *f.Index)
		}
		text += card
	}
	if mib := f.Bytes.Bytes >> 20; f.Bytes.Known() && mib > 0 {
		text += fmt.Sprintf(" %dMiB", mib)
	}
	// A process that is gone holds nothing; its PID may be reused.
	if h := f.Holder; h != nil && !h.Gone && h.PID > 0 {
		text += fmt.Sprintf(" pid=%d", h.PID)
	}
	if phase == slurm.HealthCheck {
		return safetext.Clean(text+" healthcheck; see: bookend status", MaxReason)
	}
	text += fmt.Sprintf(" job=%d %s; see: bookend show %d", job, words[phase], job)
	return safetext.Clean(text, MaxReason)
}

// Ours reports a reason that any release wrote, byte for byte: one that an admin changed is no longer ours.
func Ours(text string) bool {
	found := regexp.MustCompile(Grammar).FindStringSubmatch(text)
	if found == nil || len(text) > MaxReason || found[5] != found[7] || found[8] != "" && found[8] != found[2] {
		return false
	}
	_, err := strconv.ParseUint(found[5], 10, 32)
	return err == nil || found[5] == ""
}

// IsOurReason reports whether a text begins with a code. The rest may be another release's wording.
func IsOurReason(text string) bool {
	begins, _ := regexp.MatchString(`^BKD(-[A-Z]+)+( |$)`, text)
	return begins && len(text) <= maxWhy
}
