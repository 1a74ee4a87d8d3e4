package report

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/test/golden"
	"bookend/test/must"
)

const mebi = 1 << 20

func scene(cards int, state record.State, found ...record.Finding) Scene {
	s := Scene{
		Run: record.Run{Job: slurm.Job{ID: 42, UID: 1001, Node: "n1"}}, Now: record.Side{Curves: map[gpu.ID]record.Curve{}},
		Findings: found, Show: config.ShowAll, Privacy: config.PrivacyOwn,
	}
	for i := range cards {
		d := gpu.Device{ID: gpu.ID("GPU-" + string(rune('a'+i)))}
		s.Cards = append(s.Cards, record.Assigned{Index: i, Device: d})
		s.Now.Curves[d.ID] = record.Curve{State: state}
		s.Now.Snapshot.Readings = append(s.Now.Snapshot.Readings, gpu.Reading{Device: d, Memory: gpu.Memory{
			Total: gpu.Bytes(143771 * mebi), Reserved: gpu.Bytes(615 * mebi), Free: gpu.Bytes(143155 * mebi)}})
	}
	for range found {
		s.Verdict.Judged = append(s.Verdict.Judged, record.Judged{Action: config.Warn})
	}
	return s
}

func holder(uid uint32, classes ...record.Class) *record.Holder {
	return &record.Holder{Process: record.Process{PID: 4711, UID: uid, Name: "python", Start: 400 * time.Second},
		Classes: classes}
}

func numbered(pid int) *record.Holder { return called("python", pid) }

func called(name string, pid int) *record.Holder {
	h := holder(1001)
	h.Name, h.PID = name, pid
	return h
}

// workers is two GPUs with memory of these processes, on the first and the second in turn.
func workers(c catalog.Code, o *record.Owner, all ...*record.Holder) Scene {
	var findings []record.Finding
	for i, h := range all {
		f := found(c, h, o)
		f.GPU = []gpu.ID{"GPU-a", "GPU-b"}[i%2]
		findings = append(findings, f)
	}
	return scene(2, record.Flat, findings...)
}

func found(c catalog.Code, h *record.Holder, o *record.Owner, candidates ...*record.Holder) record.Finding {
	index := 0
	f := record.Finding{Code: c, GPU: "GPU-a", Index: &index, Bytes: gpu.Bytes(20480 * mebi), Holder: h, Owner: o}
	for _, c := range candidates {
		f.Candidates = append(f.Candidates, *c)
	}
	return f
}

func fails(c catalog.Code, observed string, xid int) record.Finding {
	return record.Finding{Code: c, GPU: "GPU-a", Observed: observed, Xid: xid}
}

// check compares a text, without its last line feed, with the lines of want, each behind one.
func check(t *testing.T, got, want string) {
	t.Helper()
	if "\n"+got != want+"\n" {
		t.Errorf("got:\n%s\nwant:%s", got, want)
	}
}

var (
	earlier = &record.Owner{Job: 12, UID: 1001, Level: record.ByExclusive}
	theirs  = &record.Owner{Job: 12, UID: 1002, Level: record.ByCgroup}
	self    = &record.Owner{Job: 42, UID: 1001, Level: record.ByCgroup}
	guess   = &record.Owner{Job: 42, UID: 1001, Level: record.ByExclusive}
)

const (
	enough = "\nbookend:   139.8 GiB is free. Not enough? sbatch --exclude=n1\nbookend:   For your admin: bookend show 42 (on n1)"
	mayNot = "\nbookend:   GPU programs may fail on it. If yours does: sbatch --exclude=n1\nbookend:   For your admin: bookend show 42 (on n1)"
)

// What a reader gets, text by text: testdata/start.txt and end.txt.
func TestStart(t *testing.T) {
	unread := scene(1, record.Unreadable, record.Finding{Code: catalog.Unread, GPU: "GPU-a", Unknown: "no reading"},
		record.Finding{Code: catalog.DriverKO, Observed: "dlopen: no such file"})
	unread.Now.Snapshot.Readings = nil
	uneven := scene(2, record.Flat)
	uneven.Now.Snapshot.Readings[1].Memory.Free = gpu.Bytes(122675 * mebi)
	shared := scene(1, record.Flat, found(catalog.Foreign, holder(1002), theirs))
	shared.Privacy = config.PrivacyAll
	written(t, "testdata/start.txt", Start, map[string]Scene{
		"clean":                              scene(1, record.Clean),
		"several":                            scene(3, record.Clean),
		"in use":                             uneven,
		"the user's earlier job":             scene(1, record.Flat, found(catalog.Dirty, holder(1001), earlier)),
		"an earlier run":                     scene(1, record.Flat, found(catalog.Dirty, nil, guess)),
		"another user":                       scene(1, record.Flat, found(catalog.Foreign, holder(1002), theirs)),
		"another user, where jobs are named": shared,
		"not checked because of Bookend":     scene(1, record.Unreadable, record.Finding{Code: catalog.BackendMissing}),
		"nothing could be read":              unread,
	})
}

func TestEnd(t *testing.T) {
	drained := scene(1, record.Flat, found(catalog.Orphan, holder(1001), self))
	drained.Verdict.Action = config.Drain
	dirtyBefore := scene(1, record.Clean)
	dirtyBefore.Before = &record.Side{Curves: map[gpu.ID]record.Curve{"GPU-a": {State: record.Flat}}}
	dead := holder(1001, record.Phantom)
	dead.Gone = true
	two := scene(2, record.Flat, found(catalog.Orphan, holder(1001), self), found(catalog.Stray, holder(1002), nil))
	two.Findings[0].GPU = "GPU-b"
	recorded := func(c catalog.Code, h *record.Holder, o record.Owner) record.Finding {
		o.Level = record.ByRecorder
		return found(c, h, &o)
	}
	trespass, other := recorded(catalog.Trespass, holder(1001), *self), 3
	trespass.GPU, trespass.Index = "GPU-z", &other
	written(t, "testdata/end.txt", End, map[string]Scene{
		"clean":                     scene(1, record.Clean),
		"as it was":                 dirtyBefore,
		"dirty, and found again":    foundAgain(found(catalog.Dirty, holder(1001), earlier)),
		"a GPU's error from before": foundAgain(record.Finding{Code: catalog.XidFatal, GPU: "GPU-a", Xid: 79, Earlier: true}),
		"not the GPU":               scene(1, record.Clean, found(catalog.Trespass, holder(1002), nil)),
		"wrong bits":                scene(1, record.Clean, record.Finding{Code: catalog.Bits, GPU: "GPU-a"}),
		"orphan":                    drained,
		"stopped":                   scene(1, record.Flat, found(catalog.Orphan, holder(1001, record.Stopped), self)),
		"guess":                     scene(1, record.Flat, found(catalog.Residue, nil, guess)),
		"candidates": scene(1, record.Flat, found(catalog.Residue, nil, self, holder(1001), holder(1002), numbered(1),
			numbered(2), holder(1001, record.Stopped))),
		"workers":                 workers(catalog.Orphan, self, numbered(1), numbered(2), numbered(3), numbered(4), numbered(5)),
		"workers of two names":    workers(catalog.Orphan, self, numbered(1), called("loader", 2), numbered(3)),
		"workers of others":       workers(catalog.Foreign, theirs, holder(1002), &record.Holder{Process: record.Process{PID: 5, UID: 1003, Name: "x"}}),
		"phantom":                 scene(1, record.Flat, found(catalog.Phantom, dead, self, holder(1001))),
		"of an earlier run":       scene(1, record.Flat, found(catalog.Stray, holder(1001), self)),
		"stopped, another user's": scene(1, record.Flat, found(catalog.Foreign, holder(1002, record.Stopped), theirs)),
		"one of two jobs'":        scene(1, record.Flat, found(catalog.Orphan, holder(1001), nil)),
		"several GPUs":            two,
		"recorded":                scene(1, record.Clean, recorded(catalog.Foreign, holder(1002), record.Owner{Job: 77, UID: 1002})),
		"recorded, of no job":     scene(1, record.Clean, recorded(catalog.Stray, holder(1002), record.Owner{UID: 1002})),
		"recorded on others' GPU": scene(1, record.Clean, trespass, trespass),
	})
}

// foundAgain is a job that ended well on a GPU that an earlier one left dirty, with what was found both before and after.
func foundAgain(f record.Finding) Scene {
	s := scene(1, record.Clean, f)
	s.Before = &record.Side{Curves: map[gpu.ID]record.Curve{"GPU-a": {State: record.Flat}}}
	s.Why = why(record.ByCause, "Seen while your job ran: an earlier job left GPU memory in use")
	return s
}

// After a job without trouble there is one line, whatever was there before it; what failed has the whole answer.
func TestOneLine(t *testing.T) {
	s := foundAgain(found(catalog.Dirty, holder(1001), earlier))
	for _, n := range []int{1, 7} {
		if got := strings.Count(End(s), "\n"); (got == 1) != (n == 1) {
			t.Errorf("%d lines:\n%s", got, End(s))
		}
		s.Why.Reason = record.ByFailure
	}
	stands := scene(1, record.Clean, record.Finding{Code: catalog.XidFatal, GPU: "GPU-a", Xid: 79, Earlier: true})
	check(t, End(stands), "\nbookend: n1 GPU 0 as your job found it: 139.8 of 139.8 GiB free")
	calm := scene(1, record.Clean)
	calm.Why = why(record.ByCause, "Seen while your job ran: another process held memory of your GPU")
	check(t, End(calm), "\nbookend: Seen while your job ran: another process held memory of your GPU (Used 138.9 GiB)")
	s = foundAgain(found(catalog.Orphan, holder(1001), self))
	if got := End(s); strings.Count(got, "\n") < 3 {
		t.Errorf("%s", got)
	}
}

// What a job whose output was not read used, and which causes are left, is the answer.
func TestUnread(t *testing.T) {
	s := scene(1, record.Clean)
	recording(use(0, 41, 1, 71))(&s)
	s.Why, s.Unread = why(record.ByFailure, "Your job failed (exit code 1); no sample of its GPUs shows why"), true
	check(t, End(s), `
bookend: Your job failed (exit code 1); no sample of its GPUs shows why
bookend:   Used 138.9 GiB
bookend:   Try: a smaller batch; more GPUs
bookend:   Seen: peak 41.0 of 139.8 GiB, one process; busy 71 %
bookend:   Ruled out: other users, limits
bookend:   Cannot tell: fragmentation
bookend:   For your admin: bookend show 42 (on n1)`)
}

var update = flag.Bool("update", false, "rewrite the files of testdata that say what is written")

// written holds the texts of scenes to those of a file.
func written(t *testing.T, file string, write func(Scene) string, scenes map[string]Scene) {
	t.Helper()
	golden.CaseNames(t, *update, file, maps.Keys(scenes))
	golden.Archive(t, *update, file, func(given string) string {
		name := strings.TrimSpace(given)
		s, known := scenes[name]
		must.Not(t, !known, "%s: no scene %q", file, name)
		return cmp.Or(write(s), "\n")
	})
}

// Findings of a GPU's condition blame no process, and say nothing that is an admin's.
func TestCondition(t *testing.T) {
	for _, tt := range []struct {
		f      record.Finding
		state  string
		seen   string
		advice string
	}{
		{fails(catalog.Gap, "139 GiB free, the largest block was 59 GiB, after 34 attempts", 0), "had fragmented memory", "139 GiB free, the largest block was 59 GiB", enough},
		{fails(catalog.Blocked, "cuMemCreate; process 4711", 0), "had a fault", "a test could not get any of its free memory", mayNot},
		{fails(catalog.Blocked, "compute mode PROHIBITED: no program can use the GPU; nvidia-smi -c 0 sets the default", 0), "had a fault", "compute mode PROHIBITED: no program can use the GPU", mayNot},
		{fails(catalog.NoAnswer, "GPU at 0000:3b:00.0: nvmlDeviceGetHandleByPciBusId_v2: Unknown Error (999)", 0), "had a fault", "it does not answer the driver", mayNot},
		{fails(catalog.Broken, "cuInit: (802); start nvidia-fabricmanager", 0), "had a fault", "a test of CUDA failed: cuInit: (802)", mayNot},
		{fails(catalog.Recovery, "the driver asks for a reset", 0), "had a fault", "the driver asks for a reset", mayNot},
		{fails(catalog.Throttle, "clocks are held down", 0), "was slow", "clocks are held down", enough},
		{fails(catalog.XidFatal, "PID 4711", 9999), "had a fault", "an error of an unknown kind (Xid 9999)", mayNot},
		{fails(catalog.Xid, "PID 4711", 0), "met an error", "the driver reported an error (Xid)", enough},
	} {
		s := scene(1, record.Clean, tt.f)
		check(t, Start(s), "\nbookend: WARNING: n1 GPU 0 "+tt.state+" before your job started: "+tt.seen+tt.advice)
		when := " after your job: "
		if tt.f.Code == catalog.Xid || tt.f.Code == catalog.XidFatal {
			when = " during your job: "
		}
		doubt := ""
		if tt.f.Xid != 0 {
			doubt = "\nbookend:   Whether a program or the GPU caused it cannot be told. If other nodes have it too, look at your program"
		}
		check(t, End(s), "\nbookend: WARNING: n1 GPU 0 "+tt.state+when+tt.seen+doubt+"\nbookend:   For your admin: bookend show 42 (on n1)")
	}
}

// An error in the job's time says whose it was, by its number; what another error explains is not blamed on the program,
// and the clean-up of a job that its owner ended is no news.
func TestWhoseError(t *testing.T) {
	failed, well := slurm.ExitStatus{Known: true, Raw: 256}, slurm.ExitStatus{Known: true}
	const yours, notYours = "most likely your own", "This was not your code. "
	for name, tt := range map[string]struct {
		xids   []int
		exit   slurm.ExitStatus
		want   []string // of the report
		absent []string
	}{
		"uncorrectable":             {[]int{48}, failed, []string{"n1 GPU 0 failed during your job: uncorrectable (double bit) memory error (Xid 48)\n", notYours + "Resubmit: sbatch --exclude=n1; your admins see it too"}, []string{yours}},
		"and the job ended well":    {[]int{79}, well, []string{"failed during", notYours + "Check your results"}, []string{"Resubmit"}},
		"and no one knows how":      {[]int{119}, slurm.ExitStatus{}, []string{notYours + "If your job failed: sbatch --exclude=n1"}, nil},
		"contained":                 {[]int{94}, failed, []string{"contained memory error", notYours + "Resubmit"}, nil},
		"a link, in doubt":          {[]int{74}, failed, []string{"had a fault during your job: NVLink error (Xid 74)", "No program causes this"}, []string{notYours, yours}},
		"repaired memory":           {[]int{63}, failed, []string{"No program causes this. Whether it ended your job cannot be told"}, []string{notYours, yours}},
		"a program's":               {[]int{31}, failed, []string{yours, "compute-sanitizer"}, []string{notYours, "exclude"}},
		"a hung kernel, or the GPU": {[]int{109}, failed, []string{"cannot be told"}, []string{notYours, yours, "failed during"}},
		"a number of no table":      {[]int{9999}, failed, []string{"an error of an unknown kind (Xid 9999)", "cannot be told"}, []string{notYours, yours}},
		"consequences":              {[]int{48, 13, 45}, failed, []string{notYours, "(Xid 13)", "may be a consequence"}, []string{yours, "Xid 45"}},
		"one advice for two":        {[]int{48, 64}, failed, []string{"(Xid 48)", "(Xid 64)"}, []string{notYours + "Resubmit: sbatch --exclude=n1; your admins see it too\nbookend:   This was"}},
		"ended, not cancelled":      {[]int{45}, failed, []string{"(Xid 45)"}, []string{yours, notYours}},
	} {
		var all []record.Finding
		for _, n := range tt.xids {
			e, _ := catalog.LookupXid(n)
			code := cmp.Or(e.Code, catalog.Xid)
			if n == 9999 {
				code = catalog.XidFatal
			}
			all = append(all, fails(code, "PID 4711", n))
		}
		s := scene(1, record.Clean, all...)
		s.Run.Job.Exit = tt.exit
		text := End(s)
		for _, part := range tt.want {
			must.Not(t, !strings.Contains(text, part), "%s: no %q in\n%s", name, part, text)
		}
		for _, part := range tt.absent {
			must.Not(t, strings.Contains(text, part), "%s: %q in\n%s", name, part, text)
		}
		must.Not(t, strings.Contains(Start(s), "your code") || strings.Contains(Start(s), yours), "%s: %s", name, Start(s))
	}
	s := scene(1, record.Clean, fails(catalog.XidFatal, "PID 4711", 48))
	s.Findings[0].Seen, s.Ended = 100*time.Second, 114*time.Second
	must.Not(t, !strings.Contains(End(s), "GPU 0 failed 14s before your job ended: "), "%s", End(s))
	s = scene(1, record.Clean, fails(catalog.Xid, "PID 4711", 45))
	s.Cancelled = true
	check(t, End(s), "\nbookend: n1 GPU 0 clean: 139.8 of 139.8 GiB free")
	s.Findings[0].Xid = 31
	must.Not(t, !strings.Contains(End(s), "(Xid 31)"), "a cancelled job's own error: %s", End(s))
	s.Recording = &record.Recording{GPUs: []record.GPURecording{{
		ID: s.Findings[0].GPU, Faults: []record.RecordedFault{{Code: 31, Jobs: []slurm.JobID{43}}},
	}}}
	must.Not(t, strings.Contains(End(s), yours), "it may be another job's on that GPU: %s", End(s))
	stranger := record.RecordedProcess{PID: 9, UID: 1002, Start: 200 * time.Second}
	for name, change := range map[string]func(s *Scene){
		"shared by intent": func(s *Scene) { s.Shared = true },
		"another job's, at its end": func(s *Scene) {
			s.Findings = append(s.Findings, found(catalog.Foreign, &record.Holder{Process: record.Process{PID: 9, UID: 1002}}, nil))
			s.Findings[1].GPU = s.Findings[0].GPU
		},
		"another's, meanwhile": func(s *Scene) {
			s.Recording = &record.Recording{GPUs: []record.GPURecording{{ID: s.Findings[0].GPU, Processes: []record.RecordedProcess{stranger}}}}
		},
	} {
		s = scene(1, record.Clean, fails(catalog.Xid, "PID 4711", 31))
		change(&s)
		must.Not(t, strings.Contains(End(s), yours) || !strings.Contains(End(s), "or of another on the same GPU"), "%s: %s", name, End(s))
	}
	s = scene(1, record.Clean, fails(catalog.Xid, "PID 4711", 94))
	s.Shared = true
	must.Not(t, strings.Contains(End(s), "not your code") || !strings.Contains(End(s), "Whether it ended your job"), "it may have hit another's program: %s", End(s))
	stranger.UID = s.Run.Job.UID
	s = scene(1, record.Clean, fails(catalog.Xid, "PID 4711", 31), found(catalog.Phantom, &record.Holder{Process: record.Process{PID: 9, Gone: true}}, self))
	must.Not(t, !strings.Contains(End(s), yours), "what the job itself left: %s", End(s))
	s = scene(1, record.Clean, fails(catalog.Xid, "PID 4711", 31))
	s.Recording = &record.Recording{GPUs: []record.GPURecording{{ID: s.Findings[0].GPU, Processes: []record.RecordedProcess{stranger}}}}
	must.Not(t, !strings.Contains(End(s), yours), "its own, on a node without cgroups: %s", End(s))
}

// A job id comes around: another user's earlier job of the same id is not an earlier run of this job.
func TestSameID(t *testing.T) {
	for uid, want := range map[uint32]string{1001: "probably left by an earlier run of this job", 1002: "probably left by another user's job"} {
		s := scene(1, record.Flat, found(catalog.Dirty, &record.Holder{Process: record.Process{PID: 9, UID: uid}}, &record.Owner{Job: 42, UID: uid, Level: record.ByExclusive}))
		must.Not(t, !strings.Contains(Start(s), want), "want %q in\n%s", want, Start(s))
	}
}

// A GPU whose due test is missing is not called clean, and a failed job reads that its GPUs were in order.
func TestUntestedAndInOrder(t *testing.T) {
	s := scene(1, record.Clean)
	s.Untested = "not tested (no time left)"
	check(t, Start(s), "\nbookend: n1 GPU 0 empty, not tested (no time left) at the start: 139.8 of 139.8 GiB free")
	check(t, End(s), "\nbookend: n1 GPU 0 empty, not tested (no time left): 139.8 of 139.8 GiB free")
	s.Why = &record.Diagnosis{Reason: record.ByFailure, Headline: "Your job failed (exit code 1); no message about memory in its output",
		InOrder: record.Cause{Answer: record.Yes, Evidence: "The GPUs were in order from start to end"}}
	const failed = "\nbookend: Your job failed (exit code 1); no message about memory in its output"
	const details = "\nbookend:   For your admin: bookend show 42 (on n1)"
	check(t, End(s), failed+"\nbookend:   The GPUs were in order from start to end"+details)
	s.Why.InOrder.Answer = record.CannotTell
	check(t, End(s), failed+details)
}

// How much is told is the site's choice; what is wrong is told unless nothing is.
func TestShow(t *testing.T) {
	clean, dirty := scene(1, record.Clean), scene(1, record.Flat, found(catalog.Dirty, nil, nil))
	for show, want := range map[config.Show][4]bool{ // start and end, clean, then with a problem
		config.ShowNone: {}, config.ShowProblems: {false, false, true, true}, config.ShowSummary: {false, true, true, true},
		config.ShowAll: {true, true, true, true}, "": {false, true, true, true},
	} {
		clean.Show, dirty.Show = show, show
		got := [4]bool{len(Start(clean)) > 0, len(End(clean)) > 0, len(Start(dirty)) > 0, len(End(dirty)) > 0}
		if got != want {
			t.Errorf("%s: %v, want %v", show, got, want)
		}
	}
}

// Whoever had a process ended by clean-up reads of it, though it is but a note.
func TestEnded(t *testing.T) {
	ended := func(uid uint32, how record.Outcome) record.Finding {
		f := found(catalog.Ended, holder(uid), self)
		f.Ended = how
		return f
	}
	const one = "\nbookend: WARNING: process 4711 (python) of your job was still on GPU 0 and was ended (SIGTERM)"
	const clean = "\nbookend: n1 GPU 0 clean: 139.8 of 139.8 GiB free"
	const fix = "\nbookend:   Fix: stop background work before the script ends (wait, or trap 'trap \"\" TERM; kill 0' EXIT)"
	byTerm, second := ended(1001, record.ByTerm), ended(1001, record.ByTerm)
	second.Holder = numbered(7)
	for name, tt := range map[string]struct {
		action config.Action
		found  []record.Finding
		want   string
	}{
		"ended":       {config.Note, []record.Finding{byTerm}, one + clean + fix},
		"ignored":     {config.Ignore, []record.Finding{byTerm}, clean},
		"gone before": {config.Note, []record.Finding{ended(1001, record.AlreadyGone)}, clean},
		"another's":   {config.Note, []record.Finding{ended(1002, record.ByTerm)}, clean},
		"two": {config.Note, []record.Finding{byTerm, second}, strings.Replace(one, "process 4711 (python) of your job was still on GPU 0 and was",
			"2 processes (python: 4711, 7) of your job were still on GPU 0 and were", 1) + clean + fix},
		"an old record": {config.Note, []record.Finding{ended(1001, "")}, clean},
	} {
		t.Run(name, func(t *testing.T) {
			s := scene(1, record.Clean, tt.found...)
			for i := range s.Verdict.Judged {
				s.Verdict.Judged[i].Action = tt.action
			}
			check(t, End(s), tt.want)
		})
	}
}

// In a container another user's process may have the reader's UID: whose it is says the job that it is of.
func TestContainersOfOthers(t *testing.T) {
	boxed := func(owner *record.Owner) *record.Holder {
		h := holder(1001)
		h.OtherPIDs, h.Owner = true, owner
		return h
	}
	for name, tt := range map[string]struct {
		f    record.Finding
		want string
	}{
		"another user's job":     {found(catalog.Foreign, holder(1001), theirs), "a process that is not yours"},
		"no job that is known":   {found(catalog.Stray, boxed(nil), nil), "a process that is not known to be yours"},
		"the job's own":          {found(catalog.Orphan, boxed(nil), guess), "Process 4711 (python)"},
		"a job without a record": {found(catalog.Foreign, holder(1001), &record.Owner{Job: 77}), "process 4711 (python)"},
		"candidates":             {found(catalog.Residue, nil, nil, boxed(theirs), boxed(nil)), "held by a process that is not yours"},
	} {
		got := End(scene(1, record.Flat, tt.f))
		if !strings.Contains(got, tt.want) || strings.Contains(got, "python") != strings.Contains(tt.want, "python") {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// What ends a process follows from what it is; of a container that may be another's no report has the name or id.
func TestWhatEndsAHolder(t *testing.T) {
	of := func(change func(*record.Holder)) *record.Holder {
		h := holder(1001)
		change(h)
		return h
	}
	docker := of(func(h *record.Holder) { h.Container = "docker:0123456789ab" })
	daemons := of(func(h *record.Holder) { h.Container, h.UID, h.Name = docker.Container, 0, "secret" })
	const started = "Held by a container started during your job\n"
	const perhaps = "Fix: if you started the container, docker stop NAME; in"
	for name, tt := range map[string]struct {
		f      record.Finding
		nodes  string
		want   []string
		absent string
	}{
		"a program": {found(catalog.Orphan, holder(1001), self), "", []string{"still running\n", "Fix: stop background work"}, ""},
		"Docker": {found(catalog.Orphan, docker, self), "", []string{"(in a Docker container)\n",
			`Fix: docker stop 0123456789ab; in your script: trap "docker stop NAME" EXIT`}, "background"},
		"Podman":                     {found(catalog.Orphan, of(func(h *record.Holder) { h.Container = "podman:ab" }), self), "", []string{"Fix: podman stop ab; in"}, "background"},
		"another tool":               {found(catalog.Orphan, of(func(h *record.Holder) { h.OtherPIDs = true }), self), "", []string{"(in a container)\n", "with the tool that started it"}, "ID"},
		"MPS":                        {found(catalog.Orphan, holder(1001, record.MPS), self), "", []string{"(of CUDA MPS)", "Fix: echo quit | nvidia-cuda-mps-control"}, ""},
		"Ray":                        {found(catalog.Orphan, called("ray::Train.step", 7), self), "", []string{"Process 7 (ray::Train.step) is still running (of Ray)", "Fix: ray stop"}, ""},
		"a notebook":                 {found(catalog.Orphan, of(func(h *record.Holder) { h.Notebook = true }), self), "", []string{"Fix: shut down the notebook's kernel"}, ""},
		"ssh":                        {found(catalog.Orphan, of(func(h *record.Holder) { h.Cgroup.Step = "extern" }), self), "", []string{"Fix: end what you start over ssh"}, ""},
		"a rank":                     {found(catalog.Orphan, holder(1001), self), "n[0-1]", []string{"Fix: start ranks with srun", "torchrun on n0 do"}, ""},
		"on the first":               {found(catalog.Orphan, holder(1001), self), "n[1-2]", []string{"Fix: stop background work"}, ""},
		"a daemon's container":       {found(catalog.Stray, daemons, nil), "", []string{started, perhaps, "For your admin: "}, "0123"},
		"a daemon's, known as such":  {found(catalog.Foreign, daemons, theirs), "", []string{"a process that is not yours, of another"}, "docker"},
		"a daemon's, begun before":   {found(catalog.Stray, of(func(h *record.Holder) { *h = *daemons; h.Start = 1 }), nil), "", []string{"a process that is not yours"}, "docker"},
		"the user's own id, perhaps": {found(catalog.Stray, docker, nil), "", []string{started, perhaps}, "0123"},
	} {
		s := scene(1, record.Flat, tt.f)
		s.Run.Job.NodeList, s.Run.Start = tt.nodes, &record.End{At: 300 * time.Second}
		text := End(s)
		for _, part := range tt.want {
			must.Not(t, !strings.Contains(text, part), "%s: no %q in\n%s", name, part, text)
		}
		must.Not(t, tt.absent != "" && strings.Contains(text, tt.absent) || strings.Contains(text, "secret"), "%s:\n%s", name, text)
		told(t, text, true)
	}
}

// Nothing of another user's job or process reaches a reader, whatever the finding.
func TestPrivacy(t *testing.T) {
	h := holder(1002)
	h.Name = "secret-project"
	for _, entry := range catalog.All() {
		s := scene(1, record.Flat, found(entry.Code, h, &record.Owner{Job: 98765, UID: 1002, Level: record.ByCgroup}, h))
		for _, secret := range []string{"secret", "98765", "4711"} {
			if got := Start(s) + End(s); strings.Contains(got, secret) {
				t.Errorf("%s: %q names %q", entry.Code, got, secret)
			}
		}
	}
}

// Names from outside stay on their line, and what to do is never cut off.
func TestBounds(t *testing.T) {
	h := holder(1001)
	h.Name = "\nexport PATH=/x\n" + strings.Repeat("w", 500)
	var many []record.Finding
	for i := range 40 {
		h.PID, h.Name = i+1, h.Name+"w"
		one := *h
		one.Name = fmt.Sprint("\nexport ", i) + h.Name
		many = append(many, found(catalog.Orphan, &one, nil))
	}
	got := End(scene(1, record.Flat, many...))
	told(t, got, true)
	if lines := strings.SplitAfter(got, "\n"); len(lines) != MaxLines+1 || !strings.Contains(lines[MaxLines-1], "For your admin:") {
		t.Errorf("%d lines: %s", len(lines)-1, got)
	}
}

// why is a diagnosis as package diagnosis makes it, of a job that used up its GPU.
func why(reason record.Reason, headline string) *record.Diagnosis {
	zero := 0
	return &record.Diagnosis{Reason: reason, Headline: headline,
		Try: []string{"a smaller batch", "more GPUs"},
		Causes: []record.Cause{
			{Name: record.CauseOthers, Answer: record.No, Evidence: "none"},
			{Name: record.CauseUnlisted, Answer: record.Yes, With: record.CauseOwn, Evidence: "the same"},
			{Name: record.CausePool, Answer: record.CannotTell, Evidence: "no figures"},
			{Name: record.CauseOwn, Answer: record.Yes, Evidence: "used 138.9 GiB", Index: &zero},
			{Name: record.CauseLimits, Answer: record.No, Evidence: "the GPU's memory"},
		}}
}

func TestWhy(t *testing.T) {
	const (
		evidence = "\nbookend:   Used 138.9 GiB"
		try      = "\nbookend:   Try: a smaller batch; more GPUs"
		answers  = "\nbookend:   Ruled out: other users, limits\nbookend:   Cannot tell: fragmentation"
		details  = "\nbookend:   For your admin: bookend show 42 (on n1)"
	)
	long := "mpirun: " + strings.Repeat("x", 80)
	for _, tt := range []struct {
		reason         record.Reason
		headline, want string
	}{
		{record.ByMessage, "Why out of memory: the job", "\nbookend: OUT OF MEMORY on n1 GPU 0: the job" + evidence + try + answers + details},
		{record.ByMessage, "Why out of memory (rank 3 first): the job", "\nbookend: OUT OF MEMORY on n1 GPU 0 (rank 3 first): the job" + evidence + try + answers + details},
		{record.ByMessage, "Why out of memory: the ranks", "\nbookend: OUT OF MEMORY on n1, your program's GPU 0: the ranks" + evidence +
			"\nbookend:   Try: srun: srun --gpus-per-task=1 PROGRAM\nbookend:        " + long + answers + details},
		{record.ByMessage, "Why CUDA did not start: a limit", "\nbookend: CUDA DID NOT START on n1 GPU 0: a limit" + evidence + try + answers + details},
		{record.ByMessage, "It ran out of memory, but ended without an error: x", "\nbookend: OUT OF MEMORY on n1 GPU 0, but your job ended without an error: x" + evidence + try + answers + details},
		{record.ByFailure, "Your job failed (exit code 1)", "\nbookend: Your job failed (exit code 1)" + evidence + try + details},
		{"", "", "\nbookend: n1 GPU 0 clean: 139.8 of 139.8 GiB free"},
	} {
		s := scene(1, record.Clean)
		if s.Why = why(tt.reason, tt.headline); strings.Contains(tt.headline, "ranks") {
			s.Cards = append(s.Cards, record.Assigned{Index: 1})
			s.Why.Where, s.Why.Try = ", your program's GPU 0", []string{"srun: srun --gpus-per-task=1 PROGRAM", long}
			s.Why.Causes[3].Index = nil
		}
		check(t, End(s), tt.want)
		if s.Clean() != !strings.Contains(tt.want, "For your admin") {
			t.Errorf("%s: clean %v", tt.headline, s.Clean())
		}
	}
}

// Of several GPUs each line names its own; nothing from outside leaves its line.
func TestWhyIsClean(t *testing.T) {
	s, index := scene(2, record.Clean), 1
	s.Why = why(record.ByMessage, "Why\nexport PATH=/x")
	s.Why.Causes[3].Index, s.Why.Causes[3].Evidence, s.Why.Try = &index, "a\nb "+strings.Repeat("w", 500), []string{"\x1b[2J"}
	got := End(s)
	told(t, got, true)
	if !strings.Contains(got, `:   GPU 1: A\x0ab w`) {
		t.Errorf("%s", got)
	}
}

// What users are told to write ends background work at their script's end, and keeps the script's exit status.
func TestTrap(t *testing.T) {
	for _, shell := range []string{"bash", "dash"} {
		path, err := exec.LookPath(shell)
		if err != nil {
			t.Logf("no %s here", shell)
			continue
		}
		// A signal between fork and exec of a background process would be lost: it is waited for.
		script := Trap + "\nsleep 600 &\nuntil grep -q sleep /proc/$!/comm; do :; done\necho $!\nexit 3\n"
		cmd := exec.Command(path)
		cmd.Stdin, cmd.SysProcAttr, cmd.WaitDelay = strings.NewReader(script), &syscall.SysProcAttr{Setsid: true}, time.Minute
		var exit *exec.ExitError
		out, err := cmd.Output() // until the background process, which has its stdout, has ended
		if !errors.As(err, &exit) || exit.ExitCode() != 3 || len(out) == 0 {
			t.Errorf("%s: %v, %q; want exit status 3 and an ended process", shell, err, out)
		}
	}
}

// A start that finds the node short of memory says so, also on clean GPUs.
func TestHostMemory(t *testing.T) {
	short := record.Finding{Code: catalog.HostMemory, Observed: "9.0 GiB of the node's 99.0 GiB of memory were taken"}
	const lines = "bookend: WARNING: n1: 9.0 GiB of the node's 99.0 GiB of memory were taken\n" +
		"bookend:   Too little is left? sbatch --exclude=n1\n"
	s := scene(1, record.Clean, short)
	must.Not(t, !strings.HasSuffix(Start(s), "\n"+lines), "clean GPUs: %s", Start(s))
	s.Show = config.ShowProblems
	must.Be(t, "nothing else", Start(s), lines)
	must.Not(t, s.Clean(), "it is clean")
	s.Show = config.ShowNone
	must.Be(t, "no report is wanted", Start(s), "")
	s.Show, s.Verdict.Judged[0].Action = config.ShowProblems, config.Note
	must.Be(t, "noted", Start(s), "")
	dirty := Start(scene(1, record.Flat, found(catalog.Residue, nil, nil), short))
	must.Not(t, !strings.Contains(dirty, lines) || strings.Count(dirty, "WARNING") != 2, "%s", dirty)
}

// Lines about the node's memory follow those about the GPUs, whatever these say, unless policy only notes the finding.
func TestSharedMemory(t *testing.T) {
	left := record.Finding{Code: catalog.SharedMemory, Bytes: gpu.Bytes(41 << 30),
		Observed: "this job left 12 files vllm_* in /dev/shm; remove: find /dev/shm '(' -inum 4 ')' -delete"}
	const lines = "bookend: WARNING: n1: this job left 12 files vllm_* in /dev/shm (41.0 GiB of the node's memory)\n" +
		"bookend:   Remove there: find /dev/shm '(' -inum 4 ')' -delete\n"
	s := scene(1, record.Clean, left)
	must.Be(t, "clean GPUs", End(s), "bookend: n1 GPU 0 clean: 139.8 of 139.8 GiB free\n"+lines)
	s.Show = config.ShowProblems
	must.Not(t, s.Clean() || !strings.HasSuffix(End(s), lines), "%s", End(s))
	dirty := End(scene(1, record.Flat, found(catalog.Residue, nil, nil), left))
	must.Not(t, !strings.Contains(dirty, lines) || strings.Count(dirty, "WARNING") != 2, "%s", dirty)
	running := record.Finding{Code: catalog.Survivor, Observed: "this job left process 7 (tmux) running; end: kill 7"}
	must.Be(t, "a process", End(scene(1, record.Clean, running)), "bookend: n1 GPU 0 clean: 139.8 of 139.8 GiB free\n"+
		"bookend: WARNING: n1: this job left process 7 (tmux) running\nbookend:   End there: kill 7\n")
	s.Verdict.Judged[0].Action = config.Note
	must.Not(t, !s.Clean() || End(s) != "", "noted alone: %s", End(s))
}
