package health

import (
	"strings"
	"testing"
	"time"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
)

func failed(call string, number int, name string) *gpu.CallError {
	return &gpu.CallError{Call: call, Code: number, Name: name, Meaning: "it means this.", Remedy: "do that."}
}

func broken(e *gpu.CallError) gpu.Probe {
	return gpu.Probe{Device: card0, Result: gpu.ProbeBroken, Error: e, Why: "the reason"}
}

func TestWhatTestsFind(t *testing.T) {
	earlier := time.Date(2026, 11, 21, 12, 3, 0, 0, time.UTC)
	full := gpu.Probe{Device: card0, Result: gpu.ProbeBlocked, Free: gpu.Bytes(9 << 30),
		Error: failed("cuMemCreate", 2, "CUDA_ERROR_OUT_OF_MEMORY")}
	for name, tt := range map[string]struct {
		o      Outcome
		card   finding.Card
		code   code.Code // empty: no finding
		says   string
		doubts int
	}{
		"ok":      {Outcome{Probe: gpu.Probe{Device: card0, Result: gpu.ProbeOK}}, idle, "", "", 0},
		"skipped": {Outcome{Probe: SkippedTest(card0, "shared")}, idle, "", "", 0},
		"gap": {
			Outcome{Probe: gpu.Probe{Device: card0, Result: gpu.ProbeGap, Free: gpu.Bytes(900 << 20),
				Largest: gpu.Bytes(100 << 20), Attempts: 22}, Seen: 1},
			idle, code.Gap, "900 MiB free, the largest single block was 100 MiB, after 22 attempts", 0,
		},
		"blocked, by two": {Outcome{Probe: full, Seen: 2}, idle, code.Blocked,
			"no memory to be had of 9216 MiB free: cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY (2)", 0},
		"blocked by a mode": {Outcome{Probe: gpu.Probe{Device: card0, Result: gpu.ProbeBlocked, Why: "mode",
			Free: gpu.Unknown("x")}, Seen: 2}, idle, code.Blocked, "mode", 1},
		"broken, by two": {
			Outcome{Probe: broken(failed("cuInit", 802, "CUDA_ERROR_SYSTEM_NOT_READY")), Seen: 2}, idle, code.Broken,
			"cuInit: CUDA_ERROR_SYSTEM_NOT_READY (802); the reason; it means this; do that", 0,
		},
		"broken, by one": {Outcome{Probe: broken(failed("cuInit", 802, "X")), Seen: 1}, idle, code.Broken,
			"cuInit", 1},
		"a word for no code": {Outcome{Probe: broken(&gpu.CallError{Call: "cuInit", Code: 1234, Name: "X"}), Seen: 2},
			idle, code.Broken, "cuInit: X (1234); the reason", 0},
		"our own limits": {Outcome{Probe: broken(failed("cuInit", 2, "X")), Seen: 2}, idle, code.Broken, "cuInit",
			1},
		"a stub": {Outcome{Probe: broken(failed("cuInit", 34, "X")), Seen: 2}, idle, code.Broken,
			"cuInit", 1},
		"an old driver": {Outcome{Probe: broken(failed("cuInit", 35, "X")), Seen: 2}, idle, code.Broken,
			"cuInit", 1},
		"no device": {Outcome{Probe: broken(failed("cuInit", 100, "X")), Seen: 2}, idle, code.Broken,
			"cuInit", 1},
		"no such device": {Outcome{Probe: broken(failed("cuDeviceGet", 101, "X")), Seen: 2}, idle, code.Broken,
			"cuDeviceGet", 1},
		"the operating system": {Outcome{Probe: broken(failed("cuInit", 304, "X")), Seen: 2}, idle, code.Broken,
			"cuInit", 1},
		"no library": {Outcome{Probe: broken(failed("dlopen", 0, "no CUDA library")), Seen: 2}, idle,
			code.Broken, "dlopen: no CUDA library; the reason", 1},
		"a crash, twice": {Outcome{Probe: broken(nil), Seen: 2}, idle, code.Broken, "the reason", 1},
		"an earlier hook's": {Outcome{Probe: broken(failed("cuInit", 999, "X")), Seen: 2, Earlier: earlier}, idle,
			code.Broken, "tested at 2026-11-21 12:03:00 UTC", 1},
		"another GPU's": {Outcome{Probe: gpu.Probe{Device: "GPU-9", Result: gpu.ProbeBroken}}, idle, "", "", 0},
	} {
		got := FoundByTests([]finding.Card{tt.card}, []Outcome{tt.o})
		if tt.code == "" {
			if len(got) != 0 {
				t.Errorf("%s: %+v", name, got)
			}
			continue
		}
		if len(got) != 1 || got[0].Code != tt.code || got[0].GPU != card0 || got[0].Index == nil ||
			!strings.Contains(got[0].Observed, tt.says) ||
			len(got[0].Doubts) != tt.doubts || got[0].Expected == "" || got[0].Unknown != "" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestGapIsMemory(t *testing.T) {
	p := gpu.Probe{Device: card0, Result: gpu.ProbeGap, Free: gpu.Bytes(900 << 20), Largest: gpu.Bytes(100 << 20)}
	if f := FoundByTests([]finding.Card{idle}, []Outcome{{Probe: p}}); f[0].Bytes != gpu.Bytes(800<<20) {
		t.Errorf("%+v", f[0].Bytes)
	}
	p.Largest = gpu.Unknown("not read")
	if f := FoundByTests([]finding.Card{idle}, []Outcome{{Probe: p}}); f[0].Bytes.Known() ||
		!strings.Contains(f[0].Observed, "an unknown amount") {
		t.Errorf("%+v", f[0])
	}
}

// Two processes that agree are surer than one; where they do not, the later one is believed, but not for certain.
func TestAgain(t *testing.T) {
	first := Outcome{Probe: broken(failed("cuInit", 999, "X")), Seen: 1}
	ok := gpu.Probe{Device: card0, Result: gpu.ProbeOK}
	for name, tt := range map[string]struct {
		second gpu.Probe
		want   gpu.ProbeResult
		seen   int
	}{
		"the same":      {broken(failed("cuInit", 999, "X")), gpu.ProbeBroken, 2},
		"another error": {broken(failed("cuInit", 802, "Y")), gpu.ProbeBroken, 1},
		"a crash":       {broken(nil), gpu.ProbeBroken, 1},
		"well again":    {ok, gpu.ProbeOK, 1},
		"no answer":     {SkippedTest(card0, "hung"), gpu.ProbeBroken, 1},
	} {
		if got := first.Again(tt.second); got.Result != tt.want || got.Seen != tt.seen {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := first.Again(SkippedTest(card0, "hung")); got.Error == nil || got.Error.Code != 999 {
		t.Errorf("no answer is no news: %+v", got)
	}
}

// A card that was not tested for another's sake is tested alone; one that may not be tested is not asked for again.
func TestRetry(t *testing.T) {
	started := SkippedTest(card0, "CUDA does not show it")
	started.Times.Init = time.Millisecond
	for name, tt := range map[string]struct {
		p           gpu.Probe
		alone, with bool
	}{
		"broken":           {broken(nil), true, true},
		"blocked":          {gpu.Probe{Result: gpu.ProbeBlocked}, true, true},
		"ok":               {gpu.Probe{Result: gpu.ProbeOK}, false, false},
		"gap":              {gpu.Probe{Result: gpu.ProbeGap}, false, false},
		"not to be tested": {SkippedTest(card0, "mode"), false, false},
		"not seen":         {started, false, true},
	} {
		o := Outcome{Probe: tt.p}
		if o.Retry(false) != tt.alone || o.Retry(true) != tt.with {
			t.Errorf("%s: alone %v, with others %v", name, o.Retry(false), o.Retry(true))
		}
	}
}
