package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bookend/internal/ledger"
	"bookend/internal/slurm"
	"bookend/test/cluster"
	"bookend/test/privacy"
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
	out := play(t, options{Observe: []string{"clean", "oom", "pool", "orphan", "heir"}})
	for _, phrase := range []string{
		"was not clean when your job got it", "probably your job 4", "left clean by your job",
		"Epilog error", "DRAIN for BKD-ORPHAN (exit 10)", "the next job waits",
		"Why out of memory: your job itself used up the GPU", "Why out of memory: your framework's pool was in pieces",
		"143154 in one block", "test allocation: ok, largest block 143154 MiB", "What the two users know of each other", "nothing, in ",
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
	outOfMemory = "torch.OutOfMemoryError: CUDA out of memory.\n"
	ownEnd      = cleanEnd + "| bookend: Why out of memory: your job itself used up the GPU\n| bookend:   no           another process: none\n" +
		"| bookend:   YES          your own use: 138.5 GiB in use\n| bookend:   Try:    a smaller batch\n"
	poolEnd = cleanEnd + "| bookend: Why out of memory: your framework's pool was in pieces\n| bookend:   no           another process: none\n" +
		"| bookend:   YES          framework's pool: 66.0 GiB unused\n| bookend:   Try:    a smaller batch\n"
	othersEnd = foundEnd + "| bookend: Why out of memory: an earlier job left GPU memory in use\n"
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
		"is too large":     {Job: "3", UID: 5, Node: "n1", Why: kinds["oom"].why},
		"is in pieces":     {Job: "3", UID: 5, Node: "n1", Why: kinds["pool"].why},
		"has no room":      {Job: "3", UID: 5, Node: "n1", Before: one, Begun: one, Ended: one, After: one, Why: kinds["oom"].why},
	}
	logs := map[string]string{
		"clean": cleanStart + job + cleanEnd, "leaves": cleanStart + job + leftEnd, "inherits": dirtyStart + job + foundEnd,
		"is a stranger": strangeStart + job + foundEnd, "inherits, leaves": dirtyStart + job + leftEnd,
		"is too large": cleanStart + outOfMemory + ownEnd, "is in pieces": cleanStart + outOfMemory + poolEnd,
		"has no room": dirtyStart + outOfMemory + othersEnd,
	}
	for happened, f := range situations {
		for told, log := range logs {
			if unmet := unmet(f.checks(log)); (unmet == "") != (happened == told) {
				t.Errorf("job %s, log of one that %s: unmet %q", happened, told, unmet)
			}
		}
	}
}

// A record is right for a job that ran out of memory, and a test of its card for one that was alone on it.
func TestShown(t *testing.T) {
	old := []holder{{PID: 70, Start: "1", UID: 5, Name: "train", Job: "2"}}
	const (
		begun   = "job 3 start: clean test allocation: not made "
		tested  = "end: clean test allocation: ok, largest block 143154 MiB "
		not     = "end: clean test allocation: not made: a process is on it "
		reasons = "torch.OutOfMemoryError: CUDA Why out of memory: your job itself used up the GPU YES your own use GPU 0"
		found   = " BKD-DIRTY PID 70 (train) job: 2 (uid 5)"
	)
	for name, tt := range map[string]struct {
		facts facts
		show  string
		met   bool
	}{
		"clean, tested":         {facts{}, begun + tested, true},
		"clean, not tested":     {facts{}, begun + not, false},
		"clean, not shown":      {facts{}, begun, false},
		"a real card":           {facts{Real: true}, begun + not, true},
		"somebody on it":        {facts{Before: old, Begun: old, Ended: old, After: old}, begun + not + found, true},
		"tested all the same":   {facts{Before: old, Begun: old, Ended: old, After: old}, begun + tested + found, false},
		"gone meanwhile":        {facts{Ended: old}, begun + not, true},
		"ran out":               {facts{Why: kinds["oom"].why}, begun + tested + reasons, true},
		"ran out, not told":     {facts{Why: kinds["oom"].why}, begun + tested, false},
		"ran out, another told": {facts{Why: kinds["pool"].why}, begun + tested + reasons, false},
	} {
		if what := unmet(tt.facts.shown(logText(tt.show))); (what == "") != tt.met {
			t.Errorf("%s: unmet %q", name, what)
		}
	}
}

// On a real GPU real PyTorch runs out of memory, or those jobs are left out.
func TestJobsOfARealGPU(t *testing.T) {
	for name, tt := range map[string]struct {
		card   card
		script string
		left   string
	}{
		"fake":            {card{}, kinds["oom"].script, "clean,oom,pool,heir"},
		"real, PyTorch":   {card{real: true, python: "/opt/python3"}, "/opt/python3 /d/bin/train.py whole", "clean,oom,pool,heir"},
		"real without it": {card{real: true}, "", "clean,heir"},
	} {
		var said bytes.Buffer
		d := &demo{teller: &teller{out: &said}, card: tt.card, path: "/d/bin:/usr/bin", options: options{Observe: strings.Split("clean,oom,pool,heir", ",")}}
		if d.leaveOut(); strings.Join(d.Observe, ",") != tt.left || (said.Len() > 0) != (tt.script == "") {
			t.Errorf("%s: %v, said %q", name, d.Observe, said.String())
		}
		if got := d.script(kinds["oom"]); tt.script != "" && got != tt.script {
			t.Errorf("%s: runs %q", name, got)
		}
		if got := d.script(kinds["heir"]); got != kinds["heir"].script {
			t.Errorf("%s: the heir runs %q", name, got)
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

// Whatever a user reads of the other ends the story; what root reads is root's.
func TestReadingsAreSearched(t *testing.T) {
	people := []privacy.Person{{Name: "games", UID: 5, Home: "/site/games"}, {Name: "news", UID: 9, Home: "/site/news"}}
	known := privacy.Know(people, []ledger.Run{{Job: slurm.Job{ID: 12, UID: 9}}})
	for who, want := range map[string]int{"games": 1, "news": 0, "root": 0} {
		told := &teller{out: io.Discard}
		told.typed(who, "cat slurm-13.out", cleanStart+"| bookend:   Who:    probably job 12\n"+cleanEnd)
		if leaks := told.leaks(known); len(leaks) != want || want > 0 && !strings.HasPrefix(leaks[0], "games reads job 12 of news: ") {
			t.Errorf("%s: %q", who, leaks)
		}
	}
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
