package joblog

import (
	"slices"
	"testing"

	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/test/must"
)

// Which outputs a job has follows from what Slurm tells the epilog and from what task hooks left.
func TestStreams(t *testing.T) {
	target := func(path string) Target { return Target{Path: path, Dev: 1, Ino: 2} }
	batch := slurm.Job{ID: 7, User: "alice", Node: "n1", NodeList: "n[1-2]", WorkDir: "/w", Batch: true}
	apart, further, srun := batch, batch, batch
	apart.Stdout, apart.Stderr = "/w/%x.out", "/w/%x.err"
	further.Node = "n2"
	named := apart
	named.Stdout, named.Stderr = "/w/%j.out", "/w/%j.err"
	both := slurm.OutputFiles{Output: slurm.OutputFile(target("/s/o")), Errors: slurm.OutputFile(target("/s/e"))}
	one := slurm.OutputFiles{Output: both.Output, Errors: both.Output}
	srun.Batch = false
	shared, sharedErrors := batch, batch
	shared.Stdout = "/w/%x-%A"
	sharedErrors.Stdout, sharedErrors.Stderr = "/w/o.%a", "/w/log"
	const unknown = "not known here"
	none := slurm.OutputFiles{}
	for name, tt := range map[string]struct {
		job  slurm.Job
		drop *Drop
		want []string
		seen slurm.OutputFiles
		told string // the file of the end report, if there is one
	}{
		"no task hook":             {batch, nil, []string{"output /w/slurm-7.out"}, none, "/w/slurm-7.out"},
		"task hook":                {batch, &Drop{Target: target("/r/slurm-7.out")}, []string{"output /r/slurm-7.out"}, none, "/r/slurm-7.out"},
		"an array's":               {batch, &Drop{Array: slurm.ArrayTask{Master: 5, Task: 3}}, []string{"output /w/slurm-5_3.out"}, none, "/w/slurm-5_3.out"},
		"one file for all tasks":   {shared, &Drop{Target: target("/w/log"), Array: slurm.ArrayTask{Master: 5, Task: 3}}, []string{"output " + unknown}, none, "/w/log"},
		"one for all their errors": {sharedErrors, &Drop{Target: target("/w/log"), Array: slurm.ArrayTask{Master: 5, Task: 3}}, []string{"output /w/o.3", "errors " + unknown}, none, "/w/o.3"},
		"one file, no array":       {shared, &Drop{Target: target("/w/log")}, []string{"output /w/log"}, none, "/w/log"},
		"errors apart":             {apart, &Drop{Target: target("/r/x.err"), Name: "x"}, []string{"output /w/x.out", "errors /r/x.err"}, none, "/w/x.out"},
		"errors apart, by name":    {apart, &Drop{Name: "x"}, []string{"output /w/x.out", "errors /w/x.err"}, none, "/w/x.out"},
		"a name no one tells":      {apart, nil, []string{"output " + unknown, "errors " + unknown}, none, ""},
		"its further node":         {further, nil, []string{"output " + unknown}, none, ""},
		"its further node's steps": {further, &Drop{Steps: []Target{target("/o.8")}}, []string{"output " + unknown, "step /o.8"}, none, ""},
		"steps' files":             {batch, &Drop{Target: target("/r/slurm-7.out"), Steps: []Target{target("/o.1"), target("/r/slurm-7.out")}}, []string{"output /r/slurm-7.out", "step /o.1"}, none, "/r/slurm-7.out"},
		"srun's terminal":          {srun, nil, []string{"step " + unknown}, none, ""},
		"srun's terminal, told":    {srun, &Drop{Elsewhere: true}, []string{"step " + unknown}, none, ""},
		"srun's file":              {srun, &Drop{Steps: []Target{target("/o.txt")}}, []string{"step /o.txt"}, none, ""},
		"a step elsewhere":         {batch, &Drop{Target: target("/r/o"), Elsewhere: true}, []string{"output /r/o", "step " + unknown}, none, "/r/o"},
		"seen":                     {batch, nil, []string{"output /s/o"}, one, "/s/o"},
		"seen, and a task hook":    {batch, &Drop{Target: target("/r/o")}, []string{"output /r/o"}, one, "/r/o"},
		"seen, errors apart":       {apart, nil, []string{"output /s/o", "errors /s/e"}, both, "/s/o"},
		"errors apart, named":      {named, nil, []string{"output /w/7.out", "errors /s/e"}, both, "/w/7.out"},
		"only its errors are seen": {apart, nil, []string{"output " + unknown, "errors /s/e"}, slurm.OutputFiles{Errors: both.Errors}, "/s/e"},
		"only its output is seen":  {apart, nil, []string{"output /s/o", "errors " + unknown}, slurm.OutputFiles{Output: both.Output}, "/s/o"},
		"its default name, seen":   {batch, nil, []string{"output /s/o"}, slurm.OutputFiles{Output: both.Output}, "/s/o"},
	} {
		var got []string
		p := Place{Job: tt.job, Left: tt.drop != nil, Seen: tt.seen}
		if p.Left {
			p.Drop = *tt.drop
		}
		for _, w := range p.Streams() {
			where := w.Path
			must.Not(t, (w.Why == "") != (w.Path != "") || w.Path != w.Target.Path, "%s: %+v", name, w)
			if w.Path == "" {
				where = unknown
			}
			got = append(got, string(w.Kind)+" "+where)
		}
		must.Not(t, !slices.Equal(got, tt.want), "%s: %q, want %q", name, got, tt.want)
		must.Be(t, name, p.Target().Path, tt.told)
		must.Be(t, name, p.Unnamed(), tt.told == "" && tt.job.Batch && tt.job.Node == "n1")
	}
}

// A report counts as in no file only if no file of the script is known, and not on a job's further nodes.
func TestUnlogged(t *testing.T) {
	unnamed := record.Output{Kind: record.ScriptOutput, Why: slurm.UnknownName + "/w/%x.out"}
	for name, tt := range map[string]struct {
		outputs []record.Output
		report  string
		want    string
	}{
		"unknown":            {[]record.Output{unnamed}, "clean", "reports in no file (BKD-OUTPUT): 1"},
		"a step's is known":  {[]record.Output{unnamed, {Kind: record.StepOutput, Path: "/o"}}, "clean", "reports in no file (BKD-OUTPUT): 1"},
		"nothing to report":  {[]record.Output{unnamed}, "", ""},
		"its errors' is":     {[]record.Output{unnamed, {Kind: record.ScriptErrors, Path: "/e"}}, "clean", ""},
		"its file is":        {[]record.Output{{Kind: record.ScriptOutput, Path: "/o"}}, "clean", ""},
		"on its first node":  {[]record.Output{{Kind: record.ScriptOutput, Why: "is on the job's first node"}}, "clean", ""},
		"nothing was looked": {nil, "clean", ""},
	} {
		run := record.Run{Ends: []record.End{{Report: tt.report, Outputs: tt.outputs}}}
		must.Be(t, name, Unlogged([]record.Run{run, {}}), tt.want)
	}
}
