package node

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/joblog"
	"bookend/internal/judge"
	"bookend/internal/oomlog"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/internal/state"
	"bookend/test/must"
)

// What the driver says of GPUs that were foreseen counts without the inventory where it is whole and names them as the
// inventory did.
func TestForesight(t *testing.T) {
	minor, other := 0, 1
	card := gpu.Device{ID: "GPU-a", BusID: "0000:1b:00.0", Minor: &minor}
	as := func(change func(*gpu.Device)) (its gpu.Device) {
		its = card
		change(&its)
		return its
	}
	for name, tt := range map[string]struct {
		its    gpu.Device
		source record.Source
		change func(*Answer)
		want   bool
	}{
		"the same":            {card, record.BySlurmd, nil, true},
		"another minor":       {as(func(d *gpu.Device) { d.Minor = &other }), record.BySlurmd, nil, false},
		"a minor not known":   {as(func(d *gpu.Device) { d.Minor = nil }), record.BySlurmd, nil, false},
		"another place":       {as(func(d *gpu.Device) { d.BusID = "0000:3d:00.0" }), record.BySlurmd, nil, false},
		"another GPU":         {as(func(d *gpu.Device) { d.ID = "GPU-b" }), record.BySlurmd, nil, false},
		"an instance by UUID": {gpu.Device{ID: "GPU-a"}, record.ByUUID, nil, true},
		"another by UUID":     {gpu.Device{ID: "GPU-b"}, record.ByUUID, nil, false},
		"cut off":             {card, record.BySlurmd, func(a *Answer) { a.Complete = false }, false},
		"with a fault":        {card, record.BySlurmd, func(a *Answer) { a.Faults = make([]gpu.Fault, 1) }, false},
		"no look":             {card, record.BySlurmd, func(a *Answer) { a.Snapshots = nil }, false},
	} {
		answer := Answer{Complete: true, Snapshots: []gpu.Snapshot{{Readings: []gpu.Reading{{Device: tt.its}}}}}
		if tt.change != nil {
			tt.change(&answer)
		}
		seen := judge.Seen{Cards: []record.Assigned{{Device: card}}, Origin: record.Origin{Source: tt.source}}
		w := &ahead{answer: func() Answer { return answer }}
		if got := w.shows(seen); got != tt.want {
			t.Errorf("%s: got %v, want %v", name, got, tt.want)
		}
	}
}

// Slow facts are spared only if the job and all its steps ended well, and a health check has read them lately.
func TestBrief(t *testing.T) {
	well := slurm.ExitStatus{Known: true}
	for name, tt := range map[string]struct {
		exit slurm.ExitStatus
		ago  time.Duration
		want bool
	}{
		"ended well":           {well, time.Minute, true},
		"failed":               {slurm.ExitStatus{Known: true, Raw: 256}, time.Minute, false},
		"a step failed":        {slurm.ExitStatus{Known: true, Derived: 1}, time.Minute, false},
		"not known":            {slurm.ExitStatus{}, time.Minute, false},
		"read long ago":        {well, 11 * time.Minute, false},
		"read in time to come": {well, -time.Minute, false},
	} {
		a, _ := open(t, slurm.Epilog)
		a.Env.Clock.Boot = func() time.Duration { return time.Hour }
		must.Do(t, state.LastExamined.Save(a.Store, time.Hour-tt.ago))
		if got := brief(a, tt.exit); got != tt.want {
			t.Errorf("%s: got %v, want %v", name, got, tt.want)
		}
	}
}

// What was looked through and what was not is on record, output by output, and in words for the diagnosis.
func TestHeard(t *testing.T) {
	file := func(kind record.OutputKind, path string) joblog.Stream {
		return joblog.Stream{Output: record.Output{Kind: kind, Path: path}, Target: joblog.Target{Path: path}}
	}
	out, errs, step := file(record.ScriptOutput, "/o"), file(record.ScriptErrors, "/e"), file(record.StepOutput, "/s")
	const ofSrun = "goes to srun's own terminal"
	srun := joblog.Stream{Output: record.Output{Kind: record.StepOutput, Why: ofSrun}}
	whole := joblog.Searched{Size: 70, Read: 70}
	of := func(file int) record.Message { return record.Message{Kind: record.KindDevice, File: file} }
	for name, tt := range map[string]struct {
		all           []joblog.Stream
		reply         joblog.TailReply
		unknown, part string
		files         []int // of the messages
		outputs       int
	}{
		"all of it":         {[]joblog.Stream{out, errs}, joblog.TailReply{Files: []joblog.Searched{whole, {}}}, "", "", nil, 2},
		"the end of it":     {[]joblog.Stream{out}, joblog.TailReply{Files: []joblog.Searched{{Size: 5 << 20, Read: 4 << 20}}}, "", "only its last 4096 KiB", nil, 1},
		"refused":           {[]joblog.Stream{out}, joblog.TailReply{Files: []joblog.Searched{{Refused: "missing"}}}, "refused: missing", "", nil, 1},
		"refused in part":   {[]joblog.Stream{out, errs}, joblog.TailReply{Files: []joblog.Searched{whole, {Refused: "links"}}}, "", "its errors: refused: links", nil, 2},
		"srun alone":        {[]joblog.Stream{srun}, joblog.TailReply{}, ofSrun, "", nil, 1},
		"srun too":          {[]joblog.Stream{out, srun}, joblog.TailReply{Files: []joblog.Searched{whole}}, "", "a step's output: " + ofSrun, nil, 2},
		"an earlier run's":  {[]joblog.Stream{out}, joblog.TailReply{Files: []joblog.Searched{{Size: 1 << 20, Read: 65536, Earlier: true}}}, "", "only its last 64 KiB", nil, 1},
		"another job's":     {[]joblog.Stream{out}, joblog.TailReply{Files: []joblog.Searched{{Size: 4096, Read: 0, Earlier: true}}}, "another Bookend report is in it", "", nil, 1},
		"a requeued job's":  {[]joblog.Stream{out}, joblog.TailReply{Files: []joblog.Searched{{Size: 4096, Read: 1000, Earlier: true}}}, "", "", nil, 1},
		"between others":    {[]joblog.Stream{{Output: record.Output{Kind: record.ScriptOutput, Why: "x"}}, errs}, joblog.TailReply{Files: []joblog.Searched{whole}, Messages: []record.Message{of(0)}}, "", "its output: x", []int{1}, 2},
		"same reason twice": {[]joblog.Stream{out, step, step}, joblog.TailReply{Files: []joblog.Searched{whole, {Refused: "missing"}, {Refused: "missing"}}}, "", "a step's output: refused: missing", nil, 3},
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
		all := make([]joblog.Stream, targets)
		for i := range all {
			all[i] = joblog.Stream{Output: record.Output{Kind: record.StepOutput, Path: "/o"}, Target: joblog.Target{Path: "/o"}}
		}
		if s := outputOf(judge.JobOutput{}, all, reply, false); !plain(s.Unknown) || !plain(s.Part) || len(s.Unknown+s.Part) > 1000 || len(s.Outputs) > targets {
			t.Fatalf("%+v", s)
		}
	})
}

func plain(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

// Damage is said although a hook that finds another life of the driver than foreseen reads its past twice: the first
// time sets the damaged file aside.
func TestDamagedBaselinesAreSaid(t *testing.T) {
	a, run := open(t, slurm.Epilog)
	must.Do(t, os.WriteFile(filepath.Join(run, "state/n1/baseline.json"), []byte("{"), 0o600))
	c, _ := withPast(a, a.Case())
	c, _ = withPast(a, c)
	if len(c.Faults) != 1 || c.Faults[0].Code != catalog.StateDamage {
		t.Errorf("%+v", c.Faults)
	}
}
