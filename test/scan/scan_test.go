package main

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bookend/internal/record"
	"bookend/test/must"
)

func TestSmallBench(t *testing.T) {
	must.SeeAll(t)
	var out strings.Builder
	nursery := filepath.Join(t.TempDir(), "nursery")
	if text, err := exec.Command("cc", "-o", nursery, "nursery/nursery.c").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	o := options{Processes: 40, FDs: 12, CPUs: 1, Max: time.Hour, Nursery: nursery}
	if err := bench(o, &out); err != nil || !strings.Contains(out.String(), "480 descriptors, 6 holders, 1 cores") {
		t.Fatalf("%v\n%s", err, out.String())
	}
	o.Max = 1
	if err := bench(o, &out); !errors.Is(err, errFailed) {
		t.Errorf("slower than allowed: %v", err)
	}
	other := record.Scan{Holdings: []record.Holding{{Process: record.Process{PID: 8, Start: 1}, UVM: true}}}
	if wrong := compare(other, map[int]record.Holding{7: {UVM: true}}); len(wrong) != 2 {
		t.Errorf("another one than it must be: %q", wrong)
	}
}
