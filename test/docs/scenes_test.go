package docs

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"bookend/internal/attrib"
	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/diagnosis"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/health"
	"bookend/internal/oom"
	"bookend/internal/report"
	"bookend/internal/settle"
	"bookend/internal/slurm"
)

const (
	mebi = 1 << 20
	gibi = 1 << 30

	me, other = 1001, 1002 // user ids
	card      = gpu.ID("GPU-8f0b1c00-77c1-4d0e-9b3a-5e2f00c0a000")
	busID     = gpu.BusID("00000000:3B:00.0")
)

// story is one job of a sample, and what was found around it.
type story struct {
	diagnosis.Input
	output string // of the job: what it said itself
	start  bool   // the start report is shown, not the end report
}

// The moments of every sample.
var (
	ended = time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	boot  = 10 * time.Hour // CLOCK_BOOTTIME at the end
)

// calm is a job that had an H200 to itself, clean at both ends, of which everything was read.
func calm(output string) story {
	s := story{output: output}
	s.Job = slurm.Job{ID: 42, UID: me, Node: "n1", Batch: true, Exit: slurm.ExitStatus{Known: true, Raw: 1 << 8}}
	s.Cards = []finding.Card{{Index: 0, Device: gpu.Device{ID: card, BusID: busID}}}
	s.Start, s.End = side(settle.Clean, 0), side(settle.Clean, 0)
	s.Probes = []gpu.Probe{{Device: card, Result: gpu.ProbeOK, Free: gpu.Bytes(143156 * mebi),
		Largest: gpu.Bytes(143154 * mebi), At: boot}}
	s.Health = []gpu.Health{{Device: card, Facts: []gpu.Fact{{Code: gpu.RecoveryAction, Value: "none"}},
		Accounting: gpu.Accounting{Mode: "off"}}}
	s.Kernel = &gpu.KernelLog{}
	s.AddressSpace = gpu.Bytes(diagnosis.Unlimited)
	s.WallStart, s.WallEnd = ended.Add(-time.Hour), ended
	return s
}

func side(state settle.State, used uint64) *finding.Side {
	return &finding.Side{
		Snapshot: gpu.Snapshot{At: boot, Readings: []gpu.Reading{{Device: gpu.Device{ID: card}, Memory: gpu.Memory{
			Total: gpu.Bytes(143771 * mebi), Reserved: gpu.Bytes(615 * mebi), Used: gpu.Bytes(used * mebi),
			Free: gpu.Bytes((143156 - used) * mebi)}}}},
		Curves: map[gpu.ID]settle.Curve{card: {State: state}},
	}
}

// listen looks for messages in the output.
func (s *story) listen() { s.Messages = oom.Find([]byte(s.output)) }

// scene is what the report is made from: the messages are looked for in the output, every cause is judged.
func (s story) scene() report.Scene {
	s.listen()
	r := report.Scene{
		Node: s.Job.Node, Job: s.Job, Cards: s.Cards, Now: *s.End, Before: s.Start, Findings: s.Findings,
		Privacy: config.PrivacyOwn, Show: config.ShowSummary,
	}
	if s.start {
		r.Now, r.Before, r.Findings = *s.Start, nil, s.StartFindings
	} else {
		why := diagnosis.Why(s.Input)
		r.Why = &why
	}
	for range r.Findings {
		r.Verdict.Judged = append(r.Verdict.Judged, finding.Judged{Action: config.Warn})
	}
	return r
}

func found(c code.Code, bytes uint64, h *finding.Holder, o *finding.Owner) finding.Finding {
	index := 0
	return finding.Finding{Code: c, GPU: card, Index: &index, Bytes: gpu.Bytes(bytes * mebi), Holder: h, Owner: o}
}

func holder(pid int, uid uint32, name string, ago time.Duration) *finding.Holder {
	return &finding.Holder{Process: attrib.Process{PID: pid, UID: uid, Name: name, Start: boot - ago}}
}

// scenes are the samples by name; changes is what no file says of some, plain are jobs whose headline has to be read by
// itself.
var (
	scenes  = readScenes()
	changes = map[string]func(*story){
		"pieces": func(s *story) {
			s.Findings = health.FoundByTests(s.Cards, []health.Outcome{{Probe: s.Probes[0], Seen: 1}})
		},
		"fault": func(s *story) {
			s.Findings = health.Judge(health.Input{Cards: s.Cards, Now: s.Health, Kernel: s.Kernel})
		},
	}
	plain = map[string]func() story{
		"something else": scenes["something else"],
		"no figures":     scenes["no figures"],
		"shared":         scenes["shared"],
		"all ruled out": func() story {
			s := scenes["others"]()
			s.output, s.Findings[0].Bytes = scenes["no figures"]().output, gpu.Bytes(100*mebi)
			return s
		},
		"not all read": func() story {
			s := scenes["no figures"]()
			s.Kernel = nil
			return s
		},
		"failed": func() story { return calm("") },
		"failed by a GPU error": func() story {
			return calm("RuntimeError: CUDA error: an illegal memory access was encountered\n")
		},
		"failed by a fault": func() story { return silent(scenes["fault"]()) },
		"failed, not alone": func() story { return silent(scenes["others"]()) },
		"ended well":        func() story { return well(scenes["others"]()) },
	}
)

func readScenes() map[string]func() story {
	all, edits := map[string]func() story{}, map[string][]byte{}
	files, err := txtar.ParseFile("testdata/scenes.txtar")
	if err != nil {
		panic(err)
	}
	for _, f := range files.Files {
		if name, is := strings.CutSuffix(f.Name, ".json"); is {
			edits[name] = f.Data
			continue
		}
		all[f.Name] = func() story {
			s := calm(string(f.Data))
			if edit := edits[f.Name]; edit != nil {
				if err := json.Unmarshal(edit, &s.Input); err != nil {
					panic(fmt.Errorf("%s: %w", f.Name, err))
				}
			}
			if change := changes[f.Name]; change != nil {
				change(&s)
			}
			return s
		}
	}
	all["inherited"] = func() story {
		s := all["leftover"]()
		s.start = true
		return s
	}
	return all
}

// silent is a job that says nothing of what it met.
func silent(s story) story {
	s.output = ""
	return s
}

// well is a job that ended well.
func well(s story) story {
	s.Job.Exit.Raw = 0
	return silent(s)
}
