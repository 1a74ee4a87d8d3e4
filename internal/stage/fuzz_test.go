package stage

import (
	"encoding/json"
	"math/big"
	"strings"
	"testing"

	"bookend/internal/joblog"
	"bookend/internal/judge"
	"bookend/internal/ledger"
	"bookend/internal/oom"
	"bookend/internal/operation"
	"bookend/internal/report"
)

// What comes back from a process that the user may have got at is what a tail could have written, or nothing.
func FuzzTailReply(f *testing.F) {
	const message = `{"kind":"device","framework":"PyTorch","asked":{"bytes":2147483648},"total":{"unknown":"not said"},"free":{"bytes":5},"in_use":{"unknown":"x"},` +
		`"allocated":{"bytes":0},"idle":{"bytes":7},"limit":{"unknown":"not said"},"line":"CUDA out of memory","count":2,"gpu":0,"pid":77,"others":[{"pid":9,"memory":{"bytes":5}}]}`
	f.Add([]byte(`{"messages":[`+message+`],"files":[{"size":9,"read":9},{}]}`), 2)
	f.Add([]byte(`{"files":[{"refused":"missing"},{"refused":"because\n"}]}`), 2)
	f.Add([]byte(`{"messages":[{"kind":"device","line":"\u001b[2J","count":1}],"files":[{}]}`), 1)
	f.Add([]byte(`{"messages":[`+strings.Replace(message, `"count":2`, `"count":2,"file":1`, 1)+`],"files":[{"same":true}]}`), 1)
	f.Add([]byte(`{}`), 0)
	f.Fuzz(func(t *testing.T, data []byte, targets int) {
		var reply operation.TailReply
		if json.Unmarshal(data, &reply) != nil || targets < 0 || targets > oom.MaxFiles || reply.Check(targets) != nil {
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
		if s := heard(judge.Heard{}, all, reply, false); !plain(s.Unknown) || !plain(s.Part) || len(s.Unknown+s.Part) > 1000 || len(s.Outputs) > targets {
			t.Fatalf("%+v", s)
		}
	})
}

func plain(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

// Slurm obeys lines that begin with export and unset, and ends one without a line's end with a NUL: whatever stands in
// a report, each line is one for it to print. Blanks before a line, and a carriage return, count for nothing with
// Slurm.
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

// A limit that the user's environment states is a figure that the epilog takes back from the record, or unknown.
func FuzzAddressSpace(f *testing.F) {
	for _, seed := range []string{"U68719476736", "4294967296", "18446744073709551615", "U", "UU1", "-1", "+1", "0x1", "1_0", "18446744073709551616", "U0"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, carried string) {
		hook := task{env: Env{Getenv: func(string) string { return carried }}}
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
