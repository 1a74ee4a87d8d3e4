package view

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"bookend/internal/answer"
	"bookend/internal/attrib"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/policy"
	"bookend/internal/probe"
	"bookend/internal/settle"
	"bookend/internal/slurm"
)

// filler gives every text of a value a mark of its own, every number a value of its own, and every list one entry.
type filler struct{ n int }

func (f *filler) fill(v reflect.Value) {
	f.n++
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprintf("mk%dx", f.n))
	case reflect.Int, reflect.Int64, reflect.Int32:
		v.SetInt(int64(7_000_000 + f.n))
	case reflect.Uint32:
		v.SetUint(uint64(7_000_000 + f.n))
	case reflect.Uint64:
		v.SetUint(uint64(7_000_000+f.n) << 20) // whole MiB
	case reflect.Bool:
		v.SetBool(false)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		f.fill(v.Index(0))
	case reflect.Struct:
		f.fields(v)
	}
}

func (f *filler) fields(v reflect.Value) {
	switch v.Type() {
	case reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Date(2026, 11, 21, 0, 0, f.n, 0, time.UTC)))
		return
	case reflect.TypeFor[gpu.Figure]():
		f.fill(v.Field(0)) // known
		return
	}
	for i := range v.NumField() {
		if v.Field(i).CanSet() {
			f.fill(v.Field(i))
		}
	}
}

// filled is a run with something in every field, so that each part of the text is written.
func filled(change func(*ledger.End)) ledger.Run {
	var r ledger.Run
	new(filler).fill(reflect.ValueOf(&r).Elem())
	r.Job.Exit.Raw = 256
	id := r.Devices[0].Device.ID
	for _, e := range []*ledger.End{r.Start, &r.Ends[0]} {
		e.Unseen = ""
		e.Snapshot.Readings[0].Device.ID, e.Snapshot.Readings[0].ProcessesUnknown = id, ""
		e.Probes[0].Device, e.Health[0].Device = id, id
		e.Curves = map[gpu.ID]settle.Curve{id: {State: settle.Flat, Looks: 3, Span: 4 * time.Second}}
		e.Findings[0].GPU = id
		for _, p := range []*attrib.Process{&e.Findings[0].Holder.Process, &e.Findings[0].Candidates[0].Process} {
			p.Why = ""
		}
		e.Verdict.Judged = []policy.Judged{{Action: "warn", Why: "mkjudgedx"}}
		change(e)
	}
	return r
}

// marks are what a text says of a value that was filled, or that stands out in it by itself.
var marks = regexp.MustCompile(`mk[0-9a-z]+?x|\b70\d{5}\b`)

// numbers are words of a document, sizes in MiB as people read them.
func inMiB(document string) string {
	return regexp.MustCompile(`\b\d{10,}\b`).ReplaceAllStringFunc(document, func(n string) string {
		var bytes uint64
		fmt.Sscan(n, &bytes)
		return fmt.Sprint(bytes >> 20)
	})
}

// told compares a text with the document of the same. Parts of names and of lines that Bookend makes of what is in both are
// no less in the document.
func told(t *testing.T, what, text string, document any) {
	t.Helper()
	data, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	has := inMiB(string(data))
	found := marks.FindAllString(text, -1)
	for _, m := range slices.Compact(slices.Sorted(slices.Values(found))) {
		if !strings.Contains(has, m) {
			for line := range strings.Lines(text) {
				if strings.Contains(line, m) {
					t.Errorf("%s: the text alone has %s: %s", what, m, line)
				}
			}
		}
	}
	if len(found) < 8 {
		t.Errorf("%s: %d marks in\n%s", what, len(found), text)
	}
}

// What people read of a job programs read too.
func TestDocumentsHaveWhatTextsHave(t *testing.T) {
	unread := func(f *gpu.Figure) { *f = gpu.Unknown("mkunreadx") }
	for what, change := range map[string]func(*ledger.End){
		"as filled": func(*ledger.End) {},
		"a holder that is gone, a test that failed": func(e *ledger.End) {
			e.Findings[0].Holder.Gone, e.Probes[0].Result = true, gpu.ProbeBroken
		},
		"unknown figures, a test that went well": func(e *ledger.End) {
			unread(&e.Snapshot.Readings[0].Memory.Used)
			e.Snapshot.Readings[0].ProcessesUnknown = "mkprocessesx"
			e.Findings[0].Holder.Why, e.Probes[0].Result, e.Health[0].Facts[0].Unknown = "mkwhyx", gpu.ProbeOK, ""
		},
		"accounting, nothing held": func(e *ledger.End) {
			e.Health[0].Accounting.Unknown, e.Findings[0].Holder, e.Verdict.Held, e.Verdict.Exit = "", nil, "", 0
			e.Probes[0].Result = gpu.ProbeSkipped
		},
		"the log was not read": func(e *ledger.End) { e.Kernel.Xids, e.Kernel.Lost = nil, true },
	} {
		r := filled(change)
		var text bytes.Buffer
		Job(&text, r)
		told(t, what, text.String(), answer.NewShow(r.Job.Node, "", []ledger.Run{r}, []ledger.Run{r}))
	}
}

// So with a look of just now, and the last tests.
func TestSnapshotsHaveWhatTextsHave(t *testing.T) {
	var s gpu.Snapshot
	var r probe.Record
	var p attrib.Process
	f := &filler{}
	for _, v := range []any{&s, &r, &p} {
		f.fill(reflect.ValueOf(v).Elem())
	}
	s.Readings[0].ProcessesUnknown, p.Why, p.Cgroup = "", "", slurm.Owner{}
	who := map[int]attrib.Process{s.Readings[0].Processes[0].PID: p}
	at := func(boot time.Duration) time.Time { return time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC) }
	for _, reserved := range []bool{false, true} {
		s.Readings[0].Memory.UsedHasReserved = reserved
		tests := map[gpu.ID]probe.Record{s.Readings[0].Device.ID: r}
		var text bytes.Buffer
		Snapshot(&text, s, who, at)
		Tests(&text, tests, gpu.Epoch{})
		d := answer.NewSnapshot(s, who, at)
		d.AddTests(tests, gpu.Epoch{})
		told(t, "snapshot", text.String(), d)
		if d.Cards[0].UsedHasReserved != reserved {
			t.Errorf("%+v", d.Cards[0])
		}
	}
}

// On a terminal that is too narrow for both ends of a job beside each other each line has both of its figures.
func TestNarrowEnds(t *testing.T) {
	r := filled(func(*ledger.End) {})
	id := r.Devices[0].Device.ID
	r.Start.Snapshot.Readings[0].Memory.Used, r.Ends[0].Snapshot.Readings[0].Memory.Used = gpu.Bytes(0), gpu.Bytes(20527<<20)
	r.Start.Curves, r.Ends[0].Snapshot.Readings[0].Device.ID = nil, id
	for width, want := range map[int]string{44: "    used           0 MiB -> 20527 MiB\n", 80: "    used           0 MiB                         20527 MiB\n"} {
		var text bytes.Buffer
		Job(On(&text, Screen{Width: width}), r)
		if !strings.Contains(text.String(), want) {
			t.Errorf("%d columns: lacks %q:\n%s", width, want, text.String())
		}
	}
	r.Ends = nil
	var text bytes.Buffer
	Job(On(&text, Screen{Width: 44}), r)
	if !strings.Contains(text.String(), "0 MiB -> not yet\n") || !strings.Contains(text.String(), " -> ?\n") {
		t.Errorf("a job that runs:\n%s", text.String())
	}
}
