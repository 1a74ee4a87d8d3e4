package observe

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"bookend/internal/backend"
	"bookend/internal/catalog"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/joblog"
	"bookend/internal/judge"
	"bookend/internal/oomlog"
	"bookend/internal/protocol"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/internal/slurmconf"
	"bookend/internal/state"
	"bookend/test/must"
	"bookend/test/onrecord"
)

// A start that listed hundreds of processes on each GPU does not keep the end from asking: the request fits.
func TestRequestFits(t *testing.T) {
	var e gpu.Expected
	for pid := range 480 {
		e.Processes = append(e.Processes, gpu.ExpectedProcess{PID: 4_000_000 + pid, Bytes: 1 << 36, Share: 1 << 28})
	}
	for want, ids := range map[bool][]gpu.ID{true: {"GPU-0"}, false: {"GPU-0", "GPU-1", "GPU-2", "GPU-3"}} {
		r := protocol.Request{Op: protocol.Watch, Watch: gpu.WatchRule{Expect: map[gpu.ID]gpu.Expected{}}}
		for _, id := range ids {
			r.Watch.Expect[id] = e
		}
		if kept := fitting(r).Watch.Expect != nil; kept != want {
			t.Errorf("%d GPUs: got %v, want %v", len(ids), kept, want)
		}
	}
}

func gpuCard(minor int, bus gpu.BusID) gpu.Physical {
	id := gpu.ID(fmt.Sprint("GPU-", minor))
	return gpu.Physical{Device: gpu.Device{ID: id, BusID: bus, Minor: &minor, Vendor: "nvidia"}}
}

// numbered returns GPUs as text, each with its number.
func numbered(cards []record.Assigned) string {
	var all []string
	for _, c := range cards {
		name := string(c.Device.ID)
		if name == "" {
			name = string(c.Device.BusID)
		}
		all = append(all, fmt.Sprintf("%d=%s", c.Index, name))
	}
	return strings.Join(all, " ")
}

func listedBySlurmd(minors ...int) slurmconf.List {
	l := slurmconf.List{Source: record.BySlurmd}
	for _, m := range minors {
		l.GPUs = append(l.GPUs, slurmconf.GPU{fmt.Sprintf("/dev/nvidia%d", m)})
	}
	return l
}

// The health check numbers the GPUs as the hooks do, and where Slurm's number is not certain it has none. What is on a
// GPU that Slurm does not give out is not its to judge.
func TestEveryCard(t *testing.T) {
	first, second := gpuCard(0, "0000:10:00.0"), gpuCard(1, "0000:20:00.0")
	both, twisted := []gpu.Physical{first, second}, []gpu.Physical{gpuCard(1, "0000:10:00.0"), gpuCard(0, "0000:20:00.0")}
	excluded := second
	excluded.Excluded = true
	part := slurmconf.GPU{"/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap3"}
	byMap := config.NVIDIA{GPUMap: map[int]string{3: "GPU-0"}}
	for name, tt := range map[string]struct {
		cards       []gpu.Physical
		conf        config.NVIDIA
		list        slurmconf.List
		want, given string // given is "" for the same
	}{
		"in order":        {both, config.NVIDIA{}, listedBySlurmd(0, 1), "0=GPU-0 1=GPU-1", ""},
		"in another":      {both, config.NVIDIA{}, listedBySlurmd(1, 0), "1=GPU-0 0=GPU-1", ""},
		"minors twisted":  {twisted, config.NVIDIA{}, listedBySlurmd(0, 1), "1=GPU-1 0=GPU-0", ""},
		"not Slurm's":     {both, config.NVIDIA{}, listedBySlurmd(1), "-1=GPU-0 0=GPU-1", "0=GPU-1"},
		"not known":       {both, config.NVIDIA{}, slurmconf.Unclear("x"), "-1=GPU-0 -1=GPU-1", ""},
		"by map":          {both, byMap, slurmconf.List{}, "3=GPU-0 -1=GPU-1", ""},
		"one is left out": {[]gpu.Physical{first, excluded}, config.NVIDIA{}, listedBySlurmd(0), "0=GPU-0", ""},
		"no GPU is there": {nil, config.NVIDIA{}, listedBySlurmd(0), "", ""},
		"parts of one": {both, config.NVIDIA{}, slurmconf.List{Source: record.BySlurmd, GPUs: []slurmconf.GPU{part}},
			"-1=GPU-0 -1=GPU-1", "-1=GPU-1"},
	} {
		c := judge.Check{}
		c.Seen.Given, c.Seen.Cards = slurmconf.Slurms(tt.cards, tt.list), everyGPU(tt.cards, tt.conf.GPUMap, tt.list)
		if tt.given == "" {
			tt.given = tt.want
		}
		if got, given := numbered(c.Seen.Cards), numbered(c.Given()); got != tt.want || given != tt.given {
			t.Errorf("%s: got %q, given out %q, want %q and %q", name, got, given, tt.want, tt.given)
		}
	}
}

// Which other GPUs a job may have follows from their types, however its own are named. An end knows it from the start.
func TestOrigin(t *testing.T) {
	cards := []gpu.Physical{gpuCard(0, "0000:10:00.0"), gpuCard(1, "0000:20:00.0")}
	list := listedBySlurmd(0, 1)
	list.Types = []string{"a", "b"}
	a, _ := onrecord.Node(t, slurm.Prolog)
	a.Job = slurm.Job{ID: 7, GPUIndexes: []int{0}}
	started := record.Run{Job: a.Job, Devices: []record.Assigned{{Index: 0}}}
	started.Numbering.Source = record.BySlurmd
	for name, tt := range map[string]struct {
		source record.Source
		past   record.Run
		want   int
	}{
		"by slurmd": {record.BySlurmd, record.Run{}, 1}, "by UUID": {record.ByUUID, record.Run{}, 1},
		"at its end": {record.BySlurmd, started, 0},
	} {
		own := []record.Assigned{{Index: 0, Device: cards[0].Device}}
		if got := origin(a, tt.past, slurmconf.Result{Source: tt.source, Devices: own}, cards, list); len(got.Perhaps) != tt.want {
			t.Errorf("%s: %+v, want %d", name, got, tt.want)
		}
	}
}

// A look adds the ids that the driver alone knows, and instances in place of the GPU that they are part of; a GPU that
// it could not read stays.
func TestWithReadings(t *testing.T) {
	read := func(id gpu.ID, bus gpu.BusID, parent gpu.ID) gpu.Reading {
		return gpu.Reading{Device: gpu.Device{ID: id, BusID: bus, Parent: parent}}
	}
	two := []record.Assigned{{Index: 0, Device: gpu.Device{BusID: "a"}}, {Index: 1, Device: gpu.Device{BusID: "b"}}}
	first, second, third := read("GPU-0", "a", ""), read("GPU-1", "b", ""), read("GPU-2", "c", "")
	for name, tt := range map[string]struct {
		readings []gpu.Reading
		want     string
	}{
		"both are read": {[]gpu.Reading{first, second}, "0=GPU-0 1=GPU-1"},
		"one is lost":   {[]gpu.Reading{second}, "1=GPU-1 0=a"},
		"one is cut in two": {[]gpu.Reading{first, read("MIG-0", "a", "GPU-0"), read("MIG-1", "a", "GPU-0"), second},
			"-1=MIG-0 -1=MIG-1 1=GPU-1"},
		"one that the driver did not list": {[]gpu.Reading{first, second, third}, "0=GPU-0 1=GPU-1 -1=GPU-2"},
	} {
		if got := numbered(withReadings(two, gpu.Snapshot{Readings: tt.readings})); got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}

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
		change func(*backend.Answer)
		want   bool
	}{
		"the same":            {card, record.BySlurmd, nil, true},
		"another minor":       {as(func(d *gpu.Device) { d.Minor = &other }), record.BySlurmd, nil, false},
		"a minor not known":   {as(func(d *gpu.Device) { d.Minor = nil }), record.BySlurmd, nil, false},
		"another place":       {as(func(d *gpu.Device) { d.BusID = "0000:3d:00.0" }), record.BySlurmd, nil, false},
		"another GPU":         {as(func(d *gpu.Device) { d.ID = "GPU-b" }), record.BySlurmd, nil, false},
		"an instance by UUID": {gpu.Device{ID: "GPU-a"}, record.ByUUID, nil, true},
		"another by UUID":     {gpu.Device{ID: "GPU-b"}, record.ByUUID, nil, false},
		"cut off":             {card, record.BySlurmd, func(a *backend.Answer) { a.Complete = false }, false},
		"with a fault":        {card, record.BySlurmd, func(a *backend.Answer) { a.Faults = make([]gpu.Fault, 1) }, false},
		"no look":             {card, record.BySlurmd, func(a *backend.Answer) { a.Snapshots = nil }, false},
	} {
		answer := backend.Answer{Complete: true, Snapshots: []gpu.Snapshot{{Readings: []gpu.Reading{{Device: tt.its}}}}}
		if tt.change != nil {
			tt.change(&answer)
		}
		seen := judge.Seen{Cards: []record.Assigned{{Device: card}}, Origin: record.Origin{Source: tt.source}}
		w := &ahead{answer: func() backend.Answer { return answer }}
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
		a, _ := onrecord.Node(t, slurm.Epilog)
		a.Env.Clock.Boot = func() time.Duration { return time.Hour }
		must.Do(t, state.LastExamined.Save(a.Store, time.Hour-tt.ago))
		if got := brief(a, tt.exit); got != tt.want {
			t.Errorf("%s: got %v, want %v", name, got, tt.want)
		}
	}
}

// What a job's numbers meant at its start they mean at its end, if the record surely is of this run.
func TestNumbersSettledAtTheStart(t *testing.T) {
	job := slurm.Job{ID: 7, GPUIndexes: []int{0, 3}, Start: time.Unix(1_800_000_000, 0)}
	run := record.Run{Job: job, Devices: []record.Assigned{{Index: 0}, {Index: 3}}}
	run.Numbering.Source = record.BySlurmd
	for name, tt := range map[string]struct {
		change func(*record.Run, *slurm.Job)
		want   bool
	}{
		"open":                          {func(*record.Run, *slurm.Job) {}, true},
		"open, without a start to tell": {func(_ *record.Run, j *slurm.Job) { j.Start = time.Time{} }, true},
		"closed, of this run":           {func(r *record.Run, _ *slurm.Job) { r.Ends = []record.End{{}} }, true},
		"closed, perhaps of another": {func(r *record.Run, j *slurm.Job) {
			r.Ends, j.Start = []record.End{{}}, time.Time{}
		}, false},
		"ambiguous":      {func(r *record.Run, _ *slurm.Job) { r.Numbering.Source = record.Ambiguous }, false},
		"without GPUs":   {func(r *record.Run, _ *slurm.Job) { r.Devices = nil }, false},
		"another number": {func(_ *record.Run, j *slurm.Job) { j.GPUIndexes = []int{0, 1} }, false},
		"one less":       {func(_ *record.Run, j *slurm.Job) { j.GPUIndexes = []int{0} }, false},
	} {
		r, j := run, job
		if tt.change(&r, &j); settled(r, j) != tt.want {
			t.Errorf("%s: got %v, want %v", name, !tt.want, tt.want)
		}
	}
}

// What was looked through and what was not is on record, output by output, and in words for the diagnosis.
func TestHeard(t *testing.T) {
	file := func(kind record.OutputKind, path string) joblog.Stream {
		return joblog.Stream{Output: record.NewOutput(kind, path), Target: joblog.Target{Path: path}}
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
			all[i] = joblog.Stream{Output: record.NewOutput(record.StepOutput, "/o"), Target: joblog.Target{Path: "/o"}}
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
	a, run := onrecord.Node(t, slurm.Epilog)
	must.Do(t, os.WriteFile(filepath.Join(run, "state/n1/baseline.json"), []byte("{"), 0o600))
	c, _ := withPast(a, a.Case())
	c, _ = withPast(a, c)
	if len(c.Faults) != 1 || c.Faults[0].Code != catalog.StateDamage {
		t.Errorf("%+v", c.Faults)
	}
}
