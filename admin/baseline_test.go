package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bookend/internal/answer"
	"bookend/internal/attrib"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/inventory"
	"bookend/internal/ledger"
	"bookend/internal/slurm"
	"bookend/internal/state"
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

// newNode has records of one job that has ended.
func newNode(t *testing.T) testNode {
	t.Helper()
	n := testNode{}
	n.dir, n.config = home(t)
	for file, text := range map[string]string{
		"proc/sys/kernel/random/boot_id": "boot-1\n", "sys/module/nvidia/version": "580.1\n",
		"bookend.yaml": valid(n.dir) + "log: {level: error}\n",
	} {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(n.dir, file)), 0o755))
		write(t, filepath.Join(n.dir, file), text, 0o644)
	}
	text, err := os.ReadFile(n.config)
	must(t, err)
	write(t, n.config, strings.Replace(string(text), "paths: {", fmt.Sprintf("paths: {proc: %s/proc, sys: %s/sys, ", n.dir, n.dir), 1), 0o644)
	n.store, err = state.Open(filepath.Join(n.dir, "run"), "n1")
	must(t, err)
	n.epoch = inventory.ReadEpoch(filepath.Join(n.dir, "proc"), filepath.Join(n.dir, "sys"))
	n.job(t, 1, cardA, true)
	return n
}

// job puts a job on record that was given a card, and has ended or not.
func (n testNode) job(t *testing.T, id slurm.JobID, card gpu.ID, ended bool) {
	t.Helper()
	run := ledger.Run{Job: slurm.Job{ID: id, Node: "n1"}, Epoch: n.epoch, Start: &ledger.End{At: time.Duration(id) * time.Second}}
	if card != "" {
		run.Devices = []ledger.Assigned{{Device: gpu.Device{ID: card}}}
	}
	must(t, n.store.Begin(run))
	if ended {
		found, _, err := n.store.Find(run.Job)
		must(t, err)
		must(t, n.store.Close(found, ledger.End{At: time.Duration(id+1) * time.Second}))
	}
}

// shows makes the backend answer with these figures of used MiB on card A, one a look, the last one for ever.
func (n testNode) shows(t *testing.T, used ...int) {
	t.Helper()
	script := "#!/bin/sh\nread -r request\necho x >>" + n.dir + "/looks\ncase $(/usr/bin/wc -l <" + n.dir + "/looks) in\n"
	for i, mib := range used {
		pattern := fmt.Sprint(i + 1)
		if i == len(used)-1 {
			pattern = "*"
		}
		script += fmt.Sprintf("%s) bytes=%d ;;\n", pattern, mib<<20)
	}
	card := func(id gpu.ID, bus string, minor, index int, bytes string) string {
		return fmt.Sprintf(`{"device":{"id":"%s","bus_id":"%s","minor":%d},"memory":{"used":{"bytes":%s}},"processes":[],"nvidia":{"nvml_index":%d}}`,
			id, bus, minor, bytes, index)
	}
	script += `esac
cat <<END
{"bookend":1,"kind":"snapshot","snapshot":{"at":5000000000,"readings":[` + card(cardA, "0000:1b:00.0", 0, 1, "$bytes") + "," + card(cardB, "0000:3b:00.0", 1, 0, "0") + `]}}
{"bookend":1,"kind":"done"}
END
`
	_ = os.Remove(filepath.Join(n.dir, "looks"))
	write(t, filepath.Join(n.dir, "gpu"), strings.Replace(script, "\ncat ", "\n/bin/cat ", 1), 0o755)
}

func (n testNode) known(t *testing.T) map[gpu.ID]finding.Baseline {
	t.Helper()
	known, err := n.store.Baselines()
	must(t, err)
	return known
}

func TestBaselineAccept(t *testing.T) {
	n := newNode(t)
	n.shows(t, 40)
	for _, name := range []string{string(cardA), "0000:1b:00.0", "00000000:1B:00.0", "nvidia0"} {
		got := bookend(0, n.config, "baseline", "accept", name)
		if got.exit != 0 || got.err != "" || got.out != "accepted: 40 MiB on "+string(cardA)+
			" count as the card's own until the driver is reloaded; undo: bookend baseline reset "+string(cardA)+"\n" {
			t.Fatalf("%s: %+v", name, got)
		}
	}
	want := finding.Baseline{GPU: cardA, Epoch: n.epoch, Bytes: 40 << 20, Accepted: true, Holder: "accepted", At: 5 * time.Second}
	if got := n.known(t); len(got) != 1 || fmt.Sprint(got[cardA]) != fmt.Sprint(want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	list := bookend(0, n.config, "baseline")
	if list.exit != 0 || !strings.HasPrefix(list.out, string(cardA)+"  40 MiB without a process, accepted 20") {
		t.Errorf("%+v", list)
	}
	booted := time.Date(2026, 11, 21, 8, 0, 0, 0, time.Local)
	got := carried(answer.NewBaseline(want, n.epoch, booted))
	if got != "40 MiB without a process, accepted 2026-11-21 08:00:05" {
		t.Errorf("worded %q", got)
	}
}

func TestBaselineAcceptRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		used []int
		args []string
		exit int
		says string
	}{
		"a leak":             {[]int{20480}, []string{string(cardA)}, exitTrouble, "20480 MiB are more than the 64 MiB that a card may carry"},
		"a leak, forced":     {[]int{65}, []string{string(cardA), "--force"}, exitTrouble, "fuser -v /dev/nvidia*"},
		"nothing":            {[]int{0}, []string{string(cardA)}, exitTrouble, "there is nothing"},
		"memory that moves":  {[]int{40, 50}, []string{string(cardA)}, exitTrouble, "still changing"},
		"a card that is not": {[]int{40}, []string{"GPU-x"}, exitNotFound, `no such card: "GPU-x"`},
		"two cards' number":  {[]int{40}, []string{"0"}, exitTrouble, "may mean 2 cards"},
		"nobody's number":    {[]int{40}, []string{"7"}, exitNotFound, "no such card"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.shows(t, tt.used...)
			got := bookend(0, n.config, append([]string{"baseline", "accept"}, tt.args...)...)
			if got.exit != tt.exit || !strings.Contains(got.err, tt.says) || got.out != "" {
				t.Errorf("%+v, want exit %d and %q", got, tt.exit, tt.says)
			}
			if known := n.known(t); len(known) != 0 {
				t.Errorf("kept %+v", known)
			}
		})
	}
}

// What is on a card while a job has it may be that job's.
func TestBaselineAcceptBesideAJob(t *testing.T) {
	for name, tt := range map[string]struct {
		card  gpu.ID
		ended bool
		want  int
	}{
		"the card's job":          {cardA, false, exitTrouble},
		"a job on any card":       {"", false, exitTrouble},
		"another card's job":      {cardB, false, 0},
		"the card's job, over":    {cardA, true, 0},
		"a job on any card, over": {"", true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.shows(t, 40)
			n.job(t, 28, tt.card, tt.ended)
			got := bookend(0, n.config, "baseline", "accept", string(cardA))
			if got.exit != tt.want || tt.want != 0 && !strings.Contains(got.err, "while job 28 has that card") {
				t.Errorf("%+v, want exit %d", got, tt.want)
			}
			if got := bookend(0, n.config, "baseline", "--force", "accept", string(cardA)); got.exit != 0 {
				t.Errorf("forced: %+v", got)
			}
		})
	}
}

// Nothing is accepted of which nobody could tell later whether it still holds, or by whom a driver is not to be asked.
func TestBaselineAcceptNeedsADriver(t *testing.T) {
	n := newNode(t)
	n.shows(t, 40)
	must(t, os.Remove(filepath.Join(n.dir, "sys/module/nvidia/version")))
	if got := bookend(0, n.config, "baseline", "accept", string(cardA)); got.exit != exitTrouble || !strings.Contains(got.err, "epoch is unknown") {
		t.Errorf("epoch unknown: %+v", got)
	}
	write(t, filepath.Join(n.dir, "gpu"), "#!/bin/sh\nexit 1\n", 0o755)
	if got := bookend(0, n.config, "baseline", "accept", string(cardA)); got.exit != exitTrouble || !strings.Contains(got.err, "BKD-BK-CRASH") {
		t.Errorf("no backend: %+v", got)
	}
	if got := bookend(65534, n.config, "baseline", "accept", string(cardA)); got.exit != exitDenied || !strings.Contains(got.err, "needs root") {
		t.Errorf("not root: %+v", got)
	}
}

func TestBaselineListAndReset(t *testing.T) {
	n := newNode(t)
	if got := bookend(0, n.config, "baseline"); got.exit != 0 || !strings.HasPrefix(got.out, "no card of node n1") {
		t.Errorf("%+v", got)
	}
	learned := finding.Baseline{
		GPU: cardB, Epoch: n.epoch, Bytes: 10 << 20, Holder: "dcgm.service", At: time.Second,
		Residents: []finding.Resident{{PID: 812, Bytes: 30 << 20, Service: "dcgm.\x1b[2Jservice"}},
	}
	accepted := finding.Baseline{GPU: cardA, Epoch: n.epoch, Bytes: 40 << 20, Holder: "accepted", Accepted: true}
	must(t, n.store.PutBaseline(learned))
	must(t, n.store.PutBaseline(accepted))
	list := bookend(0, n.config, "baseline", "--node", "n1")
	for _, want := range []string{
		string(cardA) + "  40 MiB without a process, accepted 20", string(cardB) + "  10 MiB without a process, held by dcgm.service, learned 20",
		"\n  PID 812 (dcgm.",
	} {
		if !strings.Contains(list.out, want) || strings.Contains(list.out, "\x1b") {
			t.Errorf("lacks %q:\n%s", want, list.out)
		}
	}
	write(t, filepath.Join(n.dir, "sys/module/nvidia/version"), "590.1\n", 0o644)
	if list := bookend(0, n.config, "baseline"); strings.Count(list.out, "before the last driver reload or reboot: no longer counts\n") != 2 {
		t.Errorf("after an update: %+v", list)
	}
	if got := bookend(0, n.config, "baseline", "reset", string(cardA)); got.exit != 0 || len(n.known(t)) != 1 || !strings.HasPrefix(got.out, "forgotten: 1 baseline;") {
		t.Errorf("%+v, left %v", got, n.known(t))
	}
	for range 2 {
		if got := bookend(0, n.config, "baseline", "reset", "all"); got.exit != 0 || len(n.known(t)) != 0 {
			t.Errorf("%+v, left %v", got, n.known(t))
		}
	}
}

// A card is named to reset as it is to accept, and by its UUID also where the driver cannot be asked.
func TestBaselineResetByName(t *testing.T) {
	n := newNode(t)
	for _, name := range []string{"0000:1b:00.0", "00000000:1B:00.0", "nvidia0", string(cardA)} {
		n.shows(t, 40)
		must(t, n.store.PutBaseline(finding.Baseline{GPU: cardA, Epoch: n.epoch, Bytes: 40 << 20, Holder: "accepted", Accepted: true}))
		if got := bookend(0, n.config, "baseline", "reset", name); got.exit != 0 || len(n.known(t)) != 0 {
			t.Errorf("%s: %+v, left %v", name, got, n.known(t))
		}
	}
	for name, says := range map[string]string{
		"GPU-x": `no such card: "GPU-x"`, "0": "may mean 2 cards", string(cardB): "no baseline of " + string(cardB),
	} {
		if got := bookend(0, n.config, "baseline", "reset", name); got.exit == 0 || !strings.Contains(got.err, says) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	write(t, filepath.Join(n.dir, "gpu"), "#!/bin/sh\nexit 1\n", 0o755)
	if got := bookend(0, n.config, "baseline", "reset", "nvidia0"); got.exit != exitTrouble || !strings.Contains(got.err, "give the UUID") {
		t.Errorf("no driver: %+v", got)
	}
}

// A card with services on it may be accepted with them; with anybody else's process it may not.
func TestAcceptable(t *testing.T) {
	service := attrib.Process{PID: 812, Start: time.Second, Service: "dcgm.service"}
	reading := func(change func(*gpu.Reading)) gpu.Reading {
		r := gpu.Reading{
			Device: gpu.Device{ID: cardA}, Memory: gpu.Memory{Used: gpu.Bytes(80 << 20)},
			Processes: []gpu.Process{{PID: 812, Memory: gpu.Bytes(30 << 20)}},
		}
		change(&r)
		return r
	}
	for name, tt := range map[string]struct {
		r    gpu.Reading
		who  attrib.Process
		says string
	}{
		"a service":             {reading(func(*gpu.Reading) {}), service, ""},
		"somebody's":            {reading(func(*gpu.Reading) {}), attrib.Process{PID: 812, Name: "train\x1b"}, `process 812 (train\x1b)`},
		"a job's":               {reading(func(*gpu.Reading) {}), attrib.Process{PID: 812, Service: "x", Cgroup: slurm.Owner{ID: 3}}, "process 812"},
		"perhaps a job's":       {reading(func(*gpu.Reading) {}), attrib.Process{PID: 812, Service: "x", EnvJobID: 3}, "process 812"},
		"gone":                  {reading(func(*gpu.Reading) {}), attrib.Process{PID: 812, Gone: true}, "process 812"},
		"not read":              {reading(func(*gpu.Reading) {}), attrib.Process{PID: 812, Why: "denied", Service: "x"}, "process 812"},
		"a large service":       {reading(func(r *gpu.Reading) { r.Processes[0].Memory = gpu.Bytes(65 << 20) }), service, "no small service"},
		"bytes unknown":         {reading(func(r *gpu.Reading) { r.Processes[0].Memory = gpu.Unknown("x") }), service, "process 812"},
		"processes unknown":     {reading(func(r *gpu.Reading) { r.ProcessesUnknown = "cannot be true" }), service, "cannot be true"},
		"used unknown":          {reading(func(r *gpu.Reading) { r.Memory.Used = gpu.Unknown("old driver") }), service, "old driver"},
		"figures say nothing":   {reading(func(r *gpu.Reading) { r.Memory.Unjudged = "NUMA" }), service, "NUMA"},
		"used with the reserve": {reading(func(r *gpu.Reading) { r.Memory.UsedHasReserved = true }), service, "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := acceptable(tt.r, map[int]attrib.Process{812: tt.who}, config.Default().Thresholds)
			if (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
				t.Fatalf("%+v, %v; want %q", b, err, tt.says)
			}
			if err == nil && (b.Bytes != 41<<20 || len(b.Residents) != 1 || b.Residents[0].Service != "dcgm.service" || !b.Accepted) {
				t.Errorf("%+v", b)
			}
		})
	}
}
