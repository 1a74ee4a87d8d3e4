package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bookend/internal/condition"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/nodefiles"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/internal/state"
	"bookend/test/must"
)

const (
	cardA = gpu.ID("GPU-aaaaaaaa-1111-2222-3333-444444444444")
	cardB = gpu.ID("GPU-bbbbbbbb-1111-2222-3333-444444444444")
)

// testNode is a node of two cards whose backend says what a test lets it say.
type testNode struct {
	dir, config string
	store       *state.Store
	epoch       gpu.Epoch
}

// newNodeIn makes a node with records of one job that has ended.
func newNodeIn(t tester, dir string) testNode {
	t.Helper()
	homeIn(t, dir)
	for file, text := range map[string]string{
		"proc/sys/kernel/random/boot_id": "boot-1\n", "sys/module/nvidia/version": "580.1\n",
		"bookend.yaml": nodeConfig(dir),
	} {
		must.Do(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o755))
		write(t, filepath.Join(dir, file), text, 0o644)
	}
	n := nodeIn(t, dir)
	n.job(t, 1, cardA, true)
	return n
}

func nodeConfig(dir string) string {
	paths := fmt.Sprintf("paths: {proc: %s/proc, sys: %[1]s/sys, ", dir)
	return strings.Replace(valid(dir), "paths: {", paths, 1) + "log: {level: error}\n"
}

func nodeIn(t tester, dir string) testNode {
	t.Helper()
	store := must.Have(state.Open(filepath.Join(dir, "run"), "n1"))(t)
	epoch := nodefiles.ReadEpoch(filepath.Join(dir, "proc"), filepath.Join(dir, "sys"))
	return testNode{dir: dir, config: filepath.Join(dir, "bookend.yaml"), store: store, epoch: epoch}
}

// job puts a job on record that was given a card, and has ended or not.
func (n testNode) job(t tester, id slurm.JobID, card gpu.ID, ended bool) {
	t.Helper()
	run := record.Run{Job: slurm.Job{ID: id, Node: "n1"}, Epoch: n.epoch,
		Start: &record.End{At: time.Duration(id) * time.Second}}
	if card != "" {
		run.Devices = []record.Assigned{{Device: gpu.Device{ID: card}}}
	}
	must.Do(t, n.store.Begin(run))
	if ended {
		found, err := n.store.Find(run.Job)
		must.Do(t, err)
		must.Do(t, n.store.Close(found, record.End{At: time.Duration(id+1) * time.Second}))
	}
}

// shows makes the backend answer with these figures of used MiB on card A, one a look, the last one for ever.
func (n testNode) shows(t tester, used ...int) {
	t.Helper()
	script := "#!/bin/sh\nread -r request\necho x >>" + n.dir + "/looks\ncase $(/usr/bin/wc -l <" + n.dir + "/looks) in\n"
	for i, mib := range used {
		pattern := fmt.Sprint(i + 1)
		if i == len(used)-1 {
			pattern = "*"
		}
		script += fmt.Sprintf("%s) bytes=%d ;;\n", pattern, mib<<20)
	}
	card := func(id gpu.ID, bus string, minor int, bytes string) string {
		return fmt.Sprintf(`{"device":{"id":"%s","bus_id":"%s","minor":%d},"memory":{"used":{"bytes":%s}},"processes":[]}`,
			id, bus, minor, bytes)
	}
	script += `esac
cat <<END
{"bookend":1,"kind":"snapshot","snapshot":{"at":5000000000,"readings":[` + card(cardA, "0000:1b:00.0", 0, "$bytes") + "," + card(cardB, "0000:3b:00.0", 1, "0") + `]}}
{"bookend":1,"kind":"done"}
END
`
	_ = os.Remove(filepath.Join(n.dir, "looks"))
	write(t, filepath.Join(n.dir, "gpu"), strings.Replace(script, "\ncat ", "\n/bin/cat ", 1), 0o755)
}

// A GPU with services on it may be accepted with them; with any other process it may not.
func TestAcceptable(t *testing.T) {
	type reading = gpu.Reading
	type process = record.Process
	for name, tt := range map[string]struct {
		change func(r *reading, p *process)
		says   string
	}{
		"a service":           {func(*reading, *process) {}, ""},
		"a user's":            {func(_ *reading, p *process) { *p = record.Process{Name: "train\x1b"} }, `812 ("train\x1b")`},
		"a job's":             {func(_ *reading, p *process) { p.Cgroup.ID = 3 }, "process 812"},
		"perhaps a job's":     {func(_ *reading, p *process) { p.EnvJobID = 3 }, "process 812"},
		"gone":                {func(_ *reading, p *process) { p.Gone = true }, "process 812"},
		"not read":            {func(_ *reading, p *process) { p.Why = "denied" }, "process 812"},
		"a large service":     {func(r *reading, _ *process) { r.Processes[0].Memory = gpu.Bytes(65 << 20) }, "no small service"},
		"bytes unknown":       {func(r *reading, _ *process) { r.Processes[0].Memory = gpu.Unknown("x") }, "process 812"},
		"processes unknown":   {func(r *reading, _ *process) { r.ProcessesUnknown = "cannot be true" }, "cannot be true"},
		"used unknown":        {func(r *reading, _ *process) { r.Memory.Used = gpu.Unknown("old driver") }, "old driver"},
		"figures say nothing": {func(r *reading, _ *process) { r.Memory.Unjudged = "NUMA" }, "NUMA"},
	} {
		t.Run(name, func(t *testing.T) {
			r := gpu.Reading{Device: gpu.Device{ID: cardA}, Memory: gpu.Memory{Used: gpu.Bytes(80 << 20)},
				Processes: []gpu.Process{{PID: 812, Memory: gpu.Bytes(30 << 20)}}}
			p := record.Process{PID: 812, Start: time.Second, Service: "dcgm.service"}
			tt.change(&r, &p)
			b, err := condition.AcceptableBaseline(r, map[int]record.Process{812: p},
				record.NewLimits(config.Default().Thresholds.Bytes()))
			if (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
				t.Fatalf("%+v, %v; want %q", b, err, tt.says)
			}
			if err == nil && (b.Bytes != 41<<20 || len(b.Residents) != 1 || b.Residents[0].Service != "dcgm.service" ||
				!b.Accepted) {
				t.Errorf("%+v", b)
			}
		})
	}
}
