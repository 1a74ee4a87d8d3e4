package report

import (
	"slices"
	"strings"
	"testing"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
)

func TestClean(t *testing.T) {
	for _, test := range []struct {
		name string
		raw  string
		max  int
		want Safe
	}{
		{"one over", "abcdefg", 6, "abc..."},
		{"newline", "a\nexport LD_PRELOAD=x", 80, `a\x0aexport LD_PRELOAD=x`},
		{"terminal escape", "\x1b[2J", 80, `\x1b[2J`},
		{"UTF-8", "é", 80, `\xc3\xa9`},
		{"backslash", `a\x0a`, 80, `a\\x0a`},
		{"escape that just fits", "ab\n", 6, `ab\x0a`},
		{"escape is not cut in two", "ab\n\n", 8, `ab...`},
		{"backslash pair is not cut in two", `ab\c`, 4, `a...`},
		{"escape before the cut", "\nabcd", 7, `\x0a...`},
		{"no room for the dots", "abcdef", 2, ".."},
	} {
		if got := Clean(test.raw, test.max); got != test.want {
			t.Errorf("%s: Clean(%q, %d) = %q, want %q", test.name, test.raw, test.max, got, test.want)
		}
	}
}

// unescape reads Clean's escapes back, which must give the bytes that went in.
func unescape(t *testing.T, s string) string {
	var out []byte
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			out = append(out, s[i])
			continue
		}
		if i++; s[i] == '\\' {
			out = append(out, '\\')
			continue
		}
		if s[i] != 'x' {
			t.Fatalf("unknown escape at %d of %q", i, s)
		}
		out = append(out, byte(strings.IndexByte(digits, s[i+1])<<4|strings.IndexByte(digits, s[i+2])))
		i += 2
	}
	return string(out)
}

const digits = "0123456789abcdef"

// What was cleaned is printable and bounded, is whole or shows that it was cut, and can be told from any other.
func FuzzClean(f *testing.F) {
	f.Add("python3", 16)
	f.Add("a\nb\\\x1b[0m\xff", 9)
	f.Add(`\\\\`, 3)
	f.Add("export PATH=/tmp\x00", 64)
	f.Add("\u202e\u00a0", -1)
	f.Fuzz(func(t *testing.T, raw string, max int) {
		got := string(Clean(raw, max))
		fits(t, got, max)
		whole := string(Clean(raw, 4*len(raw)+1))
		if back := unescape(t, whole); back != raw {
			t.Fatalf("%q is ambiguous: read back as %q, was %q", whole, back, raw)
		}
		if max >= len(whole) && got != whole {
			t.Fatalf("%q is cut to %q, and %d bytes may be used", whole, got, max)
		}
		if max < len(whole) && !strings.HasPrefix(whole, strings.TrimRight(got, ".")) {
			t.Fatalf("%q is cut to %q", whole, got)
		}
		if max < len(whole) && max >= len(dots) && !strings.HasSuffix(got, dots) {
			t.Fatalf("%q does not show that it was cut: %q", whole, got)
		}
		if strings.HasSuffix(got, dots) {
			unescape(t, strings.TrimSuffix(got, dots)) // no escape is cut in two
		}
	})
}

// What was kept is printable and bounded; clean words stay as they are.
func FuzzKeep(f *testing.F) {
	f.Add("| bookend: \\x0a", 80)
	f.Add("a\nb\x00", 9)
	f.Add("\\\\", 1)
	f.Fuzz(func(t *testing.T, raw string, max int) {
		got := string(Keep(raw, max))
		fits(t, got, max)
		if again := string(Keep(got, max)); again != got {
			t.Fatalf("%q, then %q", got, again)
		}
		if clean := string(Clean(raw, max)); string(Keep(clean, max)) != clean {
			t.Fatalf("%q does not stay as it is", clean)
		}
	})
}

func fits(t *testing.T, s string, max int) {
	t.Helper()
	if len(s) > 0 && len(s) > max {
		t.Fatalf("%d bytes, want at most %d: %q", len(s), max, s)
	}
	if i := slices.IndexFunc([]byte(s), func(c byte) bool { return c < 0x20 || c > 0x7e }); i >= 0 {
		t.Fatalf("byte %#x in %q", s[i], s)
	}
}

// secret marks what another user's process is called and runs.
const secret = "S3CR3T"

// Whatever processes are called and backends say, a report is a few lines of printable ASCII, each begins with
// Bookend's own word, and none says how another user's process is called or what it runs.
func FuzzReport(f *testing.F) {
	f.Add("python3", "20480 MiB", "n1", "probe refused", uint8(3), uint32(1001), 0)
	f.Add("a\nexport X=1", "\x1b[2J|", "gpu-01.hpc", strings.Repeat("long ", 500), uint8(9), uint32(7), 3)
	f.Add("\n\nprint x", "Xid 79: \xff", "n", "", uint8(200), uint32(0), 5)
	all := catalog.All()
	f.Fuzz(func(t *testing.T, name, seen, node, why string, kind uint8, uid uint32, cards int) {
		if !slurm.ValidNode(node) || cards < 0 || cards > 16 {
			return
		}
		h := &record.Holder{Process: record.Process{PID: 4711, UID: uid, Name: secret + name, Exe: "/home/" + secret + name, Start: 1}, Memory: gpu.Bytes(1 << 30)}
		owner := &record.Owner{Job: 12, UID: uid, Level: record.ByCgroup}
		f1 := found(all[int(kind)%len(all)].Code, h, owner)
		f1.Observed, f1.Expected, f1.Candidates = seen, why, []record.Holder{*h, *h}
		f1.Xid, f1.Ended = cards, []record.Outcome{"", record.ByTerm, record.Outcome(why)}[kind%3]
		f2 := record.Finding{Code: all[int(kind/2)%len(all)].Code, Unknown: why, Observed: seen, GPU: "GPU-b"}
		s := scene(cards, record.Flat, f1, f2, found(catalog.Orphan, nil, owner))
		s.Node = node
		s.Why = &record.Diagnosis{Reason: record.ByMessage, Headline: seen, Try: []string{why}, Causes: []record.Cause{
			{Name: record.CausePool, Answer: record.Yes, Evidence: seen}}}
		if kind%2 == 0 {
			s.Why = nil
		}
		own := uid == s.Job.UID
		told(t, Start(s), own)
		told(t, End(s), own)
	})
}

func told(t *testing.T, lines []Safe, own bool) {
	t.Helper()
	if len(lines) > MaxLines {
		t.Errorf("%d lines", len(lines))
	}
	for _, l := range lines {
		fits(t, string(l), Width)
		if !strings.HasPrefix(string(l), "bookend:") || !own && strings.Contains(string(l), secret) {
			t.Errorf("line %q", l)
		}
	}
}
