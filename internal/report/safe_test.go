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
		s.Run.Job.Node = node
		s.Why = &record.Diagnosis{Reason: record.ByMessage, Headline: seen, Try: []string{why}, Causes: []record.Cause{
			{Name: record.CausePool, Answer: record.Yes, Evidence: seen}}}
		if kind%2 == 0 {
			s.Why = nil
		}
		own := uid == s.Run.Job.UID
		told(t, Start(s), own)
		told(t, End(s), own)
	})
}

func told(t *testing.T, text string, own bool) {
	t.Helper()
	if n := strings.Count(text, "\n"); n > MaxLines {
		t.Errorf("%d lines", n)
	}
	for l := range strings.Lines(text) {
		fits(t, strings.TrimSuffix(l, "\n"), Width)
		if !strings.HasPrefix(l, "bookend:") || !own && strings.Contains(l, secret) {
			t.Errorf("line %q", l)
		}
	}
}
