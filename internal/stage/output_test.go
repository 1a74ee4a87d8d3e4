package stage

import (
	"slices"
	"strings"
	"testing"

	"bookend/internal/gpu"
	"bookend/internal/joblog"
	"bookend/internal/judge"
	"bookend/internal/ledger"
	"bookend/internal/oom"
	"bookend/internal/operation"
	"bookend/internal/slurm"
)

// What was looked through and what was not is on record, output by output, and in words for the diagnosis.
func TestHeard(t *testing.T) {
	file := func(kind ledger.OutputKind, path string) written { return at(kind, joblog.Target{Path: path}) }
	out, errs, step := file(ledger.ScriptOutput, "/o"), file(ledger.ScriptErrors, "/e"), file(ledger.StepOutput, "/s")
	srun := written{Output: ledger.Output{Kind: ledger.StepOutput, Why: ofSrun}}
	whole := operation.Searched{Size: 70, Read: 70}
	of := func(file int) oom.Message { return oom.Message{Kind: oom.Device, File: file} }
	for name, tt := range map[string]struct {
		all           []written
		reply         operation.TailReply
		unknown, part string
		files         []int // of the messages
		outputs       int
	}{
		"all of it":         {[]written{out, errs}, operation.TailReply{Files: []operation.Searched{whole, {}}}, "", "", nil, 2},
		"the end of it":     {[]written{out}, operation.TailReply{Files: []operation.Searched{{Size: 5 << 20, Read: 4 << 20}}}, "", "only its last 4096 KiB", nil, 1},
		"refused":           {[]written{out}, operation.TailReply{Files: []operation.Searched{{Refused: "missing"}}}, "refused: missing", "", nil, 1},
		"refused in part":   {[]written{out, errs}, operation.TailReply{Files: []operation.Searched{whole, {Refused: "links"}}}, "", "its errors: refused: links", nil, 2},
		"srun alone":        {[]written{srun}, operation.TailReply{}, ofSrun, "", nil, 1},
		"srun too":          {[]written{out, srun}, operation.TailReply{Files: []operation.Searched{whole}}, "", "a step's output: " + ofSrun, nil, 2},
		"an earlier run's":  {[]written{out}, operation.TailReply{Files: []operation.Searched{{Size: 1 << 20, Read: 65536, Earlier: true}}}, "", "only its last 64 KiB", nil, 1},
		"another job's":     {[]written{out}, operation.TailReply{Files: []operation.Searched{{Size: 4096, Read: 0, Earlier: true}}}, "another Bookend report is in it", "", nil, 1},
		"a requeued job's":  {[]written{out}, afterRequeue(operation.TailReply{Files: []operation.Searched{{Size: 4096, Read: 1000, Earlier: true}}}), "", "", nil, 1},
		"one under 2 paths": {[]written{out, errs, step}, operation.TailReply{Files: []operation.Searched{whole, {Same: true}, whole}, Messages: []oom.Message{of(0), of(2)}}, "", "", []int{0, 1}, 2},
		"between others":    {[]written{{Output: ledger.Output{Kind: ledger.ScriptOutput, Why: "x"}}, errs}, operation.TailReply{Files: []operation.Searched{whole}, Messages: []oom.Message{of(0)}}, "", "its output: x", []int{1}, 2},
		"same reason twice": {[]written{out, step, step}, operation.TailReply{Files: []operation.Searched{whole, {Refused: "missing"}, {Refused: "missing"}}}, "", "a step's output: refused: missing", nil, 3},
	} {
		got := heard(judge.Heard{}, tt.all, tt.reply)
		var files []int
		for _, m := range got.Messages {
			files = append(files, m.File)
		}
		if got.Unknown != tt.unknown || got.Part != tt.part || len(got.Outputs) != tt.outputs || !slices.Equal(files, tt.files) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func afterRequeue(r operation.TailReply) operation.TailReply {
	requeued(r)
	return r
}

// Which outputs a job has follows from what Slurm tells the epilog and from what task hooks left.
func TestWritten(t *testing.T) {
	target := func(path string) joblog.Target { return joblog.Target{Path: path, Dev: 1, Ino: 2} }
	batch := slurm.Job{ID: 7, User: "alice", Node: "n1", NodeList: "n[1-2]", WorkDir: "/w", Batch: true}
	apart, further, srun := batch, batch, batch
	apart.Stdout, apart.Stderr = "/w/%x.out", "/w/%x.err"
	further.Node = "n2"
	srun.Batch = false
	const unknown = "not known here"
	for name, tt := range map[string]struct {
		job  slurm.Job
		drop *joblog.Drop
		want []string
	}{
		"no task hook":               {batch, nil, []string{"output /w/slurm-7.out"}},
		"task hook":                  {batch, &joblog.Drop{Target: target("/r/slurm-7.out")}, []string{"output /r/slurm-7.out"}},
		"an array's":                 {batch, &joblog.Drop{Array: slurm.ArrayTask{Master: 5, Task: 3}}, []string{"output /w/slurm-5_3.out"}},
		"errors apart":               {apart, &joblog.Drop{Target: target("/r/x.err"), Name: "x"}, []string{"output /w/x.out", "errors /r/x.err"}},
		"errors apart, by name":      {apart, &joblog.Drop{Name: "x"}, []string{"output /w/x.out", "errors /w/x.err"}},
		"a name no one tells":        {apart, nil, []string{"output " + unknown, "errors " + unknown}},
		"its further node":           {further, nil, []string{"output " + unknown}},
		"its further node's steps":   {further, &joblog.Drop{Steps: []joblog.Target{target("/o.8")}}, []string{"output " + unknown, "step /o.8"}},
		"steps' files":               {batch, &joblog.Drop{Target: target("/r/slurm-7.out"), Steps: []joblog.Target{target("/o.1"), target("/r/slurm-7.out")}}, []string{"output /r/slurm-7.out", "step /o.1"}},
		"srun's terminal":            {srun, nil, []string{"step " + unknown}},
		"srun's terminal, told":      {srun, &joblog.Drop{Elsewhere: true}, []string{"step " + unknown}},
		"srun's file":                {srun, &joblog.Drop{Steps: []joblog.Target{target("/o.txt")}}, []string{"step /o.txt"}},
		"a step elsewhere":           {batch, &joblog.Drop{Target: target("/r/o"), Elsewhere: true}, []string{"output /r/o", "step " + unknown}},
		"more than a record can say": {batch, &joblog.Drop{Target: target("/r/o"), Steps: []joblog.Target{target("/s")}, More: 2}, []string{"output /r/o", "step /s", "step " + unknown}},
	} {
		var got []string
		for _, w := range (output{job: tt.job, drop: tt.drop}).writtenBy() {
			where := w.Path
			if (w.Why == "") != (w.Path != "") || w.Path != w.target.Path {
				t.Errorf("%s: %+v", name, w)
			}
			if w.Path == "" {
				where = unknown
			}
			got = append(got, string(w.Kind)+" "+where)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// A task's limit of address space is what Slurm carries to it, or else its own daemon's.
func TestAddressSpace(t *testing.T) {
	for carried, want := range map[string]uint64{
		"U68719476736": 68719476736, "4294967296": 4294967296, "18446744073709551615": joblog.Unlimited,
		"U18446744073709551615": joblog.Unlimited, "18446744073709551616": 0, "-1": 0, "much": 0, "U": 0, "0": 0,
	} {
		hook := task{env: Env{Getenv: func(name string) string {
			return map[string]string{"SLURM_RLIMIT_AS": carried}[name]
		}}}
		if got := hook.addressSpace(); got != want {
			t.Errorf("SLURM_RLIMIT_AS=%s: %d, want %d", carried, got, want)
		}
	}
	own := task{env: Env{Getenv: func(string) string { return "" }}}
	if got := own.addressSpace(); got == 0 || got > joblog.Unlimited {
		t.Errorf("this process's own: %d", got)
	}
	for _, drop := range []*joblog.Drop{nil, {}} {
		got := (output{drop: drop}).addressSpace()
		if got.Known() || !strings.Contains(got.Unknown, "no task hook") {
			t.Errorf("%+v: %+v", drop, got)
		}
	}
	if got := (output{drop: &joblog.Drop{AddressSpace: 7}}).addressSpace(); got != gpu.Bytes(7) {
		t.Errorf("%+v", got)
	}
}
