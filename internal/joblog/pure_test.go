package joblog

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"bookend/internal/slurm"
)

var testJob = slurm.Job{ID: 128, User: "alice", Node: "n1", WorkDir: "/home/alice/run 1"}

func TestExpand(t *testing.T) {
	tests := map[string]string{
		"/out/plain":      "/out/plain",
		"/out/%j.out":     "/out/128.out",
		"/home/%u/%u.log": "/home/alice/alice.log",
		"/out/100%%":      "/out/100%",
		"/out/%%j":        "/out/%j",
		"/out/%%%j":       "/out/%128",
		"/out/a b":        "/out/a b",
		"slurm-%j.out":    "/home/alice/run 1/slurm-128.out",
		"../logs/x":       "/home/alice/run 1/../logs/x",
	}
	for pattern, want := range tests {
		if got, err := Expand(pattern, Facts{Job: testJob}); err != nil || got != want {
			t.Errorf("Expand(%q) = %q, %v; want %q", pattern, got, err, want)
		}
	}
}

// What a task hook and newer versions tell is filled in where it is told.
func TestExpandToldMore(t *testing.T) {
	task := Facts{Job: testJob, Told: true, Array: slurm.ArrayTask{Master: 120, Task: 17}, Name: "fine tune"}
	single := Facts{Job: testJob, Told: true, Name: "a/b"}
	newer := task
	newer.Job.SLUID = "sCHNM7Y8WBK900"
	for pattern, tt := range map[string]struct {
		facts Facts
		want  string // empty for ErrPattern
	}{
		"/out/%A_%a":    {task, "/out/120_17"},
		"/out/%A_%a_%j": {task, "/out/120_17_128"},
		"/o/%x-%j_%a":   {task, "/o/fine tune-128_17"},
		"/o/%x":         {single, "/o/a/b"}, // a folder, as Slurm makes of it
		"/o/%A":         {single, "/o/128"},
		"/o/%a":         {single, ""}, // 4294967294
		"/o/%b":         {task, ""},   // %b up to 24.05, 7 from 24.11
		"/o/%S":         {newer, ""},
		"/o/%N":         {newer, "/o/n1"},
		"/o/%N.%j":      {Facts{Job: testJob}, ""},
	} {
		got, err := Expand(pattern, tt.facts)
		if got != tt.want || errors.Is(err, ErrPattern) != (tt.want == "") {
			t.Errorf("Expand(%q) = %q, %v; want %q", pattern, got, err, tt.want)
		}
	}
}

func TestExpandUnknown(t *testing.T) {
	for _, pattern := range []string{
		"/out/%x", "/out/%A_%a", "/out/%b", "/out/%r", "/out/%S", "/out/%", "/out/%5", "/out/%5j", "/out/%J", "/out/%t", "/out/%n",
		`/out/\\x`, `/out/\%j`, "/out/%s", "/out/%z", "", "0", "-1",
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
		{
			Target: Target{"/a \"b\"\n<é>", 1<<64 - 1, 1<<64 - 1}, Array: slurm.ArrayTask{Master: 5,
				Task: 3}, HetID: 9, Name: "x",
			Steps: []Target{{Path: "/o.0"}, {"/o.1", 1, 2}}, More: 3, Elsewhere: true, AddressSpace: Unlimited,
		},
		{AddressSpace: 4 << 30},
	} {
		b, err := want.Encode()
		must(t, err)
		if got, err := ParseDrop(b); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s came back as %+v, %v", b, got, err)
		}
	}
	if _, err := (Drop{Target: Target{Path: "/" + strings.Repeat("x", MaxDrop)}}).Encode(); err == nil {
		t.Error("a record larger than its limit was encoded")
	}
}

// A record of an earlier release is one.
func TestParseDropOfBefore(t *testing.T) {
	const text = `{"bookend":1,"target":{"path":"/a","dev":1,"ino":2},"array":{"master":5,"task":3},"het_id":9,` +
		`"address_space":4096}`
	want := Drop{Target: Target{"/a", 1, 2}, Array: slurm.ArrayTask{Master: 5, Task: 3}, HetID: 9, AddressSpace: 4096}
	if got, err := ParseDrop([]byte(text)); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}

// The most recent files are kept, each once; the others are counted, also where they do not fit into a record.
func TestDropNote(t *testing.T) {
	var d Drop
	name := func(n int) Target { return Target{Path: fmt.Sprintf("/out.%02d", n)} }
	for n := range MaxSteps + 2 {
		d.Note([]Target{name(n)})
	}
	d.Note([]Target{name(5), name(5)})
	if len(d.Steps) != MaxSteps || d.More != 2 || d.Steps[0] != name(5) || d.Steps[1] != name(9) ||
		d.Steps[MaxSteps-1] != name(2) {
		t.Errorf("%+v", d)
	}
	for i := range d.Steps {
		d.Steps[i].Path = strings.Repeat("/long", 200) + d.Steps[i].Path
	}
	b, err := d.Encode()
	must(t, err)
	got, err := ParseDrop(b)
	if err != nil || len(got.Steps) != 4-1 || got.More != 2+MaxSteps-len(got.Steps) || got.Steps[0] != d.Steps[0] {
		t.Errorf("%d steps, %d more, %v", len(got.Steps), got.More, err)
	}
}

func TestParseDropRefuses(t *testing.T) {
	for _, text := range []string{
		"", "{}", "null", "[]", `"x"`, `{"bookend":2}`, `{"bookend":1}{"bookend":1}`, `{"bookend":1} x`,
		`{"bookend":1,"target":{"path":"relative"}}`, `{"bookend":1,"target":{"ino":3}}`,
		`{"bookend":1,"target":{"path":"/a\u0000b"}}`, `{"bookend":1,"target":{"path":"/a","dev":-1}}`,
		`{"bookend":1,"address_space":4611686018427387905}`,
		`{"bookend":1,"address_space":-1}`,
		`{"bookend":1,"address_space":1.5}`, `{"bookend":1,"address_space":"4"}`,
		`{"bookend":1,"address_space":18446744073709551616}`,
		`{"bookend":1,"array":{"task":3}}`, `{"bookend":1,"het_id":4294967296}`, `{"bookend":1`,
		`{"bookend":1,"steps":[{"path":"o"}]}`, `{"bookend":1,"steps":[{}]}`, `{"bookend":1,"more":-1}`,
		`{"bookend":1,"more":1e9}`,
		`{"bookend":1,"steps":[` + strings.Repeat(`{"path":"/a"},`, MaxSteps) + `{"path":"/a"}]}`,
		`{"bookend":1,"name":"` + strings.Repeat("x", MaxName+1) + `"}`, `{"bookend":1,"elsewhere":1}`,
		`{"bookend":1}` + strings.Repeat(" ", MaxDrop),
	} {
		if got, err := ParseDrop([]byte(text)); err == nil || !reflect.DeepEqual(got, Drop{}) {
			t.Errorf("ParseDrop(%.60q) = %+v, %v", text, got, err)
		}
	}
}
