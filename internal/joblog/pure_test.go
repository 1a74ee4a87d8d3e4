package joblog

import (
	"errors"
	"strings"
	"testing"

	"bookend/internal/slurm"
)

var testJob = slurm.Job{ID: 128, User: "alice", Node: "n1", WorkDir: "/home/alice/run 1"}

func TestExpand(t *testing.T) {
	tests := map[string]string{
		"/out/plain":               "/out/plain",
		"/out/%j.out":              "/out/128.out",
		"/out/job%4j.out":          "/out/job0128.out",
		"/out/%10j":                "/out/0000000128",
		"/out/%11j":                "/out/0000000128",
		"/out/%99999999999999999j": "/out/0000000128",
		"/out/%J":                  "/out/128",
		"/out/%2j-%N":              "/out/128-n1",
		"/out/%5N":                 "/out/n1",
		"/home/%u/%u.log":          "/home/alice/alice.log",
		"/out/%n%t%s":              "/out/00batch",
		"/out/100%%":               "/out/100%",
		"/out/%%j":                 "/out/%j",
		"/out/%%%j":                "/out/%128",
		"/out/a b":                 "/out/a b",
		"slurm-%j.out":             "/home/alice/run 1/slurm-128.out",
		"../logs/x":                "/home/alice/run 1/../logs/x",
		`/out/\%j`:                 "/out/%j",
		`/out/%j\`:                 "/out/%j",
	}
	for pattern, want := range tests {
		if got, err := Expand(pattern, Facts{Job: testJob}); err != nil || got != want {
			t.Errorf("Expand(%q) = %q, %v; want %q", pattern, got, err, want)
		}
	}
}

func TestExpandOfAnArrayTask(t *testing.T) {
	task := Facts{Job: testJob, Array: slurm.ArrayTask{Master: 120, Task: 7}}
	for pattern, want := range map[string]string{
		"/out/%A_%a": "/out/120_7", "/out/%A_%3a_%j": "/out/120_007_128",
	} {
		if got, err := Expand(pattern, task); err != nil || got != want {
			t.Errorf("Expand(%q) = %q, %v; want %q", pattern, got, err, want)
		}
	}
}

func TestExpandUnknown(t *testing.T) {
	for _, pattern := range []string{
		"/out/%x", "/out/%A_%a", "/out/%b", "/out/%r", "/out/%S", "/out/%z", "/out/%", "/out/%5", "/out/%3t", "/out/%3%",
		`/out/\\x`, `out\%j`, "", "0", "-1",
	} {
		if got, err := Expand(pattern, Facts{Job: testJob}); !errors.Is(err, ErrPattern) {
			t.Errorf("Expand(%q) = %q, %v; want %v", pattern, got, err, ErrPattern)
		}
	}
	for pattern, job := range map[string]slurm.Job{
		"/out/%u": {Node: "n1"}, "/out/%N": {User: "alice"}, "relative": {}, "also": {WorkDir: "relative"},
		"/out/\x00": testJob, "/" + strings.Repeat("x", maxPath): testJob,
	} {
		if got, err := Expand(pattern, Facts{Job: job}); err == nil {
			t.Errorf("Expand(%.20q) = %q", pattern, got)
		}
	}
}

func TestDrop(t *testing.T) {
	for _, want := range []Drop{
		{},
		{Target: Target{Path: "/home/alice/slurm-7.out"}},
		{Target{"/a \"b\"\n<é>", 1<<64 - 1, 1<<64 - 1}, slurm.ArrayTask{Master: 5, Task: 3}, 9, Unlimited},
		{AddressSpace: 4 << 30},
	} {
		b, err := want.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ParseDrop(b); err != nil || got != want {
			t.Errorf("%s came back as %+v, %v", b, got, err)
		}
	}
	if _, err := (Drop{Target: Target{Path: "/" + strings.Repeat("x", MaxDrop)}}).Encode(); err == nil {
		t.Error("a record larger than its limit was encoded")
	}
}

func TestParseDropRefuses(t *testing.T) {
	for _, text := range []string{
		"", "{}", "null", "[]", `"x"`, `{"bookend":2}`, `{"bookend":1}{"bookend":1}`, `{"bookend":1} x`,
		`{"bookend":1,"owner":0}`, `{"bookend":1,"target":{"path":"relative"}}`, `{"bookend":1,"target":{"ino":3}}`,
		`{"bookend":1,"target":{"path":"/a\u0000b"}}`, `{"bookend":1,"target":{"path":"/a","dev":-1}}`,
		`{"bookend":1,"address_space":0}`, `{"bookend":1,"address_space":4611686018427387905}`, `{"bookend":1,"address_space":-1}`,
		`{"bookend":1,"address_space":1.5}`, `{"bookend":1,"address_space":"4"}`, `{"bookend":1,"address_space":18446744073709551616}`,
		`{"bookend":1,"array":{"task":3}}`, `{"bookend":1,"het_id":4294967296}`, `{"bookend":1`,
		`{"bookend":1}` + strings.Repeat(" ", MaxDrop),
	} {
		if got, err := ParseDrop([]byte(text)); err == nil || got != (Drop{}) {
			t.Errorf("ParseDrop(%.60q) = %+v, %v", text, got, err)
		}
	}
}
