package stage

import (
	"encoding/json"
	"math/big"
	"slices"
	"strings"
	"testing"

	"bookend/internal/gpu"
	"bookend/internal/joblog"
	"bookend/internal/judge"
	"bookend/internal/oomlog"
	"bookend/internal/record"
	"bookend/internal/report"
	"bookend/internal/slurm"
)

// What was looked through and what was not is on record, output by output, and in words for the diagnosis.
func TestHeard(t *testing.T) {
	file := func(kind record.OutputKind, path string) written { return at(kind, joblog.Target{Path: path}) }
	out, errs, step := file(record.ScriptOutput, "/o"), file(record.ScriptErrors, "/e"), file(record.StepOutput, "/s")
	srun := written{Output: record.Output{Kind: record.StepOutput, Why: ofSrun}}
	whole := joblog.Searched{Size: 70, Read: 70}
	of := func(file int) record.Message { return record.Message{Kind: record.KindDevice, File: file} }
	for name, tt := range map[string]struct {
		all           []written
		reply         joblog.TailReply
		unknown, part string
		files         []int // of the messages
		outputs       int
	}{
		"all of it":         {[]written{out, errs}, joblog.TailReply{Files: []joblog.Searched{whole, {}}}, "", "", nil, 2},
		"the end of it":     {[]written{out}, joblog.TailReply{Files: []joblog.Searched{{Size: 5 << 20, Read: 4 << 20}}}, "", "only its last 4096 KiB", nil, 1},
		"refused":           {[]written{out}, joblog.TailReply{Files: []joblog.Searched{{Refused: "missing"}}}, "refused: missing", "", nil, 1},
		"refused in part":   {[]written{out, errs}, joblog.TailReply{Files: []joblog.Searched{whole, {Refused: "links"}}}, "", "its errors: refused: links", nil, 2},
		"srun alone":        {[]written{srun}, joblog.TailReply{}, ofSrun, "", nil, 1},
		"srun too":          {[]written{out, srun}, joblog.TailReply{Files: []joblog.Searched{whole}}, "", "a step's output: " + ofSrun, nil, 2},
		"an earlier run's":  {[]written{out}, joblog.TailReply{Files: []joblog.Searched{{Size: 1 << 20, Read: 65536, Earlier: true}}}, "", "only its last 64 KiB", nil, 1},
		"another job's":     {[]written{out}, joblog.TailReply{Files: []joblog.Searched{{Size: 4096, Read: 0, Earlier: true}}}, "another Bookend report is in it", "", nil, 1},
		"a requeued job's":  {[]written{out}, joblog.TailReply{Files: []joblog.Searched{{Size: 4096, Read: 1000, Earlier: true}}}, "", "", nil, 1},
		"between others":    {[]written{{Output: record.Output{Kind: record.ScriptOutput, Why: "x"}}, errs}, joblog.TailReply{Files: []joblog.Searched{whole}, Messages: []record.Message{of(0)}}, "", "its output: x", []int{1}, 2},
		"same reason twice": {[]written{out, step, step}, joblog.TailReply{Files: []joblog.Searched{whole, {Refused: "missing"}, {Refused: "missing"}}}, "", "a step's output: refused: missing", nil, 3},
	} {
		got := outputOf(judge.JobOutput{}, tt.all, tt.reply, name == "a requeued job's")
		var files []int
		for _, m := range got.Messages {
			files = append(files, m.File)
		}
		if got.Unknown != tt.unknown || got.Part != tt.part || len(got.Outputs) != tt.outputs || !slices.Equal(files, tt.files) {
			t.Errorf("%s: %+v", name, got)
		}
	}
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
		"no task hook":             {batch, nil, []string{"output /w/slurm-7.out"}},
		"task hook":                {batch, &joblog.Drop{Target: target("/r/slurm-7.out")}, []string{"output /r/slurm-7.out"}},
		"an array's":               {batch, &joblog.Drop{Array: slurm.ArrayTask{Master: 5, Task: 3}}, []string{"output /w/slurm-5_3.out"}},
		"errors apart":             {apart, &joblog.Drop{Target: target("/r/x.err"), Name: "x"}, []string{"output /w/x.out", "errors /r/x.err"}},
		"errors apart, by name":    {apart, &joblog.Drop{Name: "x"}, []string{"output /w/x.out", "errors /w/x.err"}},
		"a name no one tells":      {apart, nil, []string{"output " + unknown, "errors " + unknown}},
		"its further node":         {further, nil, []string{"output " + unknown}},
		"its further node's steps": {further, &joblog.Drop{Steps: []joblog.Target{target("/o.8")}}, []string{"output " + unknown, "step /o.8"}},
		"steps' files":             {batch, &joblog.Drop{Target: target("/r/slurm-7.out"), Steps: []joblog.Target{target("/o.1"), target("/r/slurm-7.out")}}, []string{"output /r/slurm-7.out", "step /o.1"}},
		"srun's terminal":          {srun, nil, []string{"step " + unknown}},
		"srun's terminal, told":    {srun, &joblog.Drop{Elsewhere: true}, []string{"step " + unknown}},
		"srun's file":              {srun, &joblog.Drop{Steps: []joblog.Target{target("/o.txt")}}, []string{"step /o.txt"}},
		"a step elsewhere":         {batch, &joblog.Drop{Target: target("/r/o"), Elsewhere: true}, []string{"output /r/o", "step " + unknown}},
	} {
		var got []string
		o := output{job: tt.job, told: tt.drop != nil}
		if o.told {
			o.drop = *tt.drop
		}
		for _, w := range o.writtenBy() {
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

// What comes back from a process that the user may have got at is what a tail could have written, or nothing.
func FuzzTailReply(f *testing.F) {
	const message = `{"kind":"device","framework":"PyTorch","asked":{"bytes":2147483648},"total":{"unknown":"not said"},"free":{"bytes":5},"in_use":{"unknown":"x"},` +
		`"allocated":{"bytes":0},"idle":{"bytes":7},"limit":{"unknown":"not said"},"line":"CUDA out of memory","count":2,"gpu":0,"pid":77,"others":[{"pid":9,"memory":{"bytes":5}}]}`
	f.Add([]byte(`{"messages":[`+message+`],"files":[{"size":9,"read":9},{}]}`), 2)
	f.Add([]byte(`{"files":[{"refused":"missing"},{"refused":"because\n"}]}`), 2)
	f.Add([]byte(`{"messages":[{"kind":"device","line":"\u001b[2J","count":1}],"files":[{}]}`), 1)
	f.Add([]byte(`{"messages":[`+strings.Replace(message, `"count":2`, `"count":2,"file":1`, 1)+`],"files":[{"same":true}]}`), 1)
	f.Add([]byte(`{}`), 0)
	f.Fuzz(func(t *testing.T, data []byte, targets int) {
		var reply joblog.TailReply
		if json.Unmarshal(data, &reply) != nil || targets < 0 || targets > oomlog.MaxFiles || reply.Check(targets) != nil {
			return
		}
		if len(reply.Messages) > oomlog.MaxMessages {
			t.Fatalf("%d messages", len(reply.Messages))
		}
		for _, m := range reply.Messages {
			if !oomlog.Valid(m) || m.File >= max(targets, 1) {
				t.Fatalf("%+v", m)
			}
		}
		all := make([]written, targets)
		for i := range all {
			all[i] = at(record.StepOutput, joblog.Target{Path: "/o"})
		}
		if s := outputOf(judge.JobOutput{}, all, reply, false); !plain(s.Unknown) || !plain(s.Part) || len(s.Unknown+s.Part) > 1000 || len(s.Outputs) > targets {
			t.Fatalf("%+v", s)
		}
	})
}

func plain(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

// Slurm obeys lines that begin with export and unset, and ends one without a line's end with a NUL: whatever stands in
// a report, each line is one for it to print. Blanks before a line, and a carriage return, count for nothing with
// Slurm.
func FuzzPrintLines(f *testing.F) {
	for _, seed := range []string{"bookend: GPU 0 of n1 clean\n", "export PATH=/tmp\n", "a\nunset HOME", "\x00", "\n\n", "a\rexport X=1\n", "  print x", "\u2028export A=b\n", strings.Repeat("x", 300)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var out strings.Builder
		printLines(&out, text)
		lines := strings.SplitAfter(out.String(), "\n")
		if last := lines[len(lines)-1]; last != "" {
			t.Fatalf("a line without an end: %q", last)
		}
		lines = lines[:len(lines)-1]
		if want := strings.Count(text, "\n"); len(lines) != want && len(lines) != want+1 {
			t.Fatalf("%d lines of %q", len(lines), text)
		}
		for _, line := range lines {
			if !strings.HasPrefix(line, "print | ") || !plain(strings.TrimSuffix(line, "\n")) || len(line) > len("print | \n")+report.Width {
				t.Fatalf("line %q", line)
			}
		}
		for line := range strings.Lines(quote(text)) {
			if !strings.HasPrefix(line, "| ") {
				t.Fatalf("line %q of a job's log", line)
			}
		}
	})
}

// A limit that the user's environment states is a figure that the epilog takes back from the record, or unknown. Where
// Slurm carries none it is this process's own.
func FuzzAddressSpace(f *testing.F) {
	for _, seed := range []string{
		"U68719476736", "4294967296", "18446744073709551615", "U", "UU1", "-1", "+1", "0x1", "1_0", "18446744073709551616",
		"U0", "",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, carried string) {
		got := (&task{env: Env{Getenv: func(name string) string {
			return map[string]string{"SLURM_RLIMIT_AS": carried}[name]
		}}}).addressSpace()
		want, ok := new(big.Int).SetString(strings.TrimPrefix(carried, "U"), 10)
		if !ok || strings.Trim(strings.TrimPrefix(carried, "U"), "0123456789") != "" || !want.IsUint64() {
			want = new(big.Int)
		}
		if carried == "" && (got == 0 || got > record.Unlimited) || carried != "" && got != min(want.Uint64(), record.Unlimited) {
			t.Fatalf("SLURM_RLIMIT_AS=%q: %d, want %v", carried, got, want)
		}
		record, err := joblog.Drop{AddressSpace: got}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		drop, err := joblog.ParseDrop(record)
		o := &output{drop: drop}
		if err != nil || got > 0 && o.addressSpace() != gpu.Bytes(got) || got == 0 && o.addressSpace().Known() {
			t.Fatalf("%s: %+v, %v", record, drop, err)
		}
	})
}
