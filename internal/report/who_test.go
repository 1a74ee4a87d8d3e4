package report

import (
	"testing"

	"bookend/internal/attrib"
	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/slurm"
)

// A process that some job left is not said to be of no job when it cannot be told which of two it was.
func TestWho(t *testing.T) {
	s := Scene{Job: slurm.Job{ID: 7, UID: 1001}}
	for name, tt := range map[string]struct {
		code  code.Code
		owner *finding.Owner
		want  string
	}{
		"proven":           {code.Orphan, &finding.Owner{Job: 7, Level: attrib.ByCgroup}, "this job"},
		"a guess":          {code.Orphan, &finding.Owner{Job: 7, Level: attrib.ByExclusive}, "probably this job"},
		"one of two jobs'": {code.Orphan, nil, "one of several jobs, it cannot be told which"},
		"of no job":        {code.Stray, nil, "no job that this node knows of"},
	} {
		if got := s.who(finding.Finding{Code: tt.code, Owner: tt.owner, Holder: &finding.Holder{}}); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
