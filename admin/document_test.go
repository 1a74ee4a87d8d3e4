package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/child"
	"bookend/internal/config"
	"bookend/internal/diagnosis"
	"bookend/internal/doctor"
	"bookend/internal/gpu"
	"bookend/internal/metrics"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/internal/state"
	"bookend/internal/view"
	"bookend/test/must"
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
	must.Do(t, state.Baselines.Put(n.store, record.Baseline{GPU: cardB, Epoch: n.epoch, Bytes: 10 << 20, Holder: "dcgm.service",
		Residents: []record.Resident{{PID: 812, Service: "dcgm.service"}}}))
	must.Do(t, state.Probes.Put(n.store, record.TestRecord{Epoch: n.epoch, Wall: time.Now(), Probe: gpu.Probe{Device: cardA,
		Result: gpu.ProbeOK, Free: gpu.Bytes(2), Largest: gpu.Bytes(1)}}))
	must.Do(t, os.MkdirAll(n.dir+"/var", 0o755))
	must.Do(t, metrics.Record(metrics.Files{Var: n.dir + "/var"}, metrics.JobRun{
		Hook: metrics.Epilog, Job: 42, At: time.Now(), Findings: []metrics.Finding{{Code: catalog.Slow, Own: true,
			Detail: "4 s"}},
	}))
	return n
}

// leaves puts a job on record that left a process on card A, and ran out of memory.
func (n testNode) leaves(t tester, id slurm.JobID, user string, uid uint32) {
	t.Helper()
	minor, index := 0, 0
	device := gpu.Device{ID: cardA, BusID: "0000:1b:00.0", Minor: &minor, Name: "NVIDIA H200"}
	end := func(at time.Duration, state record.State, used uint64) record.End {
		memory := gpu.Memory{Total: gpu.Bytes(1 << 37), Used: gpu.Bytes(used), Free: gpu.Bytes(1<<37 - used),
			Reserved: gpu.Unknown("old driver")}
		return record.End{At: at, Wall: time.Now().Add(at - time.Hour),
			Curves:   map[gpu.ID]record.Curve{cardA: {State: state, Looks: 3, Settled: 200 * time.Millisecond}},
			Snapshot: gpu.Snapshot{At: at, Readings: []gpu.Reading{{Device: device, Memory: memory}}}}
	}
	run := record.Run{Job: slurm.Job{ID: id, Node: "n1", User: user, UID: uid, Partition: "gpu",
		Exit: slurm.ExitStatus{Known: true, Raw: 256}}, Epoch: n.epoch,
		Devices: []record.Assigned{{Device: device}}, Display: record.Display{Array: slurm.ArrayTask{Master: 40,
			Task: 2}}}
	start := end(time.Minute, record.Clean, 0)
	start.Probes = []gpu.Probe{{Device: cardA, Result: gpu.ProbeOK, Largest: gpu.Bytes(1 << 36),
		Free: gpu.Bytes(1 << 37), Attempts: 1}}
	run.Start = &start
	must.Do(t, n.store.Begin(run))
	over := end(2*time.Minute, record.Flat, 20<<30)
	over.Probes = []gpu.Probe{{Device: cardA, Result: gpu.ProbeBroken, Error: &gpu.CallError{Call: "cuInit", Code: 802,
		Name: "CUDA_ERROR_SYSTEM_NOT_READY"}}}
	process := record.Process{PID: 4711, Name: "train", UID: uid, Start: 90 * time.Second}
	over.Findings = []record.Finding{
		{Code: catalog.Orphan, GPU: cardA, Index: &index, Bytes: gpu.Bytes(20 << 30),
			Holder: &record.Holder{Process: process, Memory: gpu.Bytes(20 << 30)},
			Owner:  &record.Owner{Job: id, UID: uid, Level: record.ByCgroup},
			Candidates: []record.Holder{{Process: record.Process{PID: 5, Gone: true},
				Memory: gpu.Unknown("no descriptor")}}},
		{Code: catalog.Unread, Unknown: "not read", Bytes: gpu.Unknown("not read")},
	}
	over.Verdict = record.Verdict{Action: config.Warn, Code: catalog.Orphan, Held: "observe mode",
		Judged: []record.Judged{{Action: config.Drain}, {Action: config.Warn, Why: "unknown"}}}
	over.Messages = []record.Message{{Kind: record.KindDevice, Framework: record.FromPyTorch, Line: "CUDA out of memory", Count: 2}}
	why := diagnosis.Why(diagnosis.Input{Job: run.Job, Messages: over.Messages})
	over.Diagnosis = &why
	found, err := n.store.Find(run.Job)
	must.Do(t, err)
	found.Job.Exit = run.Job.Exit
	must.Do(t, n.store.Close(found, over))
}

// Every command's document decodes into its type without unknown fields, and names its kind.
func TestDocuments(t *testing.T) {
	type document struct {
		kind string
		into any
	}
	status, show := document{"status", &view.Status{}}, document{"show", &view.Show{}}
	history, offenders := document{"history", &view.History{}}, document{"repeat-offenders", &view.Offenders{}}
	n := busy(t)
	for line, want := range map[string]document{
		"0 status": status, "1 status --exit-code": status, "0 status --records": status,
		"0 show 40_2": show, "1 show 42 --exit-code": show, "0 show 43": show,
		"0 history": history, "0 history --gpu 7": history, "1 history --exit-code": history,
		"0 history --repeat-offenders": offenders, "0 history --repeat-offenders --exit-code": offenders,
		"0 why 42": {"own-report", &view.OwnReport{}}, "0 snapshot": {"snapshot", &view.Snapshot{}},
		"1 doctor": {"doctor", &doctor.Report{}},
	} {
		exit, command, _ := strings.Cut(line, " ")
		got := bookend(0, n.config, append(strings.Fields(command), "--json")...)
		if fmt.Sprint(got.exit) != exit {
			t.Errorf("%s: exit %d: %s%s", line, got.exit, got.out, got.err)
			continue
		}
		d := json.NewDecoder(strings.NewReader(got.out))
		d.DisallowUnknownFields()
		if err := d.Decode(want.into); err != nil || d.More() {
			t.Errorf("%s: %v in\n%s", line, err, got.out)
		}
		var head view.Head
		must.Do(t, json.Unmarshal([]byte(got.out), &head))
		if head != (view.Head{Version: view.Version, Kind: want.kind}) {
			t.Errorf("%s: %+v", line, head)
		}
		if strings.ContainsFunc(got.out, func(r rune) bool { return r != '\n' && (r < ' ' || r > '~') }) {
			t.Errorf("%s: not ASCII: %q", line, got.out)
		}
	}
}

// What a node prints is what fleet reads, with and without the prefix of clush.
func TestFleet(t *testing.T) {
	n := busy(t)
	status := bookend(0, n.config, "status", "--json").out
	sent := "n1: " + strings.ReplaceAll(status+bookend(0, n.config, "history", "--json").out, "\n", "\nn1: ")
	for name, c := range map[string]struct{ in, args, want string }{
		"status alone": {status, "--exit-code", "leftover"}, "prefixed": {sent, "--exit-code --nodes n1", "leftover"},
		"a silent node": {sent, "--nodes n1,n2", "n2    no answer"}, "page": {sent, "--html -", `aria-label="1 jobs, warn"`},
		"JSON": {sent, "--json", `"job": "40_2"`}, "nothing": {"", "--exit-code", "nothing came from"},
		"rounds":     {sent + "\n\n\n", "--watch --exit-code", "n1    no answer, was leftover"},
		"their JSON": {sent + "\n\n" + sent, "--watch --json", "}\n{\"version\":2,\"kind\":\"fleet\",\"nodes\":[{\"node\":\"n1\""},
	} {
		var out, said strings.Builder
		exit := run(child.Env{Stdin: strings.NewReader(c.in), Stdout: &out, Stderr: &said, EUID: 1000, Clock: child.SystemClock(),
			Getenv: func(string) string { return "" }}, append([]string{"fleet"}, strings.Fields(c.args)...))
		if !strings.Contains(out.String(), c.want) || exit == 1 != strings.Contains(c.args, "--exit-code") || said.Len() > 0 {
			t.Errorf("%s: exit %d: %s%s", name, exit, out.String(), said.String())
		}
	}
}

// What a node prints of an ended job goes into Slurm's accounting.
func TestSacct(t *testing.T) {
	n := busy(t)
	status := bookend(0, n.config, "status", "--json").out
	var doc view.Status
	must.Do(t, json.Unmarshal([]byte(status), &doc))
	job := doc.Ended[0]
	const form = "2006-01-02T15:04:05"
	start, end := job.BeganAt.UTC().Format(form), job.EndedAt.Add(time.Minute).UTC().Format(form)
	record := fmt.Sprintf("%d|%s|%d|n1|%s|%[4]s|%s|", job.JobID, job.Job, job.UID, start, end)
	write(t, filepath.Join(n.dir, "sacct"), "#!/bin/sh\necho '"+record+"'\n", 0o755)
	write(t, n.config, valid(n.dir)+"slurm: {scontrol: "+n.dir+"/scontrol}\n", 0o644)
	var out, said strings.Builder
	exit := run(child.Env{Stdin: strings.NewReader(status), Stdout: &out, Stderr: &said, EUID: 1000, Clock: child.SystemClock(),
		Getenv: func(name string) string { return map[string]string{"BOOKEND_CONFIG": n.config}[name] }}, []string{"sacct", "--dry-run"})
	want := "job " + job.Job + ": bookend n1: BKD-"
	must.Not(t, exit != 0 || said.Len() > 0 || !strings.HasPrefix(out.String(), want) || !strings.HasSuffix(out.String(), "\nnot written (--dry-run): 1\n"),
		"exit %d: %s%s, want %q", exit, out.String(), said.String(), want)
}

// A user gets peaks from the own spool, else from Slurm's accounting; root opens no user's spool.
func TestPeaks(t *testing.T) {
	dir, config := home(t)
	const user = 1000
	must.Do(t, os.Mkdir(dir+"/spool", 0o700))
	write(t, dir+"/spool/7.n1.json", `{"version": 1, "job": "7", "job_id": 7, "used": {"name": "train", "end": "ok", "nodes": 1, "gpus":
		[{"model": "A", "total_bytes": 42949672960, "peak_bytes": 1073741824}]}}`, 0o600)
	for _, path := range []string{"/spool", "/spool/7.n1.json"} {
		must.Do(t, os.Chown(dir+path, user, user))
	}
	write(t, dir+"/sacct", "#!/bin/sh\ncase \"$*\" in *--name=old*) echo '8|COMPLETED|2026-11-30T03:00:00|60|gres/gpu=1||old' ;;\n"+
		"*--name=half*) echo '8|COMPLETED|2026-11-30T03:00:00|60|gres/gpu=1||half'; exit 1 ;;\n"+
		"*-j9*) echo '9|TIMEOUT|0:0|n1||' ;; *--name*) ;; *) printf '9|TIMEOUT|2026-11-30T03:00:00|60|||x\\n8|COMPLETED|2026-11-30T03:00:01|60|||y\\n10_[1-5]|CANCELLED by 7|2026-11-30T04:00:00|0|||z\\n' ;; esac\n", 0o755)
	write(t, config, valid(dir)+"slurm: {scontrol: "+dir+"/scontrol}\nspool: \"%h/spool\"\n", 0o644)
	for line, want := range map[string]string{
		"0 peaks train": "A  40.0 GiB  ran there", "0 peaks": "7    train", "0 peaks old": "8    old", "3 peaks none": `"none"`, "3 peaks half": `"half"`, "0 why": "job 9: Bookend has no report here. Slurm says:\n  TIMEOUT",
		"64 peaks a b": "want a job's NAME", "0 peaks train --json": `"source": "spool"`, "0 peaks old --json": `"gpus": []`,
	} {
		exit, command, _ := strings.Cut(line, " ")
		got := typing(user, map[string]string{"BOOKEND_CONFIG": config, "HOME": dir}, strings.Fields(command)...)
		must.Not(t, fmt.Sprint(got.exit) != exit || !strings.Contains(got.out+got.err, want), "%s: exit %d: %s%s", line, got.exit, got.out, got.err)
	}
	got := typing(0, map[string]string{"BOOKEND_CONFIG": config, "HOME": dir}, "peaks", "train")
	must.Not(t, got.exit != exitUsage || got.out != "", "root: exit %d: %s", got.exit, got.out)
}

// A prolog that was stopped reports nothing to the user: that does not make the GPUs clean.
func TestWhyOfAStoppedProlog(t *testing.T) {
	for code, want := range map[catalog.Code]bool{"": true, catalog.Deadline: false, catalog.RunInJob: false} {
		start := record.End{Verdict: record.Verdict{Code: code}}
		said, _ := why(slurm.Ref{Text: "7"}, []record.Run{{Start: &start, Ends: []record.End{{}}}}, records{node: "n1"})
		if got := said.(view.OwnReport).Clean; got != want {
			t.Errorf("%q: clean is %v, want %v", code, got, want)
		}
	}
}
