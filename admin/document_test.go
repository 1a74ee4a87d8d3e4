package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"bookend/internal/answer"
	"bookend/internal/attrib"
	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/diagnosis"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/metrics"
	"bookend/internal/oom"
	"bookend/internal/policy"
	"bookend/internal/probe"
	"bookend/internal/settle"
	"bookend/internal/slurm"
	"bookend/internal/state"
)

// busy is a node with a job that left a process, one that runs, a trouble that hooks met, baselines, tests, and a backend
// that answers.
func busy(t *testing.T) testNode {
	t.Helper()
	dir, _ := home(t)
	return busyIn(t, dir)
}

func busyIn(t tester, dir string) testNode {
	t.Helper()
	n := newNodeIn(t, dir)
	n.shows(t, 20480)
	n.leaves(t, 42, "alice\x1b[2J", 1000)
	n.job(t, 43, cardB, false)
	must(t, n.store.PutBaseline(finding.Baseline{GPU: cardB, Epoch: n.epoch, Bytes: 10 << 20, Holder: "dcgm.service", Residents: []finding.Resident{{PID: 812, Service: "dcgm.service"}}}))
	must(t, n.store.PutProbes(probe.Record{Epoch: n.epoch, Wall: time.Now(), Probe: gpu.Probe{Device: cardA, Result: gpu.ProbeOK, Free: gpu.Bytes(2), Largest: gpu.Bytes(1)}}))
	must(t, os.MkdirAll(n.dir+"/var", 0o755))
	must(t, metrics.Record(metrics.Files{Var: n.dir + "/var"}, metrics.Run{
		Hook: metrics.Epilog, Job: 42, At: time.Now(), Findings: []metrics.Finding{{Code: code.Slow, Own: true, Detail: "4 s"}},
	}))
	return n
}

// leaves puts a job on record that left a process on card A, and ran out of memory.
func (n testNode) leaves(t tester, id slurm.JobID, user string, uid uint32) {
	t.Helper()
	minor, index := 0, 0
	device := gpu.Device{ID: cardA, BusID: "0000:1b:00.0", Minor: &minor, Name: "NVIDIA H200"}
	end := func(at time.Duration, state settle.State, used uint64) ledger.End {
		memory := gpu.Memory{Total: gpu.Bytes(1 << 37), Used: gpu.Bytes(used), Free: gpu.Bytes(1<<37 - used), Reserved: gpu.Unknown("old driver")}
		return ledger.End{At: at, Wall: time.Now().Add(at - time.Hour), Curves: map[gpu.ID]settle.Curve{cardA: {State: state, Looks: 3, Settled: 200 * time.Millisecond}},
			Snapshot: gpu.Snapshot{At: at, Readings: []gpu.Reading{{Device: device, Memory: memory}}}}
	}
	run := ledger.Run{Job: slurm.Job{ID: id, Node: "n1", User: user, UID: uid, Partition: "gpu", Exit: slurm.ExitStatus{Known: true, Raw: 256}}, Epoch: n.epoch,
		Devices: []ledger.Assigned{{Device: device}}, Display: ledger.Display{Array: slurm.ArrayTask{Master: 40, Task: 2}}}
	start := end(time.Minute, settle.Clean, 0)
	start.Probes = []gpu.Probe{{Device: cardA, Result: gpu.ProbeOK, Largest: gpu.Bytes(1 << 36), Free: gpu.Bytes(1 << 37), Attempts: 1}}
	run.Start = &start
	must(t, n.store.Begin(run))
	over := end(2*time.Minute, settle.Flat, 20<<30)
	over.Probes = []gpu.Probe{{Device: cardA, Result: gpu.ProbeBroken, Error: &gpu.CallError{Call: "cuInit", Code: 802, Name: "CUDA_ERROR_SYSTEM_NOT_READY"}}}
	process := attrib.Process{PID: 4711, Name: "train", UID: uid, Start: 90 * time.Second}
	over.Findings = []finding.Finding{
		{Code: code.Orphan, GPU: cardA, Index: &index, Bytes: gpu.Bytes(20 << 30), Holder: &finding.Holder{Process: process, Memory: gpu.Bytes(20 << 30)},
			Owner: &finding.Owner{Job: id, UID: uid, Level: attrib.ByCgroup}, Candidates: []finding.Holder{{Process: attrib.Process{PID: 5, Gone: true}, Memory: gpu.Unknown("no descriptor")}}},
		{Code: code.Unread, Unknown: "not read", Bytes: gpu.Unknown("not read")},
	}
	over.Verdict = policy.Verdict{Action: config.Warn, Code: code.Orphan, Held: "observe mode", Judged: []policy.Judged{{Action: config.Drain}, {Action: config.Warn, Why: "unknown"}}}
	over.Messages = []oom.Message{{Kind: oom.Device, Framework: oom.PyTorch, Line: "CUDA out of memory", Count: 2}}
	why := diagnosis.Why(diagnosis.Input{Job: run.Job, Messages: over.Messages})
	over.Diagnosis = &why
	found, _, err := n.store.Find(run.Job)
	must(t, err)
	found.Job.Exit = run.Job.Exit
	must(t, n.store.Close(found, over))
}

// Every command's document decodes into the type that docs/cli.md shows, with nothing beside it, and says which it is.
func TestDocuments(t *testing.T) {
	for name, tt := range map[string]struct {
		args []string
		euid int
		exit int
		kind answer.Kind
		into any
	}{
		"status":         {[]string{"status"}, 0, exitOK, answer.KindStatus, &answer.Status{}},
		"status, asked":  {[]string{"status", "--exit-code"}, 0, exitTrouble, answer.KindStatus, &answer.Status{}},
		"records":        {[]string{"status", "--records"}, 0, exitOK, answer.KindStatus, &answer.Status{}},
		"show":           {[]string{"show", "40_2"}, 0, exitOK, answer.KindShow, &answer.Show{}},
		"show, asked":    {[]string{"show", "42", "--exit-code"}, 0, exitTrouble, answer.KindShow, &answer.Show{}},
		"history":        {[]string{"history"}, 0, exitOK, answer.KindHistory, &answer.History{}},
		"no history":     {[]string{"history", "--gpu", "7"}, 0, exitOK, answer.KindHistory, &answer.History{}},
		"history, asked": {[]string{"history", "--exit-code"}, 0, exitTrouble, answer.KindHistory, &answer.History{}},
		"lemons":         {[]string{"history", "--lemons"}, 0, exitOK, answer.KindLemons, &answer.Lemons{}},
		"lemons, asked":  {[]string{"history", "--lemons", "--exit-code"}, 0, exitOK, answer.KindLemons, &answer.Lemons{}},
		"snapshot":       {[]string{"snapshot"}, 0, exitOK, answer.KindSnapshot, &answer.Snapshot{}},
		"snapshot, user": {[]string{"snapshot"}, 1000, exitOK, answer.KindSnapshot, &answer.Snapshot{}},
		"explain":        {[]string{"explain", "orphan"}, 1000, exitOK, answer.KindExplain, &answer.Explain{}},
		"explain 10":     {[]string{"explain", "10"}, 0, exitOK, answer.KindExplain, &answer.Explain{}},
		"explain reason": {[]string{"explain", "BKD-ORPHAN gpu=0 2518MiB pid=7 job=42 epilog; see: bookend show 42"}, 0, exitOK, answer.KindExplain, &answer.Explain{}},
		"baseline":       {[]string{"baseline"}, 0, exitOK, answer.KindBaseline, &answer.Baselines{}},
		"reset":          {[]string{"baseline", "reset", "all"}, 0, exitOK, answer.KindReset, &answer.Reset{}},
		"config check":   {[]string{"config", "check"}, 0, exitOK, answer.KindConfig, &answer.Config{}},
		"config, wrong":  {[]string{"config", "check", "/nonexistent"}, 0, exitTrouble, answer.KindConfig, &answer.Config{}},
		"doctor":         {[]string{"doctor"}, 0, exitTrouble, answer.KindDoctor, &answer.Doctor{}},
		"report":         {[]string{"report"}, 0, exitOK, answer.KindReport, &answer.Report{}},
		"report, users":  {[]string{"report", "--users", "--since", "2h"}, 0, exitOK, answer.KindReport, &answer.Report{}},
		"empty report":   {[]string{"report", "--since", "2000-01-01", "--until", "2000-01-02"}, 0, exitOK, answer.KindReport, &answer.Report{}},
		"version":        {[]string{"version"}, 0, exitOK, answer.KindProgram, &answer.Program{}},
	} {
		t.Run(name, func(t *testing.T) {
			n := busy(t)
			got := bookend(tt.euid, n.config, append(tt.args, "--json")...)
			if got.exit != tt.exit {
				t.Fatalf("exit %d: %s%s", got.exit, got.out, got.err)
			}
			decode(t, got.out, tt.kind, tt.into)
		})
	}
}

// decode reads one document, whole, of a kind; what is null has its reason, and nothing in it is for a terminal to act on.
func decode(t *testing.T, text string, kind answer.Kind, into any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil || d.More() {
		t.Fatalf("%v in\n%s", err, text)
	}
	var head answer.Head
	must(t, json.Unmarshal([]byte(text), &head))
	if head != (answer.Head{Version: 1, Kind: kind}) {
		t.Errorf("%+v", head)
	}
	if strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && (r < ' ' || r > '~') }) {
		t.Errorf("not ASCII: %q", text)
	}
	var raw any
	must(t, json.Unmarshal([]byte(text), &raw))
	reasons(t, "", raw)
}

// may are the fields that are null where there is nothing of the kind; of all others an object says why they are.
var may = map[string]bool{
	"start": true, "end": true, "why": true, "process": true, "owner": true, "drain_reason": true, "at": true, "since": true, "last_at": true, "gpu_index": true, "index": true,
	"minor": true, "exit_code": true, "reason_since": true, "last_check": true, "error": true, "uid": true, "first_at": true, "until": true, "last_look_at": true,
	"kernel_log": true, "tested_at": true, "accounting": true, "mig_instance": true, "xid": true,
}

func reasons(t *testing.T, path string, v any) {
	t.Helper()
	switch v := v.(type) {
	case map[string]any:
		why, _ := v["unknown"].(map[string]any)
		for name, field := range v {
			if field == nil && why[name] == nil && !may[name] && name != "bytes" {
				t.Errorf("%s.%s is null, and nothing says why", path, name)
			}
			if field != nil && why[name] != nil {
				t.Errorf("%s.%s is %v, and unknown: %v", path, name, field, why[name])
			}
			reasons(t, path+"."+name, field)
		}
	case []any:
		for i, one := range v {
			reasons(t, fmt.Sprintf("%s[%d]", path, i), one)
		}
	}
}

func TestDocumentsSayWhatIsThere(t *testing.T) {
	n := busy(t)
	var show answer.Show
	decode(t, bookend(0, n.config, "show", "40_2", "--json").out, answer.KindShow, &show)
	run := show.Runs[0]
	if show.Job != "40_2" || run.Job != "40_2" || run.JobID != 42 || run.User != `alice\x1b[2J` || run.State != answer.Ended || *run.Exit != 1 || *run.Seconds != 60 {
		t.Errorf("%+v", run)
	}
	card := run.Cards[0]
	if *card.Start.UsedBytes != 0 || *card.End.UsedBytes != 20<<30 || *card.Start.Test.LargestBytes != 1<<36 || card.End.Test.Error.Code != 802 || card.End.ReservedBytes != nil ||
		card.End.Unknown["reserved_bytes"] != "old driver" || card.End.State != "flat" || card.End.SettleSeconds != 0.2 {
		t.Errorf("%+v", card)
	}
	f := run.Ends[0].Findings[0]
	if f.Code != code.Orphan || *f.Bytes != 20<<30 || f.Process.PID != 4711 || *f.Process.UID != 1000 || f.Owner.Job != "42" || f.Owner.Level != "cgroup" || !f.Maybe[0].Gone || f.Action != config.Drain {
		t.Errorf("%+v", f)
	}
	if second := run.Ends[0].Findings[1]; second.Bytes != nil || second.Unknown["bytes"] != "not read" || second.Undecided != "not read" {
		t.Errorf("%+v", second)
	}
	if w := run.Ends[0].Why; w == nil || len(w.Causes) != 11 || run.Ends[0].Messages[0].Count != 2 {
		t.Errorf("%+v", run.Ends[0])
	}
	var status answer.Status
	decode(t, bookend(0, n.config, "status", "--json").out, answer.KindStatus, &status)
	a := status.Cards[0]
	if len(status.Cards) != 2 || a.UUID != string(cardA) || *a.UsedBytes != 20<<30 || *a.UnexplainedBytes != 20<<30 || a.Last.Job != "40_2" || a.Last.Codes[0] != code.Orphan ||
		!*status.Driver.Answers || len(status.Running) != 1 || status.Running[0].Job != "43" || status.OnRecord != 2 {
		t.Errorf("%+v", status)
	}
	if !strings.Contains(fmt.Sprint(status.Troubles), string(code.Slow)) {
		t.Errorf("%+v", status.Troubles)
	}
	var snapshot answer.Snapshot
	decode(t, bookend(0, n.config, "snapshot", "--json").out, answer.KindSnapshot, &snapshot)
	if len(snapshot.Cards) != 2 || len(snapshot.Tests) != 1 || *snapshot.Tests[0].LargestBytes != 1 || snapshot.Tests[0].Void {
		t.Errorf("%+v", snapshot)
	}
	var report answer.Report
	decode(t, bookend(0, n.config, "report", "--users", "--json").out, answer.KindReport, &report)
	if lane := report.Cards[0]; report.Jobs != 2 || report.Running != 1 || len(report.Findings) != 2 || len(report.Cards) != 2 || lane.UUID != string(cardA) || lane.Jobs != 1 || *lane.TotalBytes != 1<<37 ||
		lane.Stays[0].Job != "40_2" || lane.Stays[0].User != `alice\x1b[2J` || !lane.Stays[0].EndSeen || *lane.Stays[0].MostBytes != 20<<30 || len(lane.Left) != 1 || *lane.Left[0].Bytes != 20<<30 {
		t.Errorf("%+v", report)
	}
	if f := report.Findings[0]; f.Code != code.Orphan || f.Phase != "end" || f.Job != "40_2" || f.Process.PID != 4711 || *f.Process.UID != 1000 || f.Owner.Level != "cgroup" {
		t.Errorf("%+v", f)
	}
	n.shows(t, 40) // a card that carries something small
	must(t, n.store.DropBaselines(cardA))
	var accepted answer.Accepted
	decode(t, bookend(0, n.config, "baseline", "accept", string(cardA), "--force", "--json").out, answer.KindAccepted, &accepted)
	if accepted.UUID != string(cardA) || accepted.Bytes != 40<<20 {
		t.Errorf("%+v", accepted)
	}
}

// A driver that gives no answer in time leaves the rest of the status as it is, and says so.
func TestStatusWithoutADriver(t *testing.T) {
	n := busy(t)
	write(t, filepath.Join(n.dir, "gpu"), "#!/bin/sh\nexec /bin/sleep 60\n", 0o755)
	began := time.Now()
	got := bookend(0, n.config, "status", "--exit-code")
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("took %v", took)
	}
	for _, want := range []string{"driver: no answer: BKD-HANG ", "[????????", "memory: unknown: the driver gave no answer\n", "job:    43\n", "jobs with GPUs now: 1\n"} {
		if !strings.Contains(got.out, want) {
			t.Errorf("lacks %q:\n%s", want, got.out)
		}
	}
	if got.exit != exitTrouble { // there is a trouble, too
		t.Errorf("%+v", got)
	}
	must(t, os.RemoveAll(n.dir+"/var/metrics"))
	conf, err := os.ReadFile(n.config)
	must(t, err)
	write(t, n.config, string(conf)+"slurm: {shards: \"no\", scontrol: /nonexistent/scontrol}\n", 0o644)
	must(t, os.MkdirAll(n.dir+"/log", 0o755))
	if got := bookend(0, n.config, "status", "--exit-code"); got.exit != exitUntold || !strings.Contains(got.out, "\nSlurm: unknown: ") {
		t.Errorf("no more than the driver is wrong: %+v", got)
	}
	write(t, filepath.Join(n.dir, "gpu"), "#!/bin/sh\nexit 0\n", 0o755)
	if got := bookend(0, n.config, "status", "--records", "--exit-code"); got.exit != exitOK || strings.Contains(got.out, "driver:") {
		t.Errorf("from records alone: %+v", got)
	}
}

// A child that nothing frees is in the driver already: no other is started.
func TestStatusAsksNoStuckDriver(t *testing.T) {
	n := busy(t)
	process := filepath.Join(n.dir, "proc/77")
	must(t, os.MkdirAll(process, 0o755))
	write(t, filepath.Join(process, "stat"), "77 (bookend-gpu) D 1 2 3 0 -1 4194560 100 0 0 0 5 6 0 0 20 0 1 0 123456 1000 200 18446744073709551615 1 1 0\n", 0o644)
	must(t, n.store.SetStuck(state.Stuck{PID: 77, StartTicks: 123456, Op: "backend"}))
	got := bookend(0, n.config, "status")
	if !strings.Contains(got.out, "\ndriver: not asked: a child of an earlier look is still in it\n") || !strings.Contains(got.out, "driver not answering since ") {
		t.Errorf("%+v", got)
	}
	if _, err := os.Stat(filepath.Join(n.dir, "looks")); err == nil {
		t.Error("the backend was started")
	}
}

// What looks unexplained may be a test allocation of a hook's: a second look, with those locked out, is what counts.
func TestStatusLooksTwice(t *testing.T) {
	n := newNode(t)
	n.shows(t, 20480, 50)
	var status answer.Status
	decode(t, bookend(0, n.config, "status", "--json").out, answer.KindStatus, &status)
	if c := status.Cards[0]; *c.UnexplainedBytes != 50<<20 || *c.UsedBytes != 50<<20 {
		t.Errorf("%+v", c)
	}
	n.shows(t, 20, 50)
	decode(t, bookend(0, n.config, "status", "--json").out, answer.KindStatus, &status)
	if c := status.Cards[0]; *c.UsedBytes != 20<<20 {
		t.Errorf("looked twice for nothing: %+v", c)
	}
}

// The types have no field without a name of its own, nor one that a unit is missing of.
func TestFieldsHaveUnits(t *testing.T) {
	var walk func(reflect.Type, string)
	walk = func(of reflect.Type, path string) {
		switch of.Kind() {
		case reflect.Pointer, reflect.Slice:
			walk(of.Elem(), path)
		case reflect.Struct:
			if of == reflect.TypeFor[time.Time]() {
				return
			}
			for i := range of.NumField() {
				f := of.Field(i)
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				if f.Anonymous && name == "" {
					walk(f.Type, path)
					continue
				}
				if name == "" || name != strings.ToLower(name) {
					t.Errorf("%s.%s: field %q", path, f.Name, name)
				}
				if f.Type.Kind() == reflect.Float64 && !strings.HasSuffix(name, "_seconds") || f.Type == reflect.TypeFor[*float64]() && !strings.HasSuffix(name, "_seconds") {
					t.Errorf("%s.%s: a duration without seconds", path, name)
				}
				if f.Type == reflect.TypeFor[*uint64]() && !strings.HasSuffix(name, "bytes") {
					t.Errorf("%s.%s: a size without bytes", path, name)
				}
				walk(f.Type, path+"."+name)
			}
		}
	}
	for _, d := range []any{answer.Status{}, answer.Show{}, answer.History{}, answer.Lemons{}, answer.Snapshot{}, answer.Explain{}, answer.Baselines{}, answer.Accepted{},
		answer.Reset{}, answer.Doctor{}, answer.Config{}, answer.Program{}, answer.OwnReport{}, answer.Report{}} {
		walk(reflect.TypeOf(d), reflect.TypeOf(d).Name())
	}
	var b bytes.Buffer
	must(t, answer.Write(&b, answer.NewProgram("1\x1b")))
	if want := "{\n  \"version\": 1,\n  \"kind\": \"version\",\n  \"bookend\": \"1\\\\x1b\"\n}\n"; b.String() != want {
		t.Errorf("%q", b.String())
	}
}
