package condition

import (
	"strings"
	"testing"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/test/must"
)

// A health check resets a GPU only if nothing speaks against it: each row has one thing that does.
func TestRepairRefused(t *testing.T) {
	const gpuA = gpu.ID("GPU-a")
	epilog := func(id gpu.ID, f record.Finding) func(*Reset, *Repair) {
		f.GPU = id
		return func(_ *Reset, k *Repair) {
			k.Runs = []record.Run{{Job: slurm.Job{ID: 4}, Ends: []record.End{{Findings: []record.Finding{f}}}}}
		}
	}
	onCheck := func(f record.Finding) func(*Reset, *Repair) {
		return func(_ *Reset, k *Repair) { k.Check.Findings = append(k.Check.Findings, f) }
	}
	onLog := func(x gpu.Xid) func(*Reset, *Repair) {
		return func(_ *Reset, k *Repair) { k.Log.Xids = []gpu.Xid{x} }
	}
	const uncertain = "the last health check does not say for certain that memory is left on it"
	const unknown = "whether its hardware is well is not known: not all of the kernel log or of the records was read"
	const unproven = "nor could a reset prove that it is well: "
	for name, tt := range map[string]struct {
		change func(*Reset, *Repair)
		want   string // empty: it may be reset
	}{
		"ready":                         {func(*Reset, *Repair) {}, ""},
		"what speaks against any reset": {func(r *Reset, _ *Repair) { r.Open = "a job may get GPU 3" }, "a job may get GPU 3"},
		"a holder":                      {func(r *Reset, _ *Repair) { r.Scan = holding("train", 1000, "", 1) }, "process 42 (train) has nvidia1, nvidiactl open: end it"},
		"a job is on the node":          {func(r *Reset, _ *Repair) { r.Idle = false }, "the node is not drained and without jobs"},
		"it came back within a day of a reset, and waits since": {func(r *Reset, k *Repair) {
			k.Drained = r.Now.Add(-48 * time.Hour)
			r.Earlier = []ResetAttempt{{GPU: gpuA, At: k.Drained.Add(-23 * time.Hour), Done: true, Boot: r.Boot}}
		}, "it was reset at "},
		"it came back two days after a reset": {func(r *Reset, k *Repair) {
			r.Earlier = []ResetAttempt{{GPU: gpuA, At: k.Drained.Add(-48 * time.Hour), Done: true, Boot: r.Boot}}
		}, ""},
		"no check":                         {func(_ *Reset, k *Repair) { k.Check = nil }, uncertain},
		"a stopped check":                  {func(_ *Reset, k *Repair) { k.Check.Stopped = true }, uncertain},
		"a check before the reboot":        {func(_ *Reset, k *Repair) { k.Check.Boot = "boot-0" }, uncertain},
		"a check cut short":                {func(_ *Reset, k *Repair) { k.Check.Rest = map[string]int{"findings": 2} }, uncertain},
		"a check of this morning":          {func(_ *Reset, k *Repair) { k.Check.Wall = k.Check.Wall.Add(-time.Hour) }, uncertain},
		"nothing found":                    {func(_ *Reset, k *Repair) { k.Check.Findings = nil }, uncertain},
		"found with a doubt":               {func(_ *Reset, k *Repair) { k.Check.Findings[0].Doubts = []string{"still changing"} }, uncertain},
		"perhaps found":                    {func(_ *Reset, k *Repair) { k.Check.Findings[0].Unknown = "not all was read" }, uncertain},
		"found on another GPU":             {func(_ *Reset, k *Repair) { k.Check.Findings[0].GPU = "GPU-b" }, uncertain},
		"a process's memory":               {func(_ *Reset, k *Repair) { k.Check.Findings[0].Code = catalog.Orphan }, uncertain},
		"a dead process's":                 {func(_ *Reset, k *Repair) { k.Check.Findings[0].Code = catalog.Phantom }, ""},
		"free by now":                      {func(r *Reset, _ *Repair) { r.Before.Reading.Memory.Used = gpu.Bytes(0) }, "its memory is free by now, or cannot be judged"},
		"its processes are not known":      {func(r *Reset, _ *Repair) { r.Before.Reading.ProcessesUnknown = "no list" }, "its memory is free by now, or cannot be judged"},
		"another GPU's error by the check": {onCheck(record.Finding{Code: catalog.ECC, GPU: "GPU-b"}), ""},
		"an error of an earlier job": {func(r *Reset, k *Repair) {
			epilog(gpuA, record.Finding{Code: catalog.ECC, Observed: "2 errors"})(r, k)
			k.Runs = append(k.Runs, record.Run{Job: slurm.Job{ID: 5}, Ends: []record.End{{Findings: []record.Finding{{Code: catalog.Residue, GPU: gpuA}}}}})
		}, "BKD-ECC is on record: 2 errors"},
		"not readable": {func(r *Reset, _ *Repair) { r.Before.Reading = nil }, "its memory is free by now, or cannot be judged"},

		"an ECC error of a job":      {epilog(gpuA, record.Finding{Code: catalog.ECC, Observed: "2 errors"}), "BKD-ECC is on record: 2 errors"},
		"one of another GPU":         {epilog("GPU-b", record.Finding{Code: catalog.ECC, Observed: "2 errors"}), ""},
		"a doubtful one":             {epilog(gpuA, record.Finding{Code: catalog.ECC, Observed: "2", Doubts: []string{"d"}}), "BKD-ECC is on record: 2"},
		"an Xid of the hardware":     {epilog(gpuA, record.Finding{Code: catalog.XidFatal, Xid: 79, Observed: "x"}), "BKD-XIDFATAL is on record: x"},
		"one that is no fatal error": {epilog(gpuA, record.Finding{Code: catalog.Xid, Xid: 48, Observed: "x"}), "BKD-XID is on record: x"},
		"an unknown Xid":             {epilog(gpuA, record.Finding{Code: catalog.Xid, Xid: 9999, Observed: "x"}), "BKD-XID is on record: x"},
		"a program's Xid":            {epilog(gpuA, record.Finding{Code: catalog.Xid, Xid: 13}), ""},
		"wrong bits":                 {epilog(gpuA, record.Finding{Code: catalog.Bits, Observed: "77:4"}), "BKD-BITS is on record: 77:4"},
		"CUDA failed":                {epilog(gpuA, record.Finding{Code: catalog.Broken, Observed: "x"}), "BKD-BROKEN is on record: x"},
		"it did not answer":          {epilog(gpuA, record.Finding{Code: catalog.NoAnswer, Observed: "x"}), "BKD-NOANSWER is on record: x"},
		"slowed down":                {epilog(gpuA, record.Finding{Code: catalog.Throttle}), ""},
		"the site's own check":       {onCheck(record.Finding{Code: catalog.External, Observed: "CRITICAL"}), "BKD-EXTERNAL is on record: CRITICAL"},
		"the driver as a whole":      {onCheck(record.Finding{Code: catalog.DriverKO, Observed: "x"}), "BKD-DRIVER is on record: x"},
		"a fault of no named GPU":    {onCheck(record.Finding{Code: catalog.KernelLog, Observed: "x"}), "BKD-KERNELLOG is on record: x"},
		"the host's memory":          {onCheck(record.Finding{Code: catalog.HostMemory}), ""},
		"ECC errors are counted": {func(r *Reset, _ *Repair) {
			r.Before.Health = healthOf("remap_uncorrected=0", "persistence=on", "ecc_uncorrected=5")
		}, "BKD-ECC is on record: 5 uncorrectable memory errors since the driver was loaded"},
		"the driver asks for a reset": {func(r *Reset, _ *Repair) {
			r.Before.Health = healthOf("remap_uncorrected=0", "persistence=on", "recovery_action=reset")
		}, "BKD-RECOVERY is on record: the driver asks for a reset of the GPU"},
		"an error since the check":   {onLog(gpu.Xid{BusID: bus, Code: 79}), "BKD-XIDFATAL is on record: Xid 79 (the GPU has fallen off the bus) at 0.000000 s of the kernel log"},
		"one before the check":       {func(_ *Reset, k *Repair) { k.Log.Before = []gpu.Xid{{BusID: bus, Code: 48}} }, "BKD-XIDFATAL is on record: Xid 48 (uncorrectable (double bit) memory error) at 0.000000 s of the kernel log"},
		"one that is over":           {func(_ *Reset, k *Repair) { k.Standing.Errors = map[gpu.BusID]int{bus: 48} }, "an error of its hardware is on record"},
		"another GPU's that is over": {func(_ *Reset, k *Repair) { k.Standing.Errors = map[gpu.BusID]int{"0000:3d:00.0": 48} }, ""},
		"a program's since":          {onLog(gpu.Xid{BusID: bus, Code: 13}), ""},
		"another GPU's since":        {onLog(gpu.Xid{BusID: "0000:3d:00.0", Code: 79}), ""},
		"an error that stands":       {func(_ *Reset, k *Repair) { k.Standing.Faults = []record.StandingFault{{Xid: gpu.Xid{BusID: bus}}} }, "an error of its hardware is on record"},
		"another GPU's that stands":  {func(_ *Reset, k *Repair) { k.Standing.Faults = []record.StandingFault{{}} }, ""},
		"a failed test":              {func(_ *Reset, k *Repair) { k.Test.Result = gpu.ProbeWrong }, `its last memory test ended with "wrong"`},
		"a gap":                      {func(_ *Reset, k *Repair) { k.Test.Result = gpu.ProbeGap }, `its last memory test ended with "gap"`},
		"the log was not read":       {func(_ *Reset, k *Repair) { k.Log = nil }, unknown},
		"the log cannot be read":     {func(_ *Reset, k *Repair) { k.Log.Unknown = "no permission" }, unknown},
		"part of the log is lost":    {func(_ *Reset, k *Repair) { k.Log.Lost = true }, unknown},
		"a record is damaged":        {func(_ *Reset, k *Repair) { k.Unread = true }, unknown},
		"the log was lost earlier":   {func(_ *Reset, k *Repair) { k.Standing.Lost = true }, unknown},
		"no condition was read":      {func(r *Reset, _ *Repair) { r.Before.Health = gpu.Health{} }, unproven + "recovery action: the driver does not report it"},
		"ECC errors are not known": {func(r *Reset, _ *Repair) {
			r.Before.Health = healthOf("recovery_action=none", "remap_uncorrected=0", "persistence=on", "ecc_uncorrected=?timeout")
		}, unproven + "memory errors since load: timeout"},
		"a driver before 570": {func(r *Reset, _ *Repair) {
			r.Before.Health = healthOf("recovery_action=?not supported", "remap_uncorrected=0", "persistence=on", "ecc_uncorrected=0")
		}, unproven + "recovery action: not supported"},
		"its NVLinks are not known":    {func(r *Reset, _ *Repair) { r.Before.Links = "" }, unproven + "active NVLinks: unknown"},
		"a link to a switch is not up": {func(r *Reset, _ *Repair) { r.Switches, r.Manager = true, "active" }, unproven + "active NVLinks: 12"},
	} {
		t.Run(name, func(t *testing.T) {
			r := readyToReset()
			r.Before.Health = healthOf("recovery_action=none", "remap_uncorrected=0", "persistence=on", "ecc_uncorrected=0")
			left := record.Finding{Code: catalog.Residue, GPU: gpuA, Bytes: gpu.Bytes(20 << 30)}
			k := Repair{Limits: record.Limits{Report: 32 << 20}, Log: &gpu.KernelLog{}, Drained: r.Now.Add(-time.Hour),
				Check: &record.Check{Wall: r.Now.Add(-time.Minute), Boot: r.Boot, Findings: []record.Finding{left}}}
			tt.change(&r, &k)
			got := ""
			if all := r.RepairRefusals(k); len(all) > 0 {
				got = all[0]
			}
			if strings.HasSuffix(tt.want, " ") {
				got = got[:min(len(got), len(tt.want))]
			}
			must.Be(t, "refused", got, tt.want)
		})
	}
}

// What was overwritten in the kernel's log before a health check read it stays unknown until the driver is loaded again. A job's
// hook misses entries that a check has read.
func TestLostLog(t *testing.T) {
	now, reloaded := gpu.Epoch{Boot: "b", Driver: "580", Module: "m"}, gpu.Epoch{Boot: "b", Driver: "580", Module: "n"}
	look := func(epoch gpu.Epoch, lost bool, job slurm.JobID) Look {
		return Look{Epoch: epoch, Kernel: &gpu.KernelLog{Epoch: epoch, Lost: lost}, Hook: record.StandingFault{Job: job}}
	}
	for name, tt := range map[string]struct {
		looks []Look
		want  bool
	}{
		"all was read":        {[]Look{look(now, false, 0), look(now, false, 0)}, false},
		"lost":                {[]Look{look(now, false, 0), look(now, true, 0), look(now, false, 0)}, true},
		"lost at first":       {[]Look{look(now, true, 0), look(now, false, 7)}, true},
		"a job's hook":        {[]Look{look(now, true, 7), look(now, true, 7)}, false},
		"the driver reloaded": {[]Look{look(now, true, 0), look(reloaded, false, 0)}, false},
	} {
		s := record.Standing{}
		for _, l := range tt.looks {
			s = l.Absorb(s)
		}
		must.Be(t, name, s.Lost, tt.want)
	}
}
