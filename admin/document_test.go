package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"bookend/internal/answer"
	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/diagnosis"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/health"
	"bookend/internal/ledger"
	"bookend/internal/metrics"
	"bookend/internal/oom"
	"bookend/internal/settle"
	"bookend/internal/slurm"
)

// busy is a node with a job that left a process, one that runs, a trouble that hooks met, baselines, tests, and a
// backend that answers.
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
	must(t, n.store.PutBaseline(finding.Baseline{GPU: cardB, Epoch: n.epoch, Bytes: 10 << 20, Holder: "dcgm.service",
		Residents: []finding.Resident{{PID: 812, Service: "dcgm.service"}}}))
	must(t, n.store.PutProbes(health.TestRecord{Epoch: n.epoch, Wall: time.Now(), Probe: gpu.Probe{Device: cardA,
		Result: gpu.ProbeOK, Free: gpu.Bytes(2), Largest: gpu.Bytes(1)}}))
	must(t, os.MkdirAll(n.dir+"/var", 0o755))
	must(t, metrics.Record(metrics.Files{Var: n.dir + "/var"}, metrics.Run{
		Hook: metrics.Epilog, Job: 42, At: time.Now(), Findings: []metrics.Finding{{Code: code.Slow, Own: true,
			Detail: "4 s"}},
	}))
	return n
}

// leaves puts a job on record that left a process on card A, and ran out of memory.
func (n testNode) leaves(t tester, id slurm.JobID, user string, uid uint32) {
	t.Helper()
	minor, index := 0, 0
	device := gpu.Device{ID: cardA, BusID: "0000:1b:00.0", Minor: &minor, Name: "NVIDIA H200"}
	end := func(at time.Duration, state settle.State, used uint64) ledger.End {
		memory := gpu.Memory{Total: gpu.Bytes(1 << 37), Used: gpu.Bytes(used), Free: gpu.Bytes(1<<37 - used),
			Reserved: gpu.Unknown("old driver")}
		return ledger.End{At: at, Wall: time.Now().Add(at - time.Hour),
			Curves:   map[gpu.ID]settle.Curve{cardA: {State: state, Looks: 3, Settled: 200 * time.Millisecond}},
			Snapshot: gpu.Snapshot{At: at, Readings: []gpu.Reading{{Device: device, Memory: memory}}}}
	}
	run := ledger.Run{Job: slurm.Job{ID: id, Node: "n1", User: user, UID: uid, Partition: "gpu",
		Exit: slurm.ExitStatus{Known: true, Raw: 256}}, Epoch: n.epoch,
		Devices: []ledger.Assigned{{Device: device}}, Display: ledger.Display{Array: slurm.ArrayTask{Master: 40,
			Task: 2}}}
	start := end(time.Minute, settle.Clean, 0)
	start.Probes = []gpu.Probe{{Device: cardA, Result: gpu.ProbeOK, Largest: gpu.Bytes(1 << 36),
		Free: gpu.Bytes(1 << 37), Attempts: 1}}
	run.Start = &start
	must(t, n.store.Begin(run))
	over := end(2*time.Minute, settle.Flat, 20<<30)
	over.Probes = []gpu.Probe{{Device: cardA, Result: gpu.ProbeBroken, Error: &gpu.CallError{Call: "cuInit", Code: 802,
		Name: "CUDA_ERROR_SYSTEM_NOT_READY"}}}
	process := finding.Process{PID: 4711, Name: "train", UID: uid, Start: 90 * time.Second}
	over.Findings = []finding.Finding{
		{Code: code.Orphan, GPU: cardA, Index: &index, Bytes: gpu.Bytes(20 << 30),
			Holder: &finding.Holder{Process: process, Memory: gpu.Bytes(20 << 30)},
			Owner:  &finding.Owner{Job: id, UID: uid, Level: finding.ByCgroup},
			Candidates: []finding.Holder{{Process: finding.Process{PID: 5, Gone: true},
				Memory: gpu.Unknown("no descriptor")}}},
		{Code: code.Unread, Unknown: "not read", Bytes: gpu.Unknown("not read")},
	}
	over.Verdict = finding.Verdict{Action: config.Warn, Code: code.Orphan, Held: "observe mode",
		Judged: []finding.Judged{{Action: config.Drain}, {Action: config.Warn, Why: "unknown"}}}
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
		"offenders":      {[]string{"history", "--repeat-offenders"}, 0, exitOK, answer.KindOffenders, &answer.Offenders{}},
		"offenders, asked": {[]string{"history", "--repeat-offenders", "--exit-code"}, 0, exitOK, answer.KindOffenders,
			&answer.Offenders{}},
		"snapshot":       {[]string{"snapshot"}, 0, exitOK, answer.KindSnapshot, &answer.Snapshot{}},
		"snapshot, user": {[]string{"snapshot"}, 1000, exitOK, answer.KindSnapshot, &answer.Snapshot{}},
		"baseline":       {[]string{"baseline"}, 0, exitOK, answer.KindBaseline, &answer.Baselines{}},
		"config check":   {[]string{"config", "check"}, 0, exitOK, answer.KindConfig, &answer.Config{}},
		"config, wrong": {[]string{"config", "check", "/nonexistent"}, 0, exitTrouble, answer.KindConfig,
			&answer.Config{}},
		"doctor": {[]string{"doctor"}, 0, exitTrouble, answer.KindDoctor, &answer.Doctor{}},
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

// decode reads one document, whole, of a kind; what is null has its reason, and nothing in it is for a terminal to act
// on.
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
	"start": true, "end": true, "why": true, "holder": true, "owner": true, "drain_reason": true, "at": true,
	"since": true, "last_at": true, "gpu_index": true, "index": true,
	"minor": true, "exit_code": true, "reason_since": true, "last_check": true, "error": true, "uid": true, "processes": true,
	"first_at": true, "until": true, "last_look_at": true,
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
