package nodefiles

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/gpu"
	"bookend/test/fakeamd"
	"bookend/test/golden"
	"bookend/test/must"
)

// realLines are lines as drivers and kernels of several versions write them.
const realLines = "testdata/kmsg.txt"

func mark(seq uint64, us int64) gpu.KernelMark {
	return gpu.KernelMark{Seq: seq, At: time.Duration(us) * time.Microsecond}
}

// devices is a device directory with a log of these lines.
func devices(t *testing.T, log string) string {
	t.Helper()
	dir := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(dir, "kmsg"), []byte(log), 0o600))
	return dir
}

func realLog(t testing.TB) string {
	t.Helper()
	log := must.Have(os.ReadFile(realLines))(t)
	return string(log)
}

var update = flag.Bool("update", false, "rewrite testdata/kmsg.json and testdata/lines.txt")

// Lines of several drivers and kernels as the device gives them; what follows from each.
func TestReadRealLines(t *testing.T) {
	first := mark(1, 0)
	got := must.Have(json.MarshalIndent(ReadLog(devices(t, realLog(t)), &first, nil), "", " "))(t)
	golden.File(t, *update, "testdata/kmsg.json", string(got))
}

// What was before the mark is nobody's any more: a mark in the real log, by number and microsecond, and what is behind
// it.
func TestReadSince(t *testing.T) {
	dir := devices(t, realLog(t))
	golden.Lines(t, *update, "testdata/since.txt", func(given string) string {
		var since *gpu.KernelMark
		if fields := strings.Fields(given); len(fields) == 2 {
			at := must.Have(time.ParseDuration(fields[1]))(t)
			since = &gpu.KernelMark{Seq: must.Have(strconv.ParseUint(fields[0], 10, 64))(t), At: at}
		}
		log := ReadLog(dir, since, nil)
		return fmt.Sprintf("%d Xids, %d kills, lost: %v, last: %v, %s", len(log.Xids), len(log.Kills), log.Lost,
			log.Last, log.Unknown)
	})
}

// Entries and errors as the device gives them behind entry 10, and whether one is lost.
func TestLost(t *testing.T) {
	since := mark(10, 1)
	golden.Lines(t, *update, "testdata/lost.txt", func(given string) string {
		var answers []any
		for _, word := range strings.Fields(given) {
			var answer any = fmt.Sprintf("6,%s,%s,-;x\n", word, word)
			if errno, is := map[string]error{"EPIPE": unix.EPIPE, "EINVAL": unix.EINVAL}[word]; is {
				answer = errno
			}
			answers = append(answers, answer)
		}
		c := newCollector(&since)
		must.Do(t, drain(play(answers), c))
		return fmt.Sprint(c.result().Lost)
	})
}

// play answers as the device does: one record a read, errors in between, and EAGAIN at its end.
func play(answers []any) func([]byte) (int, error) {
	return func(b []byte) (int, error) {
		if len(answers) == 0 {
			return 0, unix.EAGAIN
		}
		next := answers[0]
		answers = answers[1:]
		if err, ok := next.(error); ok {
			return -1, err
		}
		return copy(b, next.(string)), nil
	}
}

// A program of root's may write to the log, and any program may call itself what it likes: neither makes an Xid or a
// kill, or another process of one. testdata/lines.txt has lines and what is taken from each.
func TestLines(t *testing.T) {
	since := mark(1, 1)
	golden.Lines(t, *update, "testdata/lines.txt", func(line string) string {
		log := ReadLog(devices(t, line+"\n"), &since, nil)
		log.Last = gpu.KernelMark{}
		return string(must.Have(json.Marshal(log))(t))
	})
}

// A follower reads what is added after it began, once, and no more than that of a log that it cannot read.
func TestFollow(t *testing.T) {
	dir := devices(t, "4,1,1,-;NVRM: Xid (PCI:0000:1b:00): 13, before it began\n")
	f, missing := Follow(dir), Follow(t.TempDir())
	if news := append(f.News(), missing.News()...); news != nil {
		t.Errorf("before anything happened: %+v", news)
	}
	for _, numbers := range [][]int{{31, 79}, {48}, nil} {
		log := must.Have(os.OpenFile(filepath.Join(dir, "kmsg"), os.O_APPEND|os.O_WRONLY, 0))(t)
		must.Have(fmt.Fprintln(log, "12,2,2,-;NVRM: Xid (PCI:0000:1b:00): 74, of a program of root's"))(t)
		for _, n := range numbers {
			must.Have(fmt.Fprintf(log, "4,3,3,-;NVRM: Xid (PCI:0000:1b:00): %d, pid=7, name=x\n SUBSYSTEM=pci\n", n))(t)
		}
		must.Do(t, log.Close())
		news, got := f.News(), []int(nil)
		for _, x := range news {
			got = append(got, x.Code)
		}
		if !slices.Equal(got, numbers) {
			t.Errorf("%v, want %v", got, numbers)
		}
	}
}

// From one mark to another only errors of GPUs count, and of those alike the newest.
func TestLinesBefore(t *testing.T) {
	text := ""
	for seq, code := range []int{0, 79, 79, 13, 48, 64} {
		text += fmt.Sprintf("3,%d,%d,-;NVRM: Xid (PCI:0000:1b:00): %d, x\n", seq, seq, code)
	}
	from, since := mark(1, 1), mark(4, 4)
	for name, tt := range map[string]struct {
		before, since *gpu.KernelMark
		want          string
	}{
		"to a mark":   {&from, &since, "[79 13 48] [64]"},
		"to the end":  {&from, nil, "[79 13 48 64] []"},
		"not asked":   {nil, &since, "[] [64]"},
		"after since": {&since, &from, "[] [79 13 48 64]"},
	} {
		log := ReadLog(devices(t, text), tt.since, tt.before)
		codes := func(all []gpu.Xid) (some []int) {
			for _, x := range all {
				some = append(some, x.Code)
			}
			return some
		}
		must.Be(t, name, fmt.Sprint(codes(log.Before), codes(log.Xids)), tt.want)
	}
}

func TestLongLines(t *testing.T) {
	since := mark(1, 1)
	long := strings.Repeat(`\x41`, 3*maxText)
	log := ReadLog(devices(t, "4,2,2,-;NVRM: Xid (PCI:0000:1b:00): 31, "+long+"\n"), &since, nil)
	must.Not(t, len(log.Xids) != 1 || len(log.Xids[0].Text) >= maxText || !strings.HasSuffix(log.Xids[0].Text, "AAAA"),
		"a long line: %+v", log)
	endless := strings.Repeat("x", 3*maxRecord)
	log = ReadLog(devices(t, "4,2,2,-;"+endless+"\n4,3,3,-;NVRM: Xid (PCI:0000:1b:00): 31, x\n4,4,4,-;NVRM: Xid (PCI:0000:1b:00): 32, cut"), &since, nil)
	must.Not(t, len(log.Xids) != 1 || log.Last.Seq != 3,
		"a line longer than any record, and one without an end: %+v", log)
}

// Of lines that are alike the first few and the newest are kept, and how many there were. None of another card, another
// number or another instance is pushed out, and nothing counts as lost.
func TestFewStandForAll(t *testing.T) {
	var b strings.Builder
	seq := 1
	say := func(place string, number, pid int) {
		seq++
		fmt.Fprintf(&b, "4,%d,%d,-;NVRM: Xid (PCI:%s): %d, pid=%d, name=x, y\n", seq, seq, place, number, pid)
	}
	say("0000:1b:00", 79, 1)
	say("0000:3d:00 GPU-I:01", 13, 1)
	for pid := range 1000 {
		say("0000:3d:00", 13, pid)
	}
	say("0000:3d:00 GPU-I:02", 13, 1)
	since := mark(1, 1)
	log := ReadLog(devices(t, b.String()), &since, nil)
	type line struct{ seq, pid, more int }
	var got []line
	for _, x := range log.Xids {
		got = append(got, line{int(x.Seq), x.PID, x.More})
	}
	if want := []line{{2, 1, 0}, {3, 1, 0}, {4, 0, 0}, {5, 1, 0}, {6, 2, 0}, {7, 3, 0}, {8, 4, 0}, {9, 5, 0},
		{10, 6, 0}, {1003, 999, 992}, {1004, 1, 0}}; !reflect.DeepEqual(got, want) || log.Lost {
		t.Errorf("%+v, lost %v", got, log.Lost)
	}
}

// The limit of a job or step whose memory was full is known from the report before the kill, and no other's is taken for it.
func TestLimitOfAKill(t *testing.T) {
	const report = "6,2,2,-;memory: usage 16777216kB, limit 16777216kB, failcnt 12\n"
	const kill = "6,3,3,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=%s,task_memcg=%s/task_0,task=python,pid=77,uid=1\n"
	of := func(group string) string { return fmt.Sprintf(kill, group, group) }
	for text, want := range map[string]uint64{
		report + of("/slurm/uid_1/job_7"):                                      16 << 30,
		report + of("/system.slice/slurmstepd.scope/job_7/step_0"):             16 << 30,
		of("/slurm/uid_1/job_7"):                                               0,
		report + of("/slurm"):                                                  0,
		strings.Replace(report, "6,", "14,", 1) + of("/slurm/uid_1/job_7"):     0,
		strings.Replace(report, "limit 16", "limit x", 1) + of("/slurm/job_7"): 0,
		report + of("/system.slice/n1_slurmstepd.scope/sCHNM7Y8WBK900/step_0"): 16 << 30,
		report + of("/system.slice/slurmstepd.scope/system"):                   0,
		report + "6,3,3,-;oom-kill:constraint=CONSTRAINT_NONE,global_oom,task_memcg=/slurm/job_7,task=,oom_memcg=/job,pid=77,uid=1\n": 0,
	} {
		since := mark(1, 1)
		log := ReadLog(devices(t, text), &since, nil)
		must.Not(t, len(log.Kills) != 1 || log.Kills[0].Limit != want, "%s: %+v", text, log.Kills)
	}
}

// Where even few of each are too many, the oldest go, and that is said. A log without an end is not read to it.
func TestTooMany(t *testing.T) {
	var b strings.Builder
	for i := range maxXids + 1 {
		fmt.Fprintf(&b, "4,%d,%[1]d,-;NVRM: Xid (PCI:0000:1b:00): %d, x\n", 2*i+2, 1000+i)
		fmt.Fprintf(&b, "6,%d,%[1]d,-;oom-kill:constraint=CONSTRAINT_NONE,task_memcg=/j,task=x,pid=%d,uid=1\n", 2*i+3, i+1)
	}
	since := mark(1, 1)
	log := ReadLog(devices(t, b.String()), &since, nil)
	n := len(log.Xids)
	must.Not(t, n != maxXids || log.Xids[0].Code != 1001 || log.Xids[n-1].Code != 1000+maxXids || !log.Lost, "%+v", log)
	must.Not(t, len(log.Kills) != maxKills || log.Kills[maxKills-1].PID != maxXids+1, "%d kills", len(log.Kills))
	for name, read := range map[string]func(b []byte) (int, error){
		"records":            func(b []byte) (int, error) { return copy(b, "6,1,1,-;x\n"), nil },
		"nothing but errors": func([]byte) (int, error) { return -1, unix.EPIPE },
	} {
		must.Fail(t, name, drain(read, newCollector(nil)), errRecords)
	}
}

func TestUnreadable(t *testing.T) {
	since := mark(1, 1)
	holding := func(text string) func(string) error {
		return func(path string) error { return os.WriteFile(path, []byte(text), 0o600) }
	}
	for name, tt := range map[string]struct {
		plant func(path string) error
		want  string
	}{
		"missing":                 {func(string) error { return nil }, "no such file"},
		"a directory":             {func(path string) error { return os.Mkdir(path, 0o700) }, "is a directory"},
		"a link":                  {func(path string) error { return os.Symlink("/dev/null", path) }, "too many levels"},
		"a FIFO without a writer": {func(path string) error { return unix.Mkfifo(path, 0o600) }, "empty"},
		"empty":                   {holding(""), "empty"},
		"no log":                  {holding("a\n;\n1,2;x\n1,2,x,-;y\n,,,;\n"), "empty"},
		"a stamp out of range":    {holding("1,2,9300000000000000,-;y\n"), "empty"},
	} {
		dir := t.TempDir()
		must.Do(t, tt.plant(filepath.Join(dir, "kmsg")))
		for _, s := range []*gpu.KernelMark{nil, &since} {
			if log := ReadLog(dir, s, nil); !strings.Contains(log.Unknown, tt.want) || len(log.Xids) != 0 {
				t.Errorf("%s: %+v", name, log)
			}
		}
	}
}

// A line is of the driver or the kernel, and what a process calls itself, or its cgroup, is not taken for their words.
func FuzzParse(f *testing.F) {
	for line := range strings.Lines(realLog(f)) {
		f.Add(strings.TrimSuffix(line, "\n"))
	}
	f.Add("4,1,1,-;" + `NVRM: Xid (PCI:0000:1b:00): 31, pid=1, name=\x0a\x1b[2J, \xff`)
	for _, text := range []string{"previous Xid 79", "amdgpu: ring x timeout, signaled seq=1", "[drm:x [amdgpu]] *ERROR* ring"} {
		f.Add(text)
	}
	f.Add("6,9,1,-;oom-kill:constraint=CONSTRAINT_MEMCG,task_memcg=/slurm/job_1,task=a,pid=1,task=b,pid=2,uid=0")
	f.Fuzz(func(t *testing.T, line string) {
		since := mark(0, 0)
		c := newCollector(&since)
		c.line([]byte(line))
		r, ok := parseRecord([]byte(line))
		if log := c.log; (!ok || r.facility != kernel) && (len(log.Xids)+len(log.Kills) > 0 || log.Mismatch != "") {
			t.Errorf("%q, which no kernel wrote: %+v", line, log)
		}
		bounded(t, c.log)
		name := line[:min(len(line), 15)]
		summary(t, name, strings.ReplaceAll(line, "\n", "/"))
		if x, ok := gpu.NVIDIA.Fault("NVRM: Xid (PCI:0000:1b:00): 31, pid=77, name=" + name + ", Ch 1"); !ok ||
			x.PID != 77 || x.Code != 31 {
			t.Errorf("Xid, name %q: %+v, %v", name, x, ok)
		}
		cleaned := "NVRM: Xid (PCI:0000:1b:00): 45, pid=77, name=" + name
		forged, _ := gpu.ParseKernelLine(cleaned)
		x, _ := gpu.ParseKernelLine(cleaned + ", Ch 00000001 caused by previous Xid 149")
		must.Not(t, forged.CausedBy != 0 || x.CausedBy != 149, "name %q: %+v, %+v", name, forged, x)
		if x, ok := gpu.ParseKernelLine(name + "[77]: segfault at 0 ip 0 sp 0 error 4 in " + line); ok {
			t.Errorf("a program's crash, name %q: %+v", name, x)
		}
	})
}

// summary: the number of an ended process is the kernel's whatever its name is; its cgroup is the whole one, or none.
func summary(t *testing.T, name, group string) {
	t.Helper()
	k, ok := parseKill("oom-kill:constraint=CONSTRAINT_NONE,task_memcg=/a,task=" + name + ",pid=77,uid=1")
	must.Not(t, !ok || k.PID != 77 || k.Cgroup != "/a" && k.Cgroup != "", "name %q: %+v, %v", name, k, ok)
	k, ok = parseKill("oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=/" + group +
		",task_memcg=/slurm/job_7,task=a,pid=77,uid=1")
	must.Not(t, !ok || k.PID != 77 || k.Name != "a" || k.Cgroup != "/slurm/job_7" && k.Cgroup != "",
		"limited at %q: %+v, %v", group, k, ok)
}

// bounded: what is kept could be so, and is little.
func bounded(t *testing.T, log gpu.KernelLog) {
	t.Helper()
	must.Not(t, len(log.Xids) > maxXids || len(log.Kills) > maxKills || len(log.Mismatch) > maxText,
		"%d Xids, %d kills, mismatch of %d bytes", len(log.Xids), len(log.Kills), len(log.Mismatch))
	for _, x := range log.Xids {
		if normal, err := gpu.ParseBusID(string(x.BusID)); x.BusID != "" && err != nil || normal != x.BusID || x.Code < 0 ||
			x.Code > gpu.FirstSXid+99_999 || x.CausedBy > 9999 || x.PID < 0 || x.PID > gpu.MaxPID || len(x.Text)+len(x.Name) > maxText {
			t.Errorf("%+v", x)
		}
	}
	for _, k := range log.Kills {
		must.Not(t, k.PID < 1 || k.PID > gpu.MaxPID || len(k.Name)+len(k.Cgroup) > 2*maxText, "%+v", k)
	}
}

// A log says the same however it is cut into reads, and nothing of it is older than the mark.
func FuzzLog(f *testing.F) {
	for _, size := range []int{1, 7, 100, 4096} {
		f.Add([]byte(realLog(f)), uint64(1), size)
	}
	f.Add([]byte(strings.Repeat("4,7,1,-;NVRM: Xid (PCI:0000:1b:00): 79, pid=1, name=a, x\n", 20)), uint64(3), 1)
	f.Add([]byte("4,1,9223372036854775807,-;x\n4,18446744073709551615,1,-;y\n4,0,0,-;z\n"), uint64(1)<<63, 3)
	f.Fuzz(func(t *testing.T, log []byte, seq uint64, size int) {
		if size < 1 || size > maxRecord {
			return
		}
		since := mark(seq, 0)
		whole, errWhole := collect(log, maxRecord, &since)
		parts, errParts := collect(log, size, &since)
		if errors.Is(errParts, errRecords) { // too many reads of too few bytes
			return
		}
		must.Not(t, fmt.Sprint(errWhole) != fmt.Sprint(errParts) || !reflect.DeepEqual(whole, parts),
			"in reads of %d: %+v, %v\nat once: %+v, %v", size, parts, errParts, whole, errWhole)
		bounded(t, whole)
		for _, x := range whole.Xids {
			must.Not(t, x.Seq <= seq, "entry %d is not after %d: %+v", x.Seq, seq, x)
		}
		for _, k := range whole.Kills {
			must.Not(t, k.Seq <= seq, "entry %d is not after %d: %+v", k.Seq, seq, k)
		}
		must.Not(t, whole.Unknown != "" && len(whole.Xids)+len(whole.Kills) > 0, "unknown, and yet %+v", whole)
	})
}

func collect(log []byte, size int, since *gpu.KernelMark) (gpu.KernelLog, error) {
	c := newCollector(since)
	err := drain(func(b []byte) (int, error) {
		if len(log) == 0 {
			return 0, unix.EAGAIN
		}
		n := copy(b[:min(size, len(b))], log)
		log = log[n:]
		return n, nil
	}, c)
	return c.result(), err
}

func FuzzClient(f *testing.F) {
	f.Add(fakeamd.Info(1, 1<<30))
	f.Add("drm-driver:\tamdgpu\ndrm-pdev:\t0000:03:00.0\ndrm-client-id:\t1\ndrm-memory-vram:\t99999999999999999999 KiB")
	f.Fuzz(func(t *testing.T, text string) {
		if c, ok := parseClient(text); ok && (c.bus == "" || c.id == "" || c.bytes > 1<<60) {
			t.Errorf("%+v", c)
		}
		parseOwner(text)
	})
}

// Programs that open a GPU which cannot be started cause two lines each: within an hour they count as one.
func TestFailedStartsCountOnce(t *testing.T) {
	var b strings.Builder
	for i, after := range []time.Duration{0, time.Minute, 3 * time.Hour} {
		seq, us := 2*i+2, after.Microseconds()
		fmt.Fprintf(&b, "3,%d,%d,-;NVRM: GPU 0000:1b:00.0: RmInitAdapter failed! (0x62:0x40:2387)\n", seq, us)
		fmt.Fprintf(&b, "3,%d,%d,-;NVRM: GPU 0000:1b:00.0: rm_init_adapter failed, device minor number 3\n", seq+1, us)
	}
	since := mark(1, 0)
	log := ReadLog(devices(t, b.String()), &since, nil)
	must.Not(t, len(log.Xids) != 2 || log.Xids[0].Seq != 5 || log.Xids[1].Seq != 7 || log.Xids[0].More != 0 ||
		!strings.HasPrefix(log.Xids[0].Text, "RmInitAdapter failed!"), "%+v", log.Xids)
}
