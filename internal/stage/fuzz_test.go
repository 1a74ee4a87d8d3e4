package stage

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"testing"

	"bookend/internal/joblog"
	"bookend/internal/ledger"
	"bookend/internal/oom"
	"bookend/internal/report"
)

// What comes back from a process that the user may have got at is what serveTail could have written, or nothing.
func FuzzTailReply(f *testing.F) {
	const message = `{"kind":"device","framework":"PyTorch","asked":{"bytes":2147483648},"total":{"unknown":"not said"},"free":{"bytes":5},"in_use":{"unknown":"x"},` +
		`"allocated":{"bytes":0},"idle":{"bytes":7},"limit":{"unknown":"not said"},"line":"CUDA out of memory","count":2,"gpu":0,"pid":77,"others":[{"pid":9,"memory":{"bytes":5}}]}`
	f.Add([]byte(`{"messages":[`+message+`],"files":[{"size":9,"read":9},{}]}`), 2)
	f.Add([]byte(`{"files":[{"refused":"missing"},{"refused":"because\n"}]}`), 2)
	f.Add([]byte(`{"messages":[{"kind":"device","line":"\u001b[2J","count":1}],"files":[{}]}`), 1)
	f.Add([]byte(`{"messages":[`+strings.Replace(message, `"count":2`, `"count":2,"file":1`, 1)+`],"files":[{"same":true}]}`), 1)
	f.Add([]byte(`{}`), 0)
	f.Fuzz(func(t *testing.T, data []byte, targets int) {
		var reply tailReply
		if json.Unmarshal(data, &reply) != nil || targets < 0 || targets > oom.MaxFiles || reply.check(targets) != nil {
			return
		}
		if len(reply.Messages) > oom.MaxMessages {
			t.Fatalf("%d messages", len(reply.Messages))
		}
		for _, m := range reply.Messages {
			if err := oom.Valid(m); err != nil || m.File >= max(targets, 1) {
				t.Fatalf("%v: %+v", err, m)
			}
		}
		all := make([]written, targets)
		for i := range all {
			all[i] = at(ledger.StepOutput, joblog.Target{Path: "/o"})
		}
		if s := heard(all, reply); !plain(s.unknown) || !plain(s.part) || len(s.unknown+s.part) > 1000 || len(s.outputs) > targets {
			t.Fatalf("%+v", s)
		}
	})
}

// What became of an append is one of the known words, or the reply is none.
func FuzzAppendReply(f *testing.F) {
	for _, seed := range []string{`{}`, `{"refused":"missing"}`, `{"refused":"full\nexport X"}`, `{"refused":"\u001b"}`, `null`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var reply appendReply
		if json.Unmarshal(data, &reply) != nil || reply.check() != nil || reply.Refused == "" {
			return
		}
		if strings.Trim(reply.Refused, "abcdefghijklmnopqrstuvwxyz-") != "" || len(reply.Refused) > 12 {
			t.Fatalf("%q", reply.Refused)
		}
	})
}

func plain(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

// Slurm obeys lines that begin with export and unset, and ends one without a line's end with a NUL: whatever stands in a
// report, each line is one for it to print. Blanks before a line, and a carriage return, count for nothing with Slurm.
func FuzzPrintLines(f *testing.F) {
	for _, seed := range []string{"bookend: GPU 0 of n1 clean\n", "export PATH=/tmp\n", "a\nunset HOME", "\x00", "\n\n", "a\rexport X=1\n", "  print x", "\u2028export A=b\n", strings.Repeat("x", 300)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var out strings.Builder
		printLines(&out, text)
		lines := strings.SplitAfter(out.String(), "\n")
		if last := lines[len(lines)-1]; last != "" {
			t.Fatalf("a line without an end: %q", last)
		}
		lines = lines[:len(lines)-1]
		if want := strings.Count(text, "\n"); len(lines) != want && len(lines) != want+1 {
			t.Fatalf("%d lines of %q", len(lines), text)
		}
		for _, line := range lines {
			if !strings.HasPrefix(line, "print | ") || !plain(strings.TrimSuffix(line, "\n")) || len(line) > len("print | \n")+report.Width {
				t.Fatalf("line %q", line)
			}
		}
		for line := range strings.Lines(quote(text)) {
			if !strings.HasPrefix(line, "| ") {
				t.Fatalf("line %q of a job's log", line)
			}
		}
	})
}

// operation is one that a child serves, and the request that it takes.
type operation struct {
	name    string
	request any
}

var operations = []operation{
	{opInventory, inventoryRequest{}}, {opProcesses, processesRequest{}}, {opHolders, holdersRequest{}}, {opKernel, kernelRequest{}}, {opSharing, sharingRequest{}}, {opNumbering, numberingRequest{}},
	{opPresent, presentRequest{}}, {opCleanup, cleanupRequest{}}, {opDisk, diskRequest{}}, {opAppend, appendRequest{}}, {opTail, tailRequest{}}, {opLocate, locateRequest{}},
	{opLaunchers, launchersRequest{}}, {opOpen, openRequest{}},
}

// meant reads a request as strictly as its operation must: all of it known, and something asked for.
func (o operation) meant(data []byte) bool {
	var first json.RawMessage
	if json.NewDecoder(bytes.NewReader(data)).Decode(&first) != nil {
		return false
	}
	request := reflect.New(reflect.TypeOf(o.request))
	decoder := json.NewDecoder(bytes.NewReader(first))
	decoder.DisallowUnknownFields()
	return decoder.Decode(request.Interface()) == nil && !request.Elem().IsZero()
}

// closing is a stdin that ends in an error, so that what waits for its end does not outlive the test.
type closing struct{ io.Reader }

func (c closing) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	if errors.Is(err, io.EOF) && n == 0 {
		panic("the end of stdin")
	}
	return n, err
}

// A child that is asked for anything but one of its operations, in full, says so and answers nothing. What it is asked in
// full is not done here: that is for the tests of each operation.
func FuzzChildRequest(f *testing.F) {
	for i := range operations {
		for _, seed := range []string{``, `{}`, `null`, `5`, `[]`, `{"a":1}`, `{"run":7,"pid":"x","uid":-1}`, `"x"`, `{"proc":`, "\x00", `{} {}`, `{"run":null}`} {
			f.Add(i, []byte(seed))
		}
	}
	f.Fuzz(func(t *testing.T, which int, request []byte) {
		if which < 0 || which >= len(operations) || operations[which].meant(request) {
			return
		}
		var stdout, stderr strings.Builder
		env := Env{Stdin: closing{bytes.NewReader(request)}, Stdout: &stdout, Stderr: &stderr, Exit: func(int) {}}
		exit := ask1(t, env, operations[which].name)
		if exit != 1 || stdout.Len() > 0 || !strings.HasSuffix(stderr.String(), "\n") {
			t.Fatalf("%s of %q: exit %d, %q, %q", operations[which].name, request, exit, stdout.String(), stderr.String())
		}
	})
}

// ask1 serves one request; a stdin that ends before the request does is one way not to ask.
func ask1(t *testing.T, env Env, op string) (exit int) {
	t.Helper()
	defer func() {
		if recover() != nil {
			exit = 1
			_, _ = env.Stderr.Write([]byte("no request\n"))
		}
	}()
	return childMain(env, op, nil)
}

// Each operation that a child serves is among those that are fuzzed.
func TestEveryOperationIsFuzzed(t *testing.T) {
	for name := range ofHooks() {
		if !slices.ContainsFunc(operations, func(o operation) bool { return o.name == name }) {
			t.Errorf("operation %q is not fuzzed", name)
		}
	}
}

// A limit that the user's environment states is a figure that the epilog takes back from the record, or unknown.
func FuzzAddressSpace(f *testing.F) {
	for _, seed := range []string{"U68719476736", "4294967296", "18446744073709551615", "U", "UU1", "-1", "+1", "0x1", "1_0", "18446744073709551616", "U0"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, carried string) {
		hook := task{frame: &frame{env: Env{Getenv: func(string) string { return carried }}}}
		got := hook.addressSpace()
		if carried == "" {
			return // this process's own
		}
		digits := strings.TrimPrefix(carried, "U")
		want, ok := new(big.Int).SetString(digits, 10)
		if !ok || strings.Trim(digits, "0123456789") != "" || !want.IsUint64() {
			want = new(big.Int)
		}
		if got != min(want.Uint64(), joblog.Unlimited) {
			t.Fatalf("SLURM_RLIMIT_AS=%q: %d, want %v", carried, got, want)
		}
		record, err := joblog.Drop{AddressSpace: got}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if drop, err := joblog.ParseDrop(record); err != nil || drop.AddressSpace != got {
			t.Fatalf("%s: %+v, %v", record, drop, err)
		}
	})
}
