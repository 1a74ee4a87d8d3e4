package stage

import (
	"slices"
	"strings"
	"testing"

	"bookend/internal/gpu"
	"bookend/internal/joblog"
	"bookend/internal/ledger"
	"bookend/internal/oom"
	"bookend/internal/slurm"
)

// What comes back from a process that the user may have got at is what serveTail could have written, or nothing.
func TestTailReply(t *testing.T) {
	no := gpu.Unknown("not said")
	m := oom.Message{
		Kind: oom.Device, Framework: oom.PyTorch, Asked: no, Total: no, Free: no, InUse: no, Allocated: no, Idle: no, Limit: no,
		Line: "CUDA error: out of memory", Count: 1,
	}
	forged := m
	forged.Line = "\x1b[2J| bookend: all is well"
	second := m
	second.File = 1
	one, two := searched{Size: 70, Read: 70}, []searched{{Size: 70, Read: 70}, {}}
	no2 := func(why string) []searched { return []searched{one, {Refused: why}} }
	for name, tt := range map[string]struct {
		reply tailReply
		valid bool
	}{
		"nothing found":             {tailReply{Files: two}, true},
		"found":                     {tailReply{Messages: []oom.Message{m}, Files: two}, true},
		"refused":                   {tailReply{Files: []searched{{Refused: "missing"}, {Refused: "not-owner"}}}, true},
		"found in one":              {tailReply{Messages: []oom.Message{m}, Files: no2("links")}, true},
		"found in both":             {tailReply{Messages: []oom.Message{m, second}, Files: two}, true},
		"an invalid message":        {tailReply{Messages: []oom.Message{m, forged}, Files: two}, false},
		"many messages":             {tailReply{Messages: slices.Repeat([]oom.Message{m}, oom.MaxMessages+1), Files: two}, false},
		"no answer":                 {tailReply{Messages: []oom.Message{m}}, false},
		"an answer too many":        {tailReply{Files: []searched{one, one, one}}, false},
		"another reason":            {tailReply{Files: no2("because\n")}, false},
		"found in one refused":      {tailReply{Messages: []oom.Message{second}, Files: no2("links")}, false},
		"found in the same":         {tailReply{Messages: []oom.Message{second}, Files: []searched{one, {Same: true}}}, false},
		"more read than there is":   {tailReply{Files: []searched{one, {Size: 5, Read: 6}}}, false},
		"less than nothing":         {tailReply{Files: []searched{one, {Size: -1, Read: -1}}}, false},
		"a message of a third file": {tailReply{Messages: []oom.Message{func() oom.Message { t := m; t.File = 2; return t }()}, Files: two}, false},
	} {
		if err := tt.reply.check(2); (err == nil) != tt.valid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What was looked through and what was not is on record, output by output, and in words for the diagnosis.
func TestHeard(t *testing.T) {
	file := func(kind ledger.OutputKind, path string) written { return at(kind, joblog.Target{Path: path}) }
	out, errs, step := file(ledger.ScriptOutput, "/o"), file(ledger.ScriptErrors, "/e"), file(ledger.StepOutput, "/s")
	srun := written{Output: ledger.Output{Kind: ledger.StepOutput, Why: ofSrun}}
	whole := searched{Size: 70, Read: 70}
	of := func(file int) oom.Message { return oom.Message{Kind: oom.Device, File: file} }
	for name, tt := range map[string]struct {
		all           []written
		reply         tailReply
		unknown, part string
		files         []int // of the messages
		outputs       int
	}{
		"all of it":         {[]written{out, errs}, tailReply{Files: []searched{whole, {}}}, "", "", nil, 2},
		"the end of it":     {[]written{out}, tailReply{Files: []searched{{Size: 5 << 20, Read: 4 << 20}}}, "", "only its last 4.0 MiB", nil, 1},
		"refused":           {[]written{out}, tailReply{Files: []searched{{Refused: "missing"}}}, "refused: missing", "", nil, 1},
		"refused in part":   {[]written{out, errs}, tailReply{Files: []searched{whole, {Refused: "links"}}}, "", "its errors: refused: links", nil, 2},
		"srun alone":        {[]written{srun}, tailReply{}, ofSrun, "", nil, 1},
		"srun too":          {[]written{out, srun}, tailReply{Files: []searched{whole}}, "", "a step's output: " + ofSrun, nil, 2},
		"an earlier run's":  {[]written{out}, tailReply{Files: []searched{{Size: 1 << 20, Read: 65536, Earlier: true}}}, "", "only its last 64 KiB", nil, 1},
		"another job's":     {[]written{out}, tailReply{Files: []searched{{Size: 4096, Read: 0, Earlier: true}}}, "another report of Bookend's stands in it", "", nil, 1},
		"a requeued job's":  {[]written{out}, tailReply{Files: []searched{{Size: 4096, Read: 1000, Earlier: true}}}.afterRequeue(), "", "", nil, 1},
		"one under 2 paths": {[]written{out, errs, step}, tailReply{Files: []searched{whole, {Same: true}, whole}, Messages: []oom.Message{of(0), of(2)}}, "", "", []int{0, 1}, 2},
		"between others":    {[]written{{Output: ledger.Output{Kind: ledger.ScriptOutput, Why: "x"}}, errs}, tailReply{Files: []searched{whole}, Messages: []oom.Message{of(0)}}, "", "its output: x", []int{1}, 2},
		"same reason twice": {[]written{out, step, step}, tailReply{Files: []searched{whole, {Refused: "missing"}, {Refused: "missing"}}}, "", "a step's output: refused: missing", nil, 3},
	} {
		got := heard(tt.all, tt.reply)
		var files []int
		for _, m := range got.messages {
			files = append(files, m.File)
		}
		if got.unknown != tt.unknown || got.part != tt.part || len(got.outputs) != tt.outputs || !slices.Equal(files, tt.files) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func (r tailReply) afterRequeue() tailReply {
	r.requeued()
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
		"a name nobody tells":        {apart, nil, []string{"output " + unknown, "errors " + unknown}},
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
		for _, w := range writtenBy(tt.job, tt.drop) {
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
		hook := task{frame: &frame{env: Env{Getenv: func(name string) string {
			return map[string]string{"SLURM_RLIMIT_AS": carried}[name]
		}}}}
		if got := hook.addressSpace(); got != want {
			t.Errorf("SLURM_RLIMIT_AS=%s: %d, want %d", carried, got, want)
		}
	}
	own := task{frame: &frame{env: Env{Getenv: func(string) string { return "" }}}}
	if got := own.addressSpace(); got == 0 || got > joblog.Unlimited {
		t.Errorf("this process's own: %d", got)
	}
	for _, drop := range []*joblog.Drop{nil, {}} {
		if got := addressSpace(drop); got.Known() || !strings.Contains(got.Unknown, "no task hook") {
			t.Errorf("%+v: %+v", drop, got)
		}
	}
	if got := addressSpace(&joblog.Drop{AddressSpace: 7}); got != gpu.Bytes(7) {
		t.Errorf("%+v", got)
	}
}

// What became of an append is a word that the log takes as it stands.
func TestAppendReply(t *testing.T) {
	for refused, whole := range map[string]bool{"": true, "links": true, "not-owner": true, "appended\njob=1": false, "drained": false} {
		if err := (appendReply{Refused: refused}).check(); (err == nil) != whole {
			t.Errorf("%q: %v", refused, err)
		}
	}
}
