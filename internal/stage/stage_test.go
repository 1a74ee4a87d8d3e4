package stage

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"bookend/internal/backend"
	"bookend/internal/catalog"
	"bookend/internal/child"
	"bookend/internal/config"
	"bookend/internal/drain"
	"bookend/internal/gpu"
	"bookend/internal/judge"
	"bookend/internal/procscan"
	"bookend/internal/protocol"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/internal/slurmconf"
	"bookend/internal/state"
	"bookend/test/must"
)

func a(t *testing.T, phase slurm.Context) (r *work, run string) {
	t.Helper()
	run = t.TempDir()
	store, err := state.Open(run, "n1")
	if err != nil {
		t.Fatal(err)
	}
	r = &work{Driver: New(child.Env{Clock: child.SystemClock()}, phase)}
	r.Store, r.Config = store, config.Default()
	return r, run
}

// Clean-up is for the one epilog of a run that slurmd itself runs, where an admin wants it. A hook without time ends no
// process, and says so.
func TestCleanUp(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*judge.Case)
		want   bool
	}{
		"enabled":                   {func(*judge.Case) {}, true},
		"off":                       {func(c *judge.Case) { c.Config.CleanUp.Enabled = false }, false},
		"inside the job":            {func(c *judge.Case) { c.InJob = true }, false},
		"its end is on record":      {func(c *judge.Case) { c.Past.Again = true }, false},
		"another epilog is at work": {func(c *judge.Case) { c.Past.Second = true }, false},
	} {
		r, _ := a(t, slurm.Epilog)
		r.Config.CleanUp.Enabled = true
		tt.change(&r.Case)
		if got := r.mayCleanUp(); got != tt.want {
			t.Errorf("%s: may clean up: got %v, want %v", name, got, tt.want)
		}
		r.Limit(time.Second)
		if did, ended := r.endAll([]record.Holder{{}}); len(did) != 1 || did[0].Unknown == "" || ended {
			t.Errorf("got %+v and %v, want one finding that says why, and nothing ended", did, ended)
		}
	}
}

// A start believes an earlier test only as long as it is the last one: another hook may test while this one looks.
func TestTestedWhileAStartLooks(t *testing.T) {
	const id = "GPU-0"
	r, _ := a(t, slurm.Prolog)
	r.Config.Probe.At = config.ProbeEpilog
	epoch := gpu.Epoch{Boot: "b", Driver: "570", Module: "1"}
	test := func(result gpu.ProbeResult) {
		r.Try(r.Store.PutProbes(record.TestRecord{
			Probe: gpu.Probe{Device: id, At: r.Clock.Boot(), Result: result}, Epoch: epoch,
			Kernel: gpu.KernelMark{Seq: 5}, Seen: 1,
		}))
	}
	r.Seen = judge.Seen{
		Epoch: epoch, Cards: []record.Assigned{{Device: gpu.Device{ID: id}}}, Kernel: &gpu.KernelLog{},
		Side: record.Side{
			Snapshot: gpu.Snapshot{At: r.Clock.Boot(), Readings: []gpu.Reading{{Device: gpu.Device{ID: id}}}},
			Curves:   map[gpu.ID]record.Curve{id: {State: record.Clean}},
		},
	}
	test(gpu.ProbeOK)
	earlier := r.earlierTests()
	for _, want := range []gpu.ProbeResult{gpu.ProbeOK, gpu.ProbeSkipped} {
		said, open := r.trusted(earlier)
		if len(said) != 1 || len(open) != 0 || said[0].Result != want {
			t.Errorf("got %+v, open %+v, want %s", said, open, want)
		}
		test(gpu.ProbeBroken)
	}
	if found := r.Take(); len(found) > 0 {
		t.Errorf("got %+v, want no trouble", found)
	}
}

// A finding is one line of the log, and the same one as long as only its figures wander.
func TestWords(t *testing.T) {
	index := 3
	f := record.Finding{
		Code: catalog.Orphan, GPU: "GPU-a", Index: &index, Bytes: gpu.Bytes(2 << 30),
		Holder: &record.Holder{Process: record.Process{PID: 70, Name: "x"}},
		Owner:  &record.Owner{Job: 9, Level: record.BySighting},
	}
	for want, f := range map[string]record.Finding{
		"GPU 3, 2048 MiB, process 70, job 9 (sighting)": f,
		"GPU GPU-a, unknown: no reading":                {Code: catalog.Unread, GPU: "GPU-a", Unknown: "no reading"},
		"as it was seen":                                {Code: catalog.BadEnv, Observed: "as it was seen"},
	} {
		if got := words(f); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	more := f
	if more.Bytes = gpu.Bytes(1); subject(f) != subject(more) {
		t.Errorf("%q, then %q: a figure that wanders is said again", subject(f), subject(more))
	}
}

// A hook that is stuck ends at the deadline that the README promises for the default configuration, or 5 s after its
// start if it could not read its configuration. It runs on a clock of its own: no machine is too slow for this test.
func TestShippedDeadlineEndsHooks(t *testing.T) {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM) // its goroutine must not be of a test's bubble
	for _, tt := range []struct {
		hook    func(Env) int
		context slurm.Context
		stuck   string // reading this variable
		promise time.Duration
	}{
		{Prolog, slurm.Prolog, "SLURM_JOB_ID", 5 * time.Second},
		{Epilog, slurm.Epilog, "SLURM_JOB_ID", 15 * time.Second},
		{Prolog, slurm.Prolog, "BOOKEND_CONFIG", 5 * time.Second},
		{Epilog, slurm.Epilog, "BOOKEND_CONFIG", 5 * time.Second},
		{Prolog, slurm.TaskProlog, "SLURM_RLIMIT_AS", time.Second}, // the job's script waits for it
	} {
		environ := map[string]string{
			"SLURM_SCRIPT_CONTEXT": string(tt.context), "SLURM_JOB_GPUS": "0",
			"BOOKEND_CONFIG": filepath.Join(t.TempDir(), "missing.yaml"),
		}
		synctest.Test(t, func(t *testing.T) {
			began, ended := time.Now(), make(chan struct{})
			getenv := func(name string) string {
				if name == tt.stuck {
					<-ended
					runtime.Goexit() // what follows would write to this machine's own directories
				}
				return environ[name]
			}
			go tt.hook(Env{
				Args: []string{"bookend"}, Getenv: getenv, Stdout: io.Discard, Stderr: io.Discard, EUID: 1,
				Clock: child.Clock{Wall: time.Now, Boot: func() time.Duration { return time.Since(began) }},
				Exit:  func(int) { close(ended) },
			})
			<-ended
			if took := time.Since(began); took < tt.promise || took > tt.promise+LastWords {
				t.Errorf("%s stuck at %s: ended after %v, want %v", tt.context, tt.stuck, took, tt.promise)
			}
		})
	}
}

// A stuck reader that cannot be put on record is the last that this hook starts.
func TestUnkeptReader(t *testing.T) {
	d := New(child.Env{Clock: child.SystemClock()}, slurm.Epilog)
	d.Config = config.Default()
	d.Config.Paths.Run = t.TempDir()
	for _, tt := range []struct {
		outcome child.Outcome
		want    bool
	}{{child.Hung, false}, {child.Abandoned, true}} {
		failure := &child.Error{Op: procscan.HoldersOp, Result: child.Result{Outcome: tt.outcome}}
		d.abandonedReader(failure, nil)
		if d.unkept != tt.want {
			t.Errorf("after a reader that was %s: got %v, want %v", tt.outcome, d.unkept, tt.want)
		}
	}
}

// What is said in the same words is told once.
func TestOnce(t *testing.T) {
	said := []record.Finding{{Unknown: "a"}}
	news := Once([]record.Finding{{Unknown: "a"}, {Unknown: "b"}, {Unknown: "b"}, {Unknown: "c"}}, said)
	if len(news) != 2 || news[0].Unknown != "b" || news[1].Unknown != "c" {
		t.Errorf("got %+v, want b and c", news)
	}
}

// Tests take no longer than their own limit, what the deadline leaves and, in a prolog, what is left of the driver's
// time. Only as many GPUs are tested as fit into that.
func TestRoomForTests(t *testing.T) {
	const sec, ms = time.Second, time.Millisecond
	for name, tt := range map[string]struct {
		phase  slurm.Context
		now    time.Duration // since the hook began
		cards  int
		budget time.Duration
		room   int
	}{
		"an end":                       {slurm.Epilog, 1 * sec, 2, 2200 * ms, 2},
		"an end, late":                 {slurm.Epilog, 7500 * ms, 2, 1500 * ms, 2},
		"an end, too late for two":     {slurm.Epilog, 8 * sec, 2, 1 * sec, 1},
		"an end, too late":             {slurm.Epilog, 8500 * ms, 1, 500 * ms, 0},
		"just enough":                  {slurm.Epilog, 8050 * ms, 1, 950 * ms, 1},
		"a start":                      {slurm.Prolog, 1 * sec, 2, 2200 * ms, 2},
		"a start, the driver was slow": {slurm.Prolog, 3 * sec, 2, 1 * sec, 1},
	} {
		at := child.Clock{Boot: func() time.Duration { return 100*sec + tt.now }}
		d := &Driver{
			Env: child.Env{Clock: at}, Frame: &Frame{deadline: 110 * sec, Start: 100 * sec, clock: at},
			Case: judge.Case{Phase: tt.phase},
		}
		d.Times.Driver, d.Times.Probe = config.Duration(4*sec), config.Duration(2200*ms)
		d.Times.Outputs = config.Duration(sec)
		tester := &tester{Driver: d}
		if budget, room := tester.budget(), tester.room(tt.cards); budget != tt.budget || room != tt.room {
			t.Errorf("%s: got %v for %d GPUs, want %v for %d", name, budget, room, tt.budget, tt.room)
		}
	}
}

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

// numbered is cards with their numbers, in words.
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
		c.Seen.Given, c.Seen.Cards = slurmconf.Slurms(tt.cards, tt.list), everyGPU(tt.cards, tt.conf, tt.list)
		if tt.given == "" {
			tt.given = tt.want
		}
		if got, given := numbered(c.Seen.Cards), numbered(c.Given()); got != tt.want || given != tt.given {
			t.Errorf("%s: got %q, given out %q, want %q and %q", name, got, given, tt.want, tt.given)
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
		a := &ahead{answer: func() backend.Answer { return answer }}
		if got := a.shows(seen); got != tt.want {
			t.Errorf("%s: got %v, want %v", name, got, tt.want)
		}
	}
}

// The kernel names what a process runs by where it lies, whatever link the configuration names it by.
func TestBackendBehindALink(t *testing.T) {
	dir := must.Have(filepath.EvalSymlinks(t.TempDir()))(t)
	must.Do(t, os.WriteFile(dir+"/bookend-gpu", nil, 0o755))
	must.Do(t, os.Symlink(dir, dir+"/current"))
	d := &Driver{}
	d.Config.Backend = dir + "/current/bookend-gpu"
	for exe, want := range map[string]bool{dir + "/bookend-gpu": true, dir + "/bookend-gpu (deleted)": true, dir + "/other": false, "": false} {
		if got := d.isBackend(record.Holding{Process: record.Process{Exe: exe}}); got != want {
			t.Errorf("%q: %v", exe, got)
		}
	}
}

// A hook that is stopped leaves what its exit code follows from, without which the drain would have neither reason nor
// cause; of one that was stopped for something else it leaves that alone.
func TestStoppedAfterTheVerdict(t *testing.T) {
	for name, tt := range map[string]struct {
		found record.Finding
		later int // an exit code that follows from something else, 0 for none
		want  string
	}{
		"a lost GPU": {record.Finding{Code: catalog.Lost, GPU: "GPU-0"}, 0, "BKD-LOST BKD-DEADLINE"},
		"nothing":    {record.Finding{Code: catalog.Again}, 0, "BKD-DEADLINE"},
		"another":    {record.Finding{Code: catalog.Lost, GPU: "GPU-0"}, 42, "BKD-DEADLINE"},
	} {
		r, _ := a(t, slurm.Prolog)
		var said strings.Builder
		r.Getenv, r.Stderr = func(string) string { return "" }, &said
		r.Start, r.Clock.Boot = time.Hour, func() time.Duration { return time.Hour + 2*time.Second }
		r.Config.Mode, r.Faults = config.Enforce, []record.Finding{tt.found}
		r.judge()
		if tt.later != 0 {
			r.Reach(tt.later)
		}
		var left record.End
		r.Unfinished(func(e record.End) { left = e })
		leave(r.Driver, slurm.Prolog, "SIGTERM")
		if got := said.String(); got != "bookend: BKD-DEADLINE: stopped by SIGTERM after 2s\n" {
			t.Errorf("%s: said %q", name, got)
		}
		var codes []string
		for _, f := range left.Findings {
			codes = append(codes, string(f.Code))
		}
		if got := strings.Join(codes, " "); got != tt.want || left.Verdict.Exit != r.Reached() {
			t.Errorf("%s: left %q, exit %d, want %q and %d", name, got, left.Verdict.Exit, tt.want, r.Reached())
		}
		exit := drain.FromEnd(record.Run{}, slurm.Prolog, left)
		if tt.want == "BKD-LOST BKD-DEADLINE" && (len(exit.Causes) != 1 || exit.Causes[0].GPU != "GPU-0") {
			t.Errorf("%s: its causes are %+v", name, exit.Causes)
		}
	}
}

// The hooks that wait for this one's answer go on as soon as its stuck child is on record, which keeps them from asking.
func TestRecordOfAStuckChildEndsTheWait(t *testing.T) {
	r, run := a(t, slurm.Epilog)
	r.Config.Paths.Run, r.Config.Paths.Proc, r.Job.Node = run, "/proc", "n1"
	_, refused := r.meet()
	must.Not(t, refused != nil, "%+v", refused)
	must.Fail(t, "before", must.Err(r.Store.AskDriver(0)), state.ErrLocked)
	_, ticks, err := child.Parent("/proc", os.Getpid())
	must.Do(t, err)
	r.troubles(backend.Answer{Abandoned: &backend.Abandoned{PID: os.Getpid(), StartTicks: ticks}}, "")
	_, refused = r.meet()
	must.Not(t, refused == nil || refused.Code != catalog.Stuck, "%+v", refused)
	must.Do(t, must.Err(r.Store.AskDriver(0)))
}

// A hook that waited for another's answer watches as long as it was asked to, if that fits.
func TestWithin(t *testing.T) {
	const second = time.Second
	for name, tt := range map[string]struct {
		watch, deadline, left time.Duration
		want, wantDeadline    time.Duration
	}{
		"it fits":          {second, 7 * second, 5 * second, second, 5 * second},
		"it fits just so":  {second, 7 * second, second + backendReserve, second, second + backendReserve},
		"it does not":      {6 * second, 7 * second, 5 * second, 5*second - backendReserve, 5 * second},
		"there is no time": {second, 7 * second, 100 * time.Millisecond, 0, 100 * time.Millisecond},
		"more than asked":  {second, 3 * second, 5 * second, second, 3 * second},
		"no watch":         {0, 7 * second, 5 * second, 0, 5 * second},
	} {
		r := within(protocol.Request{DeadlineMillis: tt.deadline.Milliseconds(), Watch: gpu.WatchRule{Max: tt.watch}}, tt.left)
		if r.Watch.Max != tt.want || r.DeadlineMillis != tt.wantDeadline.Milliseconds() {
			t.Errorf("%s: watch %v, deadline %d ms", name, r.Watch.Max, r.DeadlineMillis)
		}
	}
}
