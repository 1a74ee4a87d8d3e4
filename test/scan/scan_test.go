package main

import (
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bookend/internal/attrib"
)

func TestSmallBench(t *testing.T) {
	var out strings.Builder
	nursery := filepath.Join(t.TempDir(), "nursery")
	if text, err := exec.Command("cc", "-o", nursery, "nursery/nursery.c").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	o := options{Processes: 40, FDs: 12, Maps: 3, CPUs: 1, Runs: 1, Max: time.Hour, Nursery: nursery}
	if err := bench(o, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if text := out.String(); !strings.Contains(text, "480 descriptors, 6 holders, 1 cores") {
		t.Errorf("%s", text)
	}
	o.Max = 1
	if err := bench(o, io.Discard); !errors.Is(err, errFailed) {
		t.Errorf("slower than allowed: %v", err)
	}
}

func TestCompare(t *testing.T) {
	process := func(pid int) attrib.Process { return attrib.Process{PID: pid, Start: 1} }
	right := attrib.Holding{Process: process(7), UVM: true}
	want := map[int]attrib.Holding{7: {UVM: true}}
	unreadable := attrib.Process{PID: 7, Start: 1, Why: "x"}
	for name, tc := range map[string]struct {
		scan  attrib.Scan
		wrong int
	}{
		"right":      {attrib.Scan{Holdings: []attrib.Holding{right}}, 0},
		"partial":    {attrib.Scan{Holdings: []attrib.Holding{right}, Partial: "time was up"}, 1},
		"missed":     {attrib.Scan{}, 1},
		"one more":   {attrib.Scan{Holdings: []attrib.Holding{right, {Process: process(8), UVM: true}}}, 1},
		"other node": {attrib.Scan{Holdings: []attrib.Holding{{Process: process(7), Control: true}}}, 1},
		"unknown":    {attrib.Scan{Holdings: []attrib.Holding{{Process: unreadable, UVM: true}}}, 1},
	} {
		if wrong := compare(tc.scan, want); len(wrong) != tc.wrong {
			t.Errorf("%s: %q", name, wrong)
		}
	}
}
