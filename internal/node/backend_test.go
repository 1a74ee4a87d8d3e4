package node

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/child"
	"bookend/internal/gpu"
	"bookend/internal/protocol"
	"bookend/internal/state"
	"bookend/test/must"
)

// What the fake backends, shell scripts, say.
const (
	hello  = `echo '{"bookend":1,"kind":"hello","hello":{"backend":"fake","version":"1"}}'` + "\n"
	looked = `echo '{"bookend":1,"kind":"snapshot","snapshot":{"at":5,"readings":[{"device":{"id":"a"},` +
		`"memory":{"used":{"bytes":7}},"processes":[]}]}}'` + "\n"
	fault = `echo '{"bookend":1,"kind":"fault","fault":{"code":"driver_error","detail":"oops"}}'` + "\n"
	done  = `echo '{"bookend":1,"kind":"done"}'` + "\n"
)

// fake writes a backend that reads its request and then does what the script says.
func fake(t *testing.T, dir, script string) Params {
	t.Helper()
	path := filepath.Join(dir, "bookend-gpu")
	must.Do(t, os.WriteFile(path, []byte("#!/bin/sh\nread -r request\n"+script), 0o755))
	return Params{Path: path}
}

func sample(limit time.Duration) protocol.Request {
	return protocol.Request{Op: protocol.Snapshot, All: true, DeadlineMillis: limit.Milliseconds()}
}

const (
	plenty = 5 * time.Minute        // for backends that end by themselves
	little = 300 * time.Millisecond // at first, for those that have to be killed
)

func TestAsk(t *testing.T) {
	tests := map[string]struct {
		script   string
		limit    time.Duration
		looks    int
		complete bool
		code     catalog.Code
		detail   string
	}{
		"complete":               {hello + looked + looked + done, plenty, 2, true, "", ""},
		"the neutral core alone": {looked + done, plenty, 1, true, "", ""},
		"slow":                   {hello + "/bin/sleep 0.1\n" + looked + "/bin/sleep 0.1\n" + done, plenty, 1, true, "", ""},
		"in pieces": {"printf '{\"bookend\":1,'\n/bin/sleep 0.1\nprintf '\"kind\":\"done\"}\\n'", plenty,
			0, true, "", ""},

		"crashes": {looked + "echo panic: boom >&2\nkill -SEGV $$", plenty, 1, false, catalog.BackendCrash,
			"segmentation fault: panic: boom"},
		"crashes after done": {looked + done + "kill -ABRT $$", plenty, 1, true, catalog.BackendCrash, "aborted"},
		"fails":              {"echo out of luck >&2\nexit 1", plenty, 0, false, catalog.BackendCrash, "exit code 1: out of luck"},
		"fails with 127":     {"exit 127", plenty, 0, false, catalog.BackendCrash, "exit code 127"},
		"lacks a function": {looked +
			"echo 'bookend-gpu: symbol lookup error: bookend-gpu: undefined symbol: nvmlX' >&2\nexit 127", plenty, 1,
			false, catalog.Old, "undefined symbol: nvmlX"},
		"its own alarm":     {looked + "kill -ALRM $$", plenty, 1, false, catalog.Hang, "its own alarm"},
		"hangs":             {looked + "exec /bin/sleep 600", little, 1, false, catalog.Hang, "killed after "},
		"waits for the end": {looked + "/bin/cat >/dev/null\n" + done, little, 1, false, catalog.Hang, "killed"},
		"talks, then garbage": {looked + "echo NVRM: oops\n" + done, plenty, 0, false, catalog.BackendGarbage,
			"line 2: garbage"},
		"an impossible pid": {`echo '{"bookend":1,"kind":"snapshot","snapshot":{"at":5,"readings":[{"device":{"id":"a"},"processes":[{"pid":-1}]}]}}'` + "\n" + done,
			plenty, 0, false, catalog.BackendGarbage, "process -1"},
		"another version": {`echo '{"bookend":2,"kind":"hello"}'` + "\nexit 1", plenty, 0, false,
			catalog.BackendVersion, "version 2, not 1"},
		"stops short":         {hello + looked, plenty, 0, false, catalog.BackendGarbage, "cut off"},
		"stops within a line": {hello + looked + "printf '{\"bookend'", plenty, 0, false, catalog.BackendGarbage, "cut off"},
		"says nothing":        {"", plenty, 0, false, catalog.BackendGarbage, "cut off"},
		"floods":              {looked + "exec /usr/bin/yes", plenty, 0, false, catalog.BackendFlood, "more than"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := fake(t, t.TempDir(), tt.script)
			var got Answer
			must.Slower(t, tt.limit, func(limit time.Duration) bool {
				got = Ask(p, sample(limit))
				return tt.limit == plenty || len(got.Snapshots) == tt.looks
			})
			if tt.limit == plenty { // what is killed at a moment may have said more or less by then
				early(t, p, got)
			}
			if len(got.Snapshots) != tt.looks || got.Complete != tt.complete {
				t.Errorf("got %d looks, complete %v; want %d, %v", len(got.Snapshots), got.Complete, tt.looks,
					tt.complete)
			}
			expectTrouble(t, got, tt.code, tt.detail)
		})
	}
}

// early asks for the answer as soon as it is whole: it is told where there is one, and what comes of it is the same.
func early(t *testing.T, p Params, want Answer) {
	t.Helper()
	var said Answer
	p.OnAnswer = func(a Answer) { said = a }
	got := Ask(p, sample(plenty))
	for i := range min(len(got.Troubles), len(want.Troubles)) { // it may have taken longer
		got.Troubles[i].Detail = want.Troubles[i].Detail
	}
	if got.Took = want.Took; !reflect.DeepEqual(got, want) {
		t.Errorf("with an early word: %+v\nwithout: %+v", got, want)
	}
	if said.Complete != want.Complete || said.Complete && !reflect.DeepEqual(said.Snapshots, want.Snapshots) {
		t.Errorf("said %+v", said)
	}
}

// expectTrouble wants exactly this one, or none.
func expectTrouble(t *testing.T, got Answer, want catalog.Code, detail string) {
	t.Helper()
	if want == "" {
		if len(got.Troubles) != 0 {
			t.Errorf("got troubles %v", got.Troubles)
		}
		return
	}
	if len(got.Troubles) != 1 || got.Troubles[0].Code != want || !strings.Contains(got.Troubles[0].Detail, detail) {
		t.Errorf("got troubles %+v, want %s with %q", got.Troubles, want, detail)
	}
}

func TestAnswerCarriesEverything(t *testing.T) {
	got := Ask(fake(t, t.TempDir(), hello+fault+looked+done), sample(plenty))
	used, faults := got.latest().Readings[0].Memory.Used, []gpu.Fault{{Code: gpu.FaultDriver, Detail: "oops"}}
	if got.Hello == nil || got.Hello.Backend != "fake" || !slices.Equal(got.Faults, faults) || used != gpu.Bytes(7) || got.Took <= 0 {
		t.Errorf("got %+v", got)
	}
}

func TestBackendGetsItsRequestAndNothingElse(t *testing.T) {
	t.Setenv("LD_BIND_NOW", "1")
	req := sample(plenty)
	req.Options = protocol.Options{"nvml_library": "/lib/some.so"}
	script := `case "$request" in *'"op":"snapshot"'*'"nvml_library":"/lib/some.so"'*) ;; *) exit 5;; esac` + "\n" +
		`[ "$(/bin/cat /proc/$$/environ | /usr/bin/tr '\0' ' ')" = 'GOMAXPROCS=4 BOOKEND_NVML=/lib/some.so ' ] || exit 6` + "\n" + done
	expectTrouble(t, Ask(fake(t, t.TempDir(), script), req), "", "")
}

func TestBackendThatCannotStart(t *testing.T) {
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	must.Do(t, os.WriteFile(data, []byte("#!/bin/sh\n"), 0o644))
	for _, path := range []string{filepath.Join(dir, "absent"), data, dir, "relative"} {
		expectTrouble(t, Ask(Params{Path: path}, sample(plenty)), catalog.BackendMissing, path)
	}
	expectTrouble(t, Ask(fake(t, dir, done), sample(0)), catalog.Slow, "no time left")
}

func TestRootRunsOnlyWhatIsRoots(t *testing.T) {
	roots, others := must.RootsDir(t), t.TempDir()
	ask := func(p Params, o protocol.Options) Answer {
		p.Root = true
		req := sample(plenty)
		req.Options = o
		return Ask(p, req)
	}
	library := filepath.Join(others, "libnvidia-ml.so.1")
	must.Do(t, os.WriteFile(library, nil, 0o644))
	good := fake(t, roots, done)
	expectTrouble(t, ask(good, protocol.Options{}), "", "")
	expectTrouble(t, ask(good, protocol.Options{"nvml_library": filepath.Join(roots, "absent.so")}), "", "")
	expectTrouble(t, ask(good, protocol.Options{"nvml_library": library}), catalog.BackendRefused, others[:4])
	expectTrouble(t, ask(good, protocol.Options{"nvml_library": "libnvidia-ml.so.1"}), catalog.BackendRefused,
		"not an absolute path")
	expectTrouble(t, ask(fake(t, others, done), protocol.Options{}), catalog.BackendRefused, others[:4])
	expectTrouble(t, ask(Params{Path: filepath.Join(roots, "absent")}, protocol.Options{}), catalog.BackendMissing, "absent")
	must.Do(t, os.Chown(good.Path, 65534, 65534))
	expectTrouble(t, ask(good, protocol.Options{}), catalog.BackendRefused, good.Path)
}

// A process that cannot be killed takes a broken driver, so only its result is played.
func TestAbandonedBackendIsNamed(t *testing.T) {
	got := answerOf(child.Result{Outcome: child.Abandoned, PID: 41, StartTicks: 77, Signal: syscall.SIGKILL},
		sample(little))
	if got.Abandoned == nil || got.Abandoned.PID != 41 || got.Abandoned.StartTicks != 77 {
		t.Errorf("got %+v", got.Abandoned)
	}
	expectTrouble(t, got, catalog.Hang, "process 41")
}

// A test of the driver that said everything and went away late, with the driver's leave, did not hang.
func TestProbeThatGoesLate(t *testing.T) {
	said := `{"bookend":1,"kind":"probe","probe":{"device":"a","result":"skipped","why":"slow"}}` + "\n"
	const end = `{"bookend":1,"kind":"done"}` + "\n"
	for name, tt := range map[string]struct {
		op   protocol.Op
		res  child.Result
		code catalog.Code
	}{
		"killed": {protocol.Probe, child.Result{Outcome: child.Hung, Stdout: []byte(said + end)}, ""},
		"by its alarm": {protocol.Probe,
			child.Result{Outcome: child.Crashed, Signal: syscall.SIGALRM, Stdout: []byte(said + end)}, ""},
		"not to be killed": {protocol.Probe, child.Result{Outcome: child.Abandoned, Stdout: []byte(said + end)}, catalog.Hang},
		"half way":         {protocol.Probe, child.Result{Outcome: child.Hung, Stdout: []byte(said)}, catalog.Hang},
		"crashed": {protocol.Probe, child.Result{Outcome: child.Crashed, Signal: syscall.SIGSEGV,
			Stdout: []byte(said + end)}, catalog.BackendCrash},
		"another operation": {protocol.Snapshot, child.Result{Outcome: child.Hung, Stdout: []byte(end)}, catalog.Hang},
	} {
		t.Run(name, func(t *testing.T) {
			req := sample(little)
			req.Op = tt.op
			got := answerOf(tt.res, req)
			if expectTrouble(t, got, tt.code, ""); tt.op == protocol.Probe && len(got.Probes) != 1 {
				t.Errorf("got %+v", got.Probes)
			}
		})
	}
}

func TestCheckSaysWhatWouldKeepItFromStarting(t *testing.T) {
	roots := must.RootsDir(t)
	good := fake(t, roots, done)
	check := func(p Params, want catalog.Code, says string) {
		t.Helper()
		got := CheckBackend(p.Path, protocol.Options{})
		if got == nil {
			got = &Trouble{}
		}
		if got.Code != want || !strings.Contains(got.Detail, says) {
			t.Errorf("CheckBackend(%q) = %v, want %s %q", p.Path, got, want, says)
		}
	}
	check(good, "", "")
	check(Params{Path: filepath.Join(roots, "absent")}, catalog.BackendMissing, "absent")
	check(Params{Path: roots}, catalog.BackendMissing, "not an executable file")
	plain := fake(t, roots, done)
	must.Do(t, os.Chmod(plain.Path, 0o644))
	check(plain, catalog.BackendMissing, "not an executable file")
	must.Do(t, os.Chown(plain.Path, 65534, 65534))
	check(plain, catalog.BackendRefused, "owner is 65534")
}

// A backend that is not even under way when the time is up is there, and the driver was not asked: nobody knows.
func TestNoTimeToStart(t *testing.T) {
	p := fake(t, t.TempDir(), "exec sleep 60\n")
	for range 50 {
		a := Ask(p, sample(time.Millisecond))
		if len(a.Troubles) != 1 {
			t.Fatalf("%+v", a.Troubles)
		}
		unknown := a.Troubles[0].Code == catalog.Slow && a.Troubles[0].Unsure
		if hung := a.Troubles[0].Code == catalog.Hang &&
			strings.HasPrefix(a.Troubles[0].Detail, "killed after"); !unknown && !hung {
			t.Fatalf("%+v", a.Troubles)
		}
	}
}

// Answers of two backends are one: the looks side by side, of one that had seen enough the last.
func TestJoined(t *testing.T) {
	look := func(at time.Duration, id gpu.ID) gpu.Snapshot {
		return gpu.Snapshot{At: at, Readings: []gpu.Reading{{Device: gpu.Device{ID: id}}}}
	}
	a := Answer{Complete: true, Snapshots: []gpu.Snapshot{look(1, "a")}, Took: 1}
	b := Answer{Complete: true, Snapshots: []gpu.Snapshot{look(2, "b"), look(5, "b")}, Took: 2,
		Faults: []gpu.Fault{{Code: gpu.FaultDriver}}, Abandoned: &state.Stuck{PID: 7}}
	got := joined(a, b)
	if len(got.Snapshots) != 2 || got.Snapshots[0].At != 2 || got.Snapshots[1].At != 5 || !got.Complete || got.Took != 3 ||
		len(got.Faults) != 1 || got.Abandoned.PID != 7 {
		t.Errorf("%+v", got)
	}
	for _, s := range got.Snapshots {
		if _, has := s.Reading("a"); !has || len(s.Readings) != 2 {
			t.Errorf("%+v", s)
		}
	}
	cut := a
	cut.Complete = false // it crashed or hung: nothing is known of its GPU after that
	_, has := joined(cut, b).latest().Reading("a")
	must.Be(t, "read after its backend's end", has, false)
	if got := joined(a, Answer{}); got.Complete || len(got.Snapshots) != 1 || len(got.Snapshots[0].Readings) != 1 {
		t.Errorf("of one that said nothing: %+v", got)
	}
}
