package condition

import (
	"cmp"
	"strings"
	"testing"

	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/test/must"
)

// A user's own sample proves others' memory only by what is certain without root: what may be the job's own is not.
func TestVet(t *testing.T) {
	const mebi, me = 1 << 20, 1001
	own, other := slurm.Owner{ID: 5}, slurm.Owner{ID: 4}
	for name, tt := range map[string]struct {
		process record.Process
		has     uint64 // 1000 MiB if it is 0
		absent  bool   // /proc was not read for it
		rest    uint64
		change  func(*gpu.Reading)
		fact    gpu.Fact
		want    record.Answer
		why     string
	}{
		"the job's own":                 {process: record.Process{UID: me, Cgroup: own}, want: record.No},
		"the system's":                  {process: record.Process{UID: 0}, has: 40 * mebi, want: record.No},
		"a service's":                   {process: record.Process{UID: 7, Service: "dcgm.service"}, has: 40 * mebi, want: record.No},
		"much of root's":                {process: record.Process{UID: 0}, want: record.CannotTell, why: "process 9 is the system's, with 1000 MiB"},
		"root's in a container":         {process: record.Process{UID: 0, Container: "docker:1"}, has: 40 * mebi, want: record.CannotTell, why: "may be one of your job"},
		"the job's own, as root":        {process: record.Process{UID: 0, Cgroup: own}, want: record.No},
		"an earlier job's of one's own": {process: record.Process{UID: me, Cgroup: other}, want: record.Yes, why: "process 9 is not of your job"},
		"another user's":                {process: record.Process{UID: 7}, want: record.Yes, why: "not of your job"},
		"one's own without a cgroup":    {process: record.Process{UID: me}, want: record.CannotTell},
		"in a container":                {process: record.Process{UID: 7, Container: "c"}, want: record.CannotTell},
		"in another PID namespace":      {process: record.Process{UID: 7, OtherPIDs: true}, want: record.CannotTell},
		"another job's, in a container": {process: record.Process{UID: 7, OtherPIDs: true, Cgroup: other}, want: record.Yes, why: "not of your job"},
		"not visible":                   {process: record.Process{Gone: true}, want: record.CannotTell},
		"not read":                      {absent: true, want: record.CannotTell},
		"little without a process":      {process: record.Process{Cgroup: own}, rest: 20 * mebi, want: record.No},
		"a service's, perhaps":          {process: record.Process{Cgroup: own}, rest: 90 * mebi, want: record.CannotTell},
		"much without a process":        {process: record.Process{Cgroup: own}, rest: 900 * mebi, want: record.Yes, why: "900 MiB in use without a process"},
		"a GPU that has a fault": {process: record.Process{UID: me, Cgroup: own}, fact: gpu.Fact{Code: gpu.RemapFailed, Value: "yes"},
			want: record.CannotTell, why: "GPU GPU-a: the remapping of a memory row has failed (BKD-REMAPFAILED)"},
		"a GPU that works": {process: record.Process{UID: me, Cgroup: own}, fact: gpu.Fact{Code: gpu.RemapPending, Value: "yes"}, want: record.No},
		"a vendor never tried": {rest: 900 * mebi, process: record.Process{Cgroup: own}, want: record.CannotTell,
			change: func(r *gpu.Reading) { r.Device.Vendor = "amd" }},
		"no list": {process: record.Process{Cgroup: own}, want: record.CannotTell,
			change: func(r *gpu.Reading) { r.ProcessesUnknown = "withheld" }},
		"memory that shows nothing": {process: record.Process{Cgroup: own}, rest: 900 * mebi, want: record.No,
			change: func(r *gpu.Reading) { r.Memory.Unjudged = "NUMA" }},
	} {
		limits := record.NewLimits(32*mebi, 256*mebi)
		has := cmp.Or(tt.has, 1000*mebi)
		r := gpu.Reading{Device: gpu.Device{ID: "GPU-a"}, Processes: []gpu.Process{{PID: 9, Memory: gpu.Bytes(has)}},
			Memory: gpu.Memory{Used: gpu.Bytes(has + limits.PerClient + tt.rest)}}
		if tt.change != nil {
			tt.change(&r)
		}
		who := map[int]record.Process{9: tt.process}
		if tt.absent {
			who = nil
		}
		now := gpu.Snapshot{Readings: []gpu.Reading{{Device: gpu.Device{ID: "GPU-0"}}, r}}
		avoid, why := Vet(record.Owner{Job: 5, UID: me}, limits, now, []gpu.Health{{Device: "GPU-a", Facts: []gpu.Fact{tt.fact}}}, who)
		must.Not(t, avoid != tt.want || !strings.Contains(why, tt.why) || (why == "") != (avoid == record.No),
			"%s: %s, %q, want %s, %q", name, avoid, why, tt.want, tt.why)
	}
}
