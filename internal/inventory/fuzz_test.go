package inventory

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/internal/gpu"
	"bookend/test/fakeamd"
)

// A line is of the driver or the kernel, and what a process calls itself, or its cgroup, is not taken for their words.
func FuzzParse(f *testing.F) {
	for line := range strings.Lines(realLog(f)) {
		f.Add(strings.TrimSuffix(line, "\n"))
	}
	f.Add("4,1,1,-;" + `NVRM: Xid (PCI:0000:1b:00): 31, pid=1, name=\x0a\x1b[2J, \xff`)
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
	})
}

// summary: the number of an ended process is the kernel's whatever its name is; its cgroup is the whole one, or none.
func summary(t *testing.T, name, group string) {
	t.Helper()
	k, ok := parseKill("oom-kill:constraint=CONSTRAINT_NONE,task_memcg=/a,task=" + name + ",pid=77,uid=1")
	if !ok || k.PID != 77 || k.Cgroup != "/a" && k.Cgroup != "" {
		t.Errorf("name %q: %+v, %v", name, k, ok)
	}
	k, ok = parseKill("oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=/" + group +
		",task_memcg=/slurm/job_7,task=a,pid=77,uid=1")
	if !ok || k.PID != 77 || k.Name != "a" || k.Cgroup != "/slurm/job_7" && k.Cgroup != "" {
		t.Errorf("limited at %q: %+v, %v", group, k, ok)
	}
}

// bounded: what is kept could be so, and is little.
func bounded(t *testing.T, log gpu.KernelLog) {
	t.Helper()
	if len(log.Xids) > maxXids || len(log.Kills) > maxKills || len(log.Mismatch) > maxText {
		t.Errorf("%d Xids, %d kills, mismatch of %d bytes", len(log.Xids), len(log.Kills), len(log.Mismatch))
	}
	for _, x := range log.Xids {
		if normal, err := gpu.ParseBusID(string(x.BusID)); err != nil || normal != x.BusID || x.Code < 0 ||
			x.Code > 9999 || x.PID < 0 || x.PID > gpu.MaxPID || len(x.Text)+len(x.Name) > maxText {
			t.Errorf("%+v", x)
		}
	}
	for _, k := range log.Kills {
		if k.PID < 1 || k.PID > gpu.MaxPID || len(k.Name)+len(k.Cgroup) > 2*maxText {
			t.Errorf("%+v", k)
		}
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
		if fmt.Sprint(errWhole) != fmt.Sprint(errParts) || !reflect.DeepEqual(whole, parts) {
			t.Fatalf("in reads of %d: %+v, %v\nat once: %+v, %v", size, parts, errParts, whole, errWhole)
		}
		bounded(t, whole)
		for _, x := range whole.Xids {
			if x.Seq <= seq {
				t.Errorf("entry %d is not after %d: %+v", x.Seq, seq, x)
			}
		}
		for _, k := range whole.Kills {
			if k.Seq <= seq {
				t.Errorf("entry %d is not after %d: %+v", k.Seq, seq, k)
			}
		}
		if whole.Unknown != "" && len(whole.Xids)+len(whole.Kills) > 0 {
			t.Errorf("unknown, and yet %+v", whole)
		}
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
