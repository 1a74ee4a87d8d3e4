package policy

import (
	"testing"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
)

// What policy drains for the second time in a row was met by the last other job that ended on the GPU, before this one
// began.
func TestMetLast(t *testing.T) {
	const began = 100 * time.Hour // of this job, since the node booted
	here := gpu.Epoch{Boot: "b", Driver: "570", Module: "1"}
	broken, nodriver := record.Finding{Code: catalog.Broken, GPU: "GPU-0"}, record.Finding{Code: catalog.NoDriver}
	doubted := broken
	doubted.Doubts = []string{"one try"}
	end := func(ago time.Duration, found ...record.Finding) record.End {
		return record.End{At: began - ago, Wall: time.Unix(1e9, 0).Add(-ago), Findings: found}
	}
	job := func(id slurm.JobID, on gpu.ID, ends ...record.End) record.Run {
		devices := []record.Assigned{{Device: gpu.Device{ID: on}}}
		return record.Run{Job: slurm.Job{ID: id}, Epoch: here, Devices: devices, Ends: ends}
	}
	of := func(epoch gpu.Epoch, r record.Run) record.Run { r.Epoch = epoch; return r }
	cut := func(r record.Run) record.Run { return r.Bare() }
	stepped := func(e record.End, by time.Duration) record.End { e.Wall = e.Wall.Add(by); return e }
	reloaded := func(e record.End) record.End { e.Epoch = here; return e }
	unseen := end(time.Second)
	unseen.Unseen = "its epilog never came"
	zero, one, now := 0, 1, began+time.Hour
	missing := func(id gpu.ID, index *int) record.Finding {
		return record.Finding{Code: catalog.Missing, GPU: id, Index: index}
	}
	gone := func(id gpu.ID, index *int) record.End { return end(time.Minute, missing(id, index)) }
	check := func(ago time.Duration, found ...record.Finding) *record.Check {
		return &record.Check{At: began - ago, Epoch: here, Findings: found}
	}
	beforeClean := end(time.Hour)
	clean, met := end(time.Minute), end(time.Minute, broken)
	before, beforeMet := beforeClean, end(time.Hour, broken)
	for name, tt := range map[string]struct {
		runs  []record.Run
		f     record.Finding
		want  bool
		check *record.Check
	}{
		"the last job met it":           {[]record.Run{job(1, "GPU-0", before), job(2, "GPU-0", met)}, broken, true, nil},
		"the one before the last did":   {[]record.Run{job(1, "GPU-0", beforeMet), job(2, "GPU-0", clean)}, broken, false, nil},
		"and its epilog ran again":      {[]record.Run{job(1, "GPU-0", beforeMet, end(time.Second, broken)), job(2, "GPU-0", clean)}, broken, false, nil},
		"another GPU's job came last":   {[]record.Run{job(1, "GPU-0", beforeMet), job(2, "GPU-1", clean)}, broken, true, nil},
		"on another GPU":                {[]record.Run{job(1, "GPU-1", end(time.Hour, record.Finding{Code: catalog.Broken, GPU: "GPU-1"}))}, broken, false, nil},
		"this very job's other end":     {[]record.Run{job(7, "GPU-0", met)}, broken, false, nil},
		"with a doubt":                  {[]record.Run{job(1, "GPU-0", end(time.Hour, doubted))}, broken, false, nil},
		"with a doubt, cut":             {[]record.Run{cut(job(1, "GPU-0", end(time.Hour, doubted)))}, broken, false, nil},
		"cut":                           {[]record.Run{cut(job(1, "GPU-0", met))}, broken, true, nil},
		"one runs, of one no end came":  {[]record.Run{job(9, "GPU-0"), job(8, "GPU-0", unseen), job(1, "GPU-0", beforeMet)}, broken, true, nil},
		"of the node, whatever the GPU": {[]record.Run{job(1, "GPU-1", end(time.Hour, nodriver))}, nodriver, true, nil},
		"side by side, in one hiccup":   {[]record.Run{job(1, "GPU-1", end(-time.Second, nodriver))}, nodriver, false, nil},
		"before the node booted":        {[]record.Run{of(gpu.Epoch{Boot: "a"}, job(1, "GPU-0", met))}, broken, false, nil},
		"before the driver was loaded":  {[]record.Run{of(gpu.Epoch{Boot: "b", Driver: "565"}, job(1, "GPU-0", met))}, broken, false, nil},
		"the driver told nothing then":  {[]record.Run{of(gpu.Epoch{Boot: "b"}, job(1, "GPU-0", met))}, broken, true, nil},
		"the boot is not known":         {[]record.Run{of(gpu.Epoch{}, job(1, "GPU-0", met))}, broken, false, nil},
		"no job on record":              {nil, broken, false, nil},
		"the clock was set back since":  {[]record.Run{job(1, "GPU-0", before), job(2, "GPU-0", stepped(met, -48*time.Hour))}, broken, true, nil},
		"the clock was set ahead then":  {[]record.Run{job(1, "GPU-0", stepped(beforeMet, 48*time.Hour)), job(2, "GPU-0", clean)}, broken, false, nil},
		"a boot before, by a clock ahead": {[]record.Run{of(gpu.Epoch{Boot: "a"}, job(1, "GPU-0", stepped(clean, 48*time.Hour))), job(2, "GPU-0", met)},
			broken, true, nil},
		"the driver was reloaded during that job": {[]record.Run{of(gpu.Epoch{Boot: "b", Driver: "565", Module: "0"},
			job(1, "GPU-0", reloaded(met)))}, broken, true, nil},
		"the health check met it since":          {[]record.Run{job(1, "GPU-0", clean)}, broken, true, check(10*time.Second, broken)},
		"the health check alone":                 {nil, nodriver, true, check(time.Minute, nodriver)},
		"while this job ran":                     {nil, broken, true, check(-time.Minute, broken)},
		"a job was well since":                   {[]record.Run{job(1, "GPU-0", clean)}, broken, false, check(2*time.Minute, broken)},
		"the check found nothing":                {[]record.Run{job(1, "GPU-0", met)}, broken, true, check(time.Second)},
		"the check met it in the same hiccup":    {nil, broken, false, check(9*time.Second-now+began, broken)},
		"the check was not sure":                 {nil, broken, false, check(time.Minute, doubted)},
		"the check was of another boot":          {nil, broken, false, &record.Check{At: began - time.Minute, Epoch: gpu.Epoch{Boot: "a"}, Findings: met.Findings}},
		"the check was stopped":                  {nil, broken, false, &record.Check{At: began - time.Minute, Epoch: here, Findings: met.Findings, Stopped: true}},
		"a GPU that was gone at the job's start": {[]record.Run{job(1, "GPU-0", beforeClean), job(2, "", gone("GPU-0", nil))}, missing("GPU-0", nil), true, nil},
		"a GPU without an id":                    {[]record.Run{job(1, "", gone("", &zero))}, missing("", &zero), true, nil},
		"another GPU without an id":              {[]record.Run{job(1, "", gone("", &one)), job(2, "GPU-9", clean)}, missing("", &zero), false, nil},
	} {
		self := record.Run{Job: slurm.Job{ID: 7}, Epoch: here, Start: &record.End{At: began}}
		if got := MetLast(tt.runs, tt.check, self, now, tt.f); got != tt.want {
			t.Errorf("%s: got %v, want %v", name, got, tt.want)
		}
		if self.Start = nil; MetLast(tt.runs, tt.check, self, now, tt.f) {
			t.Errorf("%s: repeated, though nobody knows when the job began", name)
		}
	}
}
