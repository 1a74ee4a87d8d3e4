package stage

import (
	"testing"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/clock"
	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/slurm"
)

// Clean-up is for the one epilog of a run that slurmd itself runs, where an admin wants it. The hook here has no time
// left, which it says as soon as it would end a process, so that none is ever ended.
func TestWhoCleansUp(t *testing.T) {
	job := slurm.Job{ID: 100, UID: 1001}
	left := finding.Finding{
		Code: code.Orphan, Holder: &finding.Holder{Process: attrib.Process{PID: 70, UID: 1001}},
		Owner: &finding.Owner{Job: 100, Level: attrib.ByCgroup},
	}
	for name, tt := range map[string]struct {
		change func(*hook)
		would  bool
	}{
		"enabled":                       {func(*hook) {}, true},
		"off":                           {func(h *hook) { h.cfg.CleanUp.Enabled = false }, false},
		"inside the job":                {func(h *hook) { h.inJob = true }, false},
		"its end is on record":          {func(h *hook) { h.again = true }, false},
		"another epilog is at work":     {func(h *hook) { h.second = true }, false},
		"another user's job":            {func(h *hook) { h.job.UID = 1002 }, false},
		"proven to be of no job of its": {func(h *hook) { h.job.ID = 101 }, false},
	} {
		late := clock.Clock{Boot: func() time.Duration { return 0 }}
		h := &hook{frame: &frame{env: Env{Clock: late}}, job: job, cfg: config.Default()}
		h.cfg.CleanUp.Enabled = true
		tt.change(h)
		did, ended := h.cleanUp([]finding.Finding{left})
		if would := len(did) == 1 && did[0].Unknown != ""; would != tt.would || len(ended) > 0 {
			t.Errorf("%s: %+v, %v", name, did, ended)
		}
	}
}
