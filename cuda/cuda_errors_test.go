package main

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"bookend/internal/allocation"
	"bookend/internal/gpu"
	"bookend/test/fakegpu"
	"bookend/test/golden"
	"bookend/test/must"
)

const mib = 1 << 20

var update = flag.Bool("update", false, "rewrite docs/cuda-errors.md and testdata")

// The table of docs/cuda-errors.md is made from that of the code; what is above it is written by hand.
func TestErrorsDoc(t *testing.T) {
	const doc, head = "../docs/cuda-errors.md", "| --- | --- | --- | --- |\n"
	above, _, found := strings.Cut(must.Read(t, doc), head)
	must.Not(t, !found, "%s has no table", doc)
	var page strings.Builder
	page.WriteString(above + head)
	for _, e := range cudaErrors {
		code := fmt.Sprint(e.Code)
		switch {
		case e.Code == allocation.Lacks:
			code = "none"
		case e.Call != "":
			code += " of " + e.Call
		}
		fmt.Fprintf(&page, "| %s | %s | %s | %s |\n", code, e.Name, e.Meaning, e.Remedy)
	}
	golden.File(t, *update, doc, page.String())
}

// Each call that may fail, by the whole program, with a code that has words; and one that has the driver's name alone.
func TestEveryCall(t *testing.T) {
	w := world(t, "gpus=1")
	for _, call := range []string{
		"cuInit", "cuDeviceGetByPCIBusId", "cuDeviceGetAttribute", "cuMemGetAllocationGranularity", "cuMemCreate",
		"cuMemRelease",
	} {
		failsWith(t, w, call, 46)
		failsWith(t, w, call, 999)
	}
	failsWith(t, w, "cuInit", 2)
}

func failsWith(t *testing.T, w *fakegpu.World, call string, code int) {
	t.Helper()
	must.Do(t, w.Set("on."+call, fmt.Sprint("rc ", code)))
	p := probed(t, probeOf(t, w, 0))[0]
	words, _ := cuda.LookUp(call, code)
	result := gpu.ProbeBroken
	if code == 46 {
		result = gpu.ProbeBlocked
	}
	want := gpu.CallError{Call: call, Code: code, Name: words.Name, Meaning: words.Meaning, Remedy: words.Remedy}
	if p.Result != result || p.Error == nil || *p.Error != want || p.Largest.Known() ||
		p.Why != fmt.Sprintf("%s: %s (%d)", call, words.Name, code) {
		t.Errorf("%s %d: got %s", call, code, text(t, p))
	}
	must.Do(t, w.Set("on."+call, ""))
}

// A code without words has the driver's own name, if that.
func TestOtherCodes(t *testing.T) {
	w := world(t, "gpus=1")
	for code, want := range map[int]string{720: "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
		4711: "unknown to the driver"} {
		must.Do(t, w.Set("on.cuMemCreate", fmt.Sprint("rc ", code)))
		p := probed(t, probeOf(t, w, 0))[0]
		if p.Result != gpu.ProbeBroken || p.Error == nil ||
			*p.Error != (gpu.CallError{Call: "cuMemCreate", Code: code, Name: want}) {
			t.Errorf("%d: got %s", code, text(t, p))
		}
	}
}
