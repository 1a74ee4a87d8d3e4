package docs

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/rogpeppe/go-internal/txtar"

	"bookend/internal/condition"
	"bookend/internal/config"
	"bookend/internal/diagnosis"
	"bookend/internal/gpu"
	"bookend/internal/oomlog"
	"bookend/internal/record"
	"bookend/internal/report"
)

// story is one job of a sample, and what was found around it.
type story struct {
	diagnosis.Input
	output string // of the job: what it said itself
	start  bool   // the start report is shown, not the end report
}

// calm is a job that had an H200 to itself, clean at both ends, of which everything was read; others differ from it.
func calm(output string, differs []byte) story {
	s := story{output: output}
	base, err := os.ReadFile("testdata/calm.json")
	if err = errors.Join(err, json.Unmarshal(base, &s.Input)); err == nil && differs != nil {
		err = json.Unmarshal(differs, &s.Input)
	}
	if err != nil {
		panic(fmt.Errorf("%s: %w", differs, err))
	}
	return s
}

func (s *story) listen() { s.Messages = oomlog.Find([]byte(s.output)) }

// scene is what the report is made from: the messages are looked for in the output, every cause is judged.
func (s story) scene() report.Scene {
	s.listen()
	r := report.Scene{
		Run: record.Run{Job: s.Job}, Cards: s.Cards, Now: *s.End, Before: s.Start, Findings: s.Findings,
		Privacy: config.PrivacyOwn, Show: config.ShowSummary,
	}
	if s.start {
		r.Now, r.Before, r.Findings = *s.Start, nil, s.StartFindings
	} else {
		why := diagnosis.Why(s.Input)
		r.Why = &why
	}
	for range r.Findings {
		r.Verdict.Judged = append(r.Verdict.Judged, record.Judged{Action: config.Warn})
	}
	return r
}

// scenes are the samples by name; changes is what no file says of some, plain are jobs whose headline has to be read by
// itself.
var (
	scenes  = readScenes()
	changes = map[string]func(*story){
		"inherited": func(s *story) { s.start = true },
		"fault": func(s *story) {
			s.Findings = condition.Judge(condition.Input{Cards: s.Cards, Now: s.Health, Kernel: s.Kernel})
		},
	}
	plain = map[string]func() story{
		"something else": scenes["something else"],
		"no figures":     scenes["no figures"],
		"shared":         scenes["shared"],
		"all ruled out": func() story {
			s := scenes["others"]()
			s.output, s.Findings[0].Bytes = scenes["no figures"]().output, gpu.Bytes(100<<20)
			return s
		},
		"not all read": func() story {
			s := scenes["no figures"]()
			s.Kernel = nil
			return s
		},
		"failed": func() story { return calm("", nil) },
		"failed by a GPU error": func() story {
			return calm("RuntimeError: CUDA error: an illegal memory access was encountered\n", nil)
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
			s := calm(string(f.Data), edits[f.Name])
			if change := changes[f.Name]; change != nil {
				change(&s)
			}
			return s
		}
	}
	return all
}

// silent is a job that says nothing of what it met.
func silent(s story) story {
	s.output = ""
	return s
}

func well(s story) story {
	s.Job.Exit.Raw = 0
	return silent(s)
}
