package joblog

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/oomlog"
	"bookend/internal/record"
	"bookend/test/must"
)

const (
	ranOut = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. " +
		"GPU 0 has a total capacity of 8.00 GiB of which 1.00 GiB is free.\n"
	step = "[2026-11-22 10:00:00,123][INFO] epoch 12 step 4711/100000 loss 2.3456 " +
		"lr 1.0e-4 grad_norm 0.98 tokens/s 12345 eta 1:23:45\n"
	bar = "\rTraining:  47%|████▋     | 4711/10000 [12:34<14:06,  6.25it/s, loss=2.35, v_num=12]"
)

func text(line string, bytes int) string { return strings.Repeat(line, bytes/len(line)+1)[:bytes] }

func always() bool { return true }

// searched is the whole search: the end, and what stands before it.
func searched(t *testing.T, said string, limit int64, more func() bool) *Search {
	t.Helper()
	s := NewSearch(strings.NewReader(said), int64(len(said)))
	s.Tail()
	s.Back(limit, more)
	if s.Refused != "" {
		t.Fatal(s.Refused)
	}
	return s
}

// A message is found however much was said after it, and wherever the windows begin.
func TestSearchBack(t *testing.T) {
	const limit = 4 << 20
	for _, after := range []int{
		0, 100, oomlog.MaxTail - len(ranOut), oomlog.MaxTail - len(ranOut) + 1, oomlog.MaxTail - len(ranOut)/2,
		oomlog.MaxTail - 1, oomlog.MaxTail, oomlog.MaxTail + 1,
		oomlog.MaxTail + overlap, 2*oomlog.MaxTail - overlap - 10, 2 * oomlog.MaxTail, 1 << 20, 2<<20 + 12345,
	} {
		said := text(step, 1<<20) + "\n" + ranOut + "\n" + text(bar, after)
		s := searched(t, said, limit, always)
		must.Not(t, len(s.Messages) != 1 || s.Messages[0].Asked.Bytes != 2<<30 || s.Messages[0].Count != 1,
			"%d bytes after it: %+v", after, s.Messages)
		must.Not(t, s.Read < int64(after) || s.Read > int64(after+3*oomlog.MaxTail),
			"%d bytes after it: %d looked through", after, s.Read)
	}
}

// What is not looked through is known: beyond the limit, without time, and behind an earlier run's report.
func TestSearchStops(t *testing.T) {
	const size = 3 << 20
	said := ranOut + text(step, size-len(ranOut))
	never := func() bool { return false }
	report := "\n\n| bookend: GPU 0 of n1 left clean by your job\n"
	quiet := "\n\n| bookend: GPUs of n1 not checked: driver does not answer; your job is not affected by this\n"
	task := "\n\n| bookend: process 7 (python) still uses a GPU at the end of your script\n"
	tasks := "\n\n| bookend: 2 processes (python: 7, 8) still use a GPU at the end of your script\n"
	for name, tt := range map[string]struct {
		said    string
		limit   int64
		more    func() bool
		found   int
		read    int64
		earlier bool
	}{
		"all":                         {said, size, always, 1, size, false},
		"limit":                       {said, 1 << 20, always, 0, 19*(oomlog.MaxTail-overlap) + oomlog.MaxTail, false},
		"no time":                     {said, size, never, 0, oomlog.MaxTail, false},
		"an earlier run's":            {ranOut + report + text(step, 100_000), size, always, 0, 100_000, true},
		"an earlier run's, at end":    {said + report, size, always, 0, 0, true},
		"a report that tells nothing": {ranOut + text(step, 72_000) + quiet + text(step, 72_000), size, always, 0, 72_000, true},
		"this run's own, of two":      {said + tasks, size + 200, always, 1, size + int64(len(tasks)), false},
		"this run's own":              {said + task, size + 200, always, 1, size + int64(len(task)), false},
		"short":                       {ranOut, size, always, 1, int64(len(ranOut)), false},
		"empty":                       {"", size, always, 0, 0, false},
	} {
		s := searched(t, tt.said, tt.limit, tt.more)
		must.Not(t, len(s.Messages) != tt.found || s.Read != tt.read || s.Earlier != tt.earlier,
			"%s: %d messages, %d of %d bytes, earlier %v", name, len(s.Messages), s.Read, len(tt.said), s.Earlier)
	}
}

// An error that is no matter of memory does not keep the search from what came before it, and is not told twice.
func TestSearchBeforeAFault(t *testing.T) {
	const fault = "RuntimeError: CUDA error: an illegal memory access was encountered\n"
	s := searched(t, ranOut+text(step, 100_000)+"\n"+fault+text(step, oomlog.MaxTail-1000), 1<<20, always)
	must.Not(t, len(s.Messages) != 2 || s.Messages[0].Kind != record.KindDevice || s.Messages[1].Kind != record.KindFault ||
		s.Messages[1].Count != 1, "%+v", s.Messages)
}

type failing struct {
	io.ReaderAt
	before int64
}

func (f failing) ReadAt(p []byte, at int64) (int, error) {
	if at < f.before {
		return 0, io.ErrUnexpectedEOF
	}
	return f.ReaderAt.ReadAt(p, at)
}

// What cannot be read is refused; a file that is cut while it is looked through ends the search like any other.
func TestSearchFails(t *testing.T) {
	for name, tt := range map[string]struct {
		text        io.ReaderAt
		refused     string
		found       int
		least, most int64 // bytes that were read
	}{
		"its first half": {failing{strings.NewReader(text(step, 1<<20)), 1 << 19}, other, 0, 1, 1 << 19},
		"all of it":      {failing{strings.NewReader(text(step, 1<<20)), 1 << 20}, other, 0, 0, 0},
		"cut":            {strings.NewReader(ranOut + text(step, 200_000)), "", 1, 1 << 20, 1 << 20},
	} {
		s := NewSearch(tt.text, 1<<20)
		s.Tail()
		s.Back(1<<20, always)
		must.Not(t, s.Refused != tt.refused || len(s.Messages) != tt.found || s.Read < tt.least || s.Read > tt.most,
			"%s: %q, %+v after %d bytes", name, s.Refused, s.Messages, s.Read)
	}
}

// The search through 8 MiB in which no message about memory is found, in processor time: of usual text, and of the
// worst, where each line is looked at in earnest.
func BenchmarkSearch(b *testing.B) {
	const size = 8 << 20
	for _, bench := range []struct{ name, line string }{
		{"log", step}, {"progress-bars", bar}, {"memory-in-each-line", "GPU memory: 61.3 of 79.1 GiB, step 4711\n"},
		{"fault-in-each-line", "CUDA error: an illegal memory access was encountered\n"}, {"one-line", "memory "},
	} {
		said := strings.NewReader(text(bench.line, size))
		b.Run(bench.name, func(b *testing.B) {
			began := processorTime(b)
			for b.Loop() {
				s := NewSearch(said, size)
				s.Tail()
				if s.Back(size, always); s.Refused != "" || s.Read != size {
					b.Fatal(s.Refused, s.Read, s.Messages)
				}
			}
			b.ReportMetric(float64((processorTime(b)-began).Microseconds())/1000/float64(b.N), "cpu-ms/8MiB")
		})
	}
}

func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// Slurm's own line for a job that was cancelled or met its time limit, and nobody's else.
func TestCancelled(t *testing.T) {
	for text, want := range map[string]bool{
		"epoch 7\nslurmstepd-n1: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-22T18:59:23 ***\n":                                   true,
		"slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-22T18:59:23 DUE TO TIME LIMIT ***\n":                             true,
		"ready\n[2026-11-30T11:26:31.471] error: *** JOB 8 ON n1 CANCELLED AT 2026-11-30T11:26:31 DUE to SIGNAL Terminated ***\n": true,
		"0: slurmstepd-n1: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-11-22T18:59:23 ***\nretried, done\n":                       false,
		"the *** JOB was never CANCELLED AT all\n":                                                                                false,
		"": false,
	} {
		s := NewSearch(strings.NewReader(text), int64(len(text)))
		s.Tail()
		must.Not(t, s.Refused != "" || s.Cancelled != want, "%q: %v, error %v", text, s.Cancelled, s.Refused)
		file := filepath.Join(t.TempDir(), "out")
		must.Write(t, file, text)
		must.Not(t, Cancelled(Target{Path: file}, uint32(os.Getuid())) != want, "%q in a file: %v", text, !want)
		must.Write(t, file, text+"\n\n| bookend: n1 GPU 0 clean\nrun again\n")
		must.Not(t, Cancelled(Target{Path: file}, uint32(os.Getuid())), "%q of an earlier run", text)
	}
}

const message = "RuntimeError: CUDA error: out of memory\n"

// A requeued job that goes on in its old file: what its earlier run said there is not this run's. Only an end report,
// which this run does not have yet and which stands behind an empty line, divides them.
func TestSearchEarlierRun(t *testing.T) {
	const report = "| bookend: WARNING: n1 GPU 0 had 3.0 GiB in use\n| bookend:   For your admin: bookend show 7 (on n1)\n"
	for name, tt := range map[string]struct {
		before string
		found  int
	}{
		"end report":                 {message + "\n" + report, 0},
		"end report after a start's": {message + "\n" + report + report, 0},
		"start report":               {message + report, 1},
		"what a step's start says":   {message + "\n| bookend: WARNING: n1 GPU 0 already had 3.0 GiB in use before your job started\n", 1},
		"what a task hook says":      {message + "\n| bookend: process 7 (python) still uses a GPU at the end of your script\n", 1},
	} {
		must.Be(t, name, len(searched(t, tt.before+"\nanother line\n", 0, always).Messages), tt.found)
		got := searched(t, tt.before+"\n"+message, 0, always).Messages
		must.Not(t, len(got) != 1 || got[0].Count != 1+tt.found, "%s: %+v in %q", name, got, tt.before)
	}
}

// What follows an end report is this run's, whatever it is, as long as nobody but Bookend speaks as Bookend does.
func FuzzThisRun(f *testing.F) {
	for _, seed := range []string{"", "\n", "another line\n", "\n\n| bookend: process 7\n", "| bookend", "\r\n\r\n"} {
		f.Add([]byte(seed))
	}
	const earlier = message + "\n| bookend: GPU 0 of n1 left clean by your job\n"
	f.Fuzz(func(t *testing.T, said []byte) {
		if bytes.Contains(append([]byte("\n"), said...), ours[1:]) {
			return
		}
		must.Be(t, "with a report", string(thisRun(append([]byte(earlier), said...))), string(said))
		must.Be(t, "without a report", string(thisRun(said)), string(said))
	})
}
