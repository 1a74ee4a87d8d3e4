package state

import (
	"errors"
	"strings"
	"testing"

	"bookend/internal/safefile"
	"bookend/internal/slurm"
	"bookend/test/must"
)

func bothNames(id slurm.JobID) slurm.Job {
	j := job(id)
	j.SLUID = sluidA
	return j
}

func TestUserReadsReportAndLeavesARecord(t *testing.T) {
	for _, name := range []string{"7", string(sluidA)} {
		run := folder(t)
		s := open(t, run)
		j := bothNames(7)
		for range 2 { // a requeued job finds its earlier files
			must.Do(t, errors.Join(s.PutReport(j, Report{Text: "old"}), s.PutReport(j,
				Report{Clean: true, Text: "text"}), s.MakeDrop(j)))
		}
		if _, err := s.ReadDrop(j); err == nil {
			t.Error("a record no one has written")
		}
		if got := asUser(t, nobody, run, name); got != "true text <nil>" {
			t.Errorf("by %s: %q", name, got)
		}
		if got, err := s.ReadDrop(j); err != nil || string(got) != "claim "+name {
			t.Errorf("by %s: %q, %v", name, got, err)
		}
		if got := asUser(t, nobody-1, run, name); got != "refused: true" {
			t.Errorf("another user, by %s: %q", name, got)
		}
		if got := asUser(t, nobody, run, "8"); got != "refused: false" {
			t.Errorf("another job: %q", got)
		}
	}
}

func TestReportIsBounded(t *testing.T) {
	err := open(t, folder(t)).PutReport(job(8), Report{Text: strings.Repeat("x", maxReport)})
	if !errors.Is(err, safefile.ErrTooLarge) {
		t.Error(err)
	}
}
