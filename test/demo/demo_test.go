package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bookend/test/cluster"
)

// play runs a demonstration and returns all it wrote.
func play(t *testing.T, o options) string {
	t.Helper()
	var out bytes.Buffer
	o.Programs, o.GPUs, o.Out, o.In = "../../bin", "fake", &out, strings.NewReader("")
	if err := perform(o); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	return out.String()
}

func TestTheWholeStory(t *testing.T) {
	out := play(t, options{Observe: []string{"clean", "orphan", "heir"}})
	for _, phrase := range []string{
		"was not clean when your job got it", "probably your job 2", "left clean by your job",
		"Epilog error", "DRAIN for BKD-ORPHAN (exit 10)", "the next job waits",
	} {
		if !strings.Contains(out, phrase) {
			t.Errorf("the story lacks %q:\n%s", phrase, out)
		}
	}
}

// The same jobs in another order, and the orphan gone before its heir comes: the logs are others.
func TestOrphanEndedByHand(t *testing.T) {
	out := play(t, options{
		Observe: []string{"orphan", "stranger", "heir"}, ObserveOnly: true, Pause: true,
		Between: func(d *demo, next int) {
			if d.Observe[next] == "heir" {
				endAll(t, d)
			}
		},
	})
	if n := strings.Count(out, "was not clean when your job got it"); n != 1 {
		t.Errorf("%d jobs were told of a dirty card, want the stranger alone:\n%s", n, out)
	}
	if !strings.Contains(out, "another user's job") || strings.Contains(out, "your job 1") {
		t.Errorf("want the stranger told of another user's job, nobody of his own:\n%s", out)
	}
}

func endAll(t *testing.T, d *demo) {
	on, err := d.card.holders()
	if err != nil || len(on) == 0 {
		t.Errorf("holders = %v, %v; want the orphan", on, err)
	}
	for _, h := range on {
		if err := h.stop(); err != nil {
			t.Error(err)
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for name, o := range map[string]options{
		"unknown job":  {Observe: []string{"clean", "leak"}, GPUs: "fake"},
		"unknown GPUs": {Observe: []string{"clean"}, GPUs: "some"},
	} {
		if err := o.check(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

const (
	cleanStart = "| bookend: GPU 0 of n1 clean: 143156 MiB free, nobody on it\n"
	dirtyStart = "| bookend: GPU 0 of n1 was not clean when your job got it\n" +
		"| bookend:   Found:  20518 MiB held by process 70 (train) since 07:35:13\n" +
		"| bookend:   Who:    probably your job 2\n| bookend:   Means:  not caused by this job; you have\n| bookend:           122629 MiB free\n"
	strangeStart = "| bookend: GPU 0 of n1 was not clean when your job got it\n" +
		"| bookend:   Found:  20518 MiB held by a process that is not yours\n" +
		"| bookend:   Who:    probably another user's job\n| bookend:   Means:  not caused by this job\n"
	job      = "ready pid=80 bytes=1\n"
	cleanEnd = "\n| bookend: GPU 0 of n1 left clean by your job\n"
	foundEnd = "\n| bookend: GPU 0 of n1 as your job found it: nothing more on it than before\n"
	leftEnd  = "| bookend: process 80 (train) still uses a GPU at the end of your script\n" +
		"\n| bookend: GPU 0 of n1 was not clean after your job\n" +
		"| bookend:   Found:  20518 MiB held by process 80 (train) since 07:35:13\n| bookend:   Who:    probably this job\n"
)

// A log is right for the facts it fits, and wrong for all others.
func TestChecks(t *testing.T) {
	old := holder{PID: 70, Start: "1", UID: 5, Name: "train", Job: "2"}
	own := holder{PID: 80, Start: "2", UID: 5, Name: "train", Job: "3"}
	one, two := []holder{old}, []holder{own}
	situations := map[string]facts{
		"clean":            {Job: "3", UID: 5, Node: "n1"},
		"leaves":           {Job: "3", UID: 5, Node: "n1", Ended: two, After: two},
		"inherits":         {Job: "3", UID: 5, Node: "n1", Before: one, Begun: one, Ended: one, After: one},
		"is a stranger":    {Job: "3", UID: 9, Node: "n1", Before: one, Begun: one, Ended: one, After: one},
		"inherits, leaves": {Job: "3", UID: 5, Node: "n1", Before: one, Begun: one, Ended: []holder{old, own}, After: []holder{old, own}},
	}
	logs := map[string]string{
		"clean": cleanStart + job + cleanEnd, "leaves": cleanStart + job + leftEnd, "inherits": dirtyStart + job + foundEnd,
		"is a stranger": strangeStart + job + foundEnd, "inherits, leaves": dirtyStart + job + leftEnd,
	}
	for happened, f := range situations {
		for told, log := range logs {
			if unmet := unmet(f.checks(log)); (unmet == "") != (happened == told) {
				t.Errorf("job %s, log of one that %s: unmet %q", happened, told, unmet)
			}
		}
	}
}

func unmet(checks []check) string {
	for _, c := range checks {
		if !c.met {
			return c.what
		}
	}
	return ""
}

// A process that goes while Bookend looks may be reported or not.
func TestNothingIsExpectedOfWhatChangedMeanwhile(t *testing.T) {
	old := []holder{{PID: 70, Start: "1", UID: 5, Name: "train", Job: "2"}}
	f := facts{Job: "3", UID: 5, Node: "n1", Before: old}
	for _, log := range []string{cleanStart + job + cleanEnd, dirtyStart + job + foundEnd} {
		if what := unmet(f.checks(log)); what != "" {
			t.Errorf("unmet: %s, in\n%s", what, log)
		}
	}
	if what := unmet(f.checks(job)); what == "" {
		t.Error("a log without any report passes")
	}
}

// Slurm's GPU 0 is /dev/nvidia0, CUDA's is the first on the bus.
func TestFirstIsMinorZero(t *testing.T) {
	gpus := func(minors ...string) string {
		dir := t.TempDir()
		for i, minor := range minors {
			card := filepath.Join(dir, fmt.Sprintf("0000:%d0:00.0", i+1))
			if err := errors.Join(os.Mkdir(card, 0o755), os.WriteFile(card+"/information", []byte("Model: \t NVIDIA H200\n"+minor), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	const zero, one = "Device Minor: \t 0\n", "Device Minor: \t 1\n"
	for _, tt := range []struct {
		dir  string
		want bool
	}{{gpus(zero, one), true}, {gpus(one, zero), false}, {gpus(""), false}, {gpus(), false}} {
		if got := firstIsMinorZero(tt.dir); got != tt.want {
			t.Errorf("firstIsMinorZero = %v, want %v", got, tt.want)
		}
	}
}

func TestHoldersOfAJob(t *testing.T) {
	a, b := holder{PID: 1, Job: "1"}, holder{PID: 2, Job: "2"}
	all := []holder{a, b}
	if got := of(all, cluster.JobID("2")); len(got) != 1 || got[0] != b {
		t.Errorf("of job 2: %v", got)
	}
	again := a
	again.Start = "9" // the PID, used again
	if got := both(all, []holder{again, b}); len(got) != 1 || got[0] != b {
		t.Errorf("still there: %v", got)
	}
}
