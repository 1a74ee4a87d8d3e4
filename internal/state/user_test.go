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
		must.Be(t, "by "+name, asUser(t, nobody, run, name), "true text <nil>")
		must.Be(t, "by "+name, string(must.Have(s.ReadDrop(j))(t)), "claim "+name)
		must.Be(t, "another user, by "+name, asUser(t, nobody-1, run, name), "refused: true")
		must.Be(t, "another job", asUser(t, nobody, run, "8"), "refused: false")
	}
}

func TestReportIsBounded(t *testing.T) {
	err := open(t, folder(t)).PutReport(job(8), Report{Text: strings.Repeat("x", maxReport)})
	if !errors.Is(err, safefile.ErrTooLarge) {
		t.Error(err)
	}
}
