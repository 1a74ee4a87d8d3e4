package answer

import (
	"strings"
	"testing"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/code"
	"bookend/internal/diagnosis"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/oom"
	"bookend/internal/settle"
	"bookend/internal/slurm"
)

// squeezed is the end of a job that ran out of memory beside somebody else's process, with all that was read of it.
func squeezed() (Run, ledger.End) {
	unsaid, zero, rank := gpu.Unknown("not said"), 0, 3
	device := gpu.Device{ID: card0}
	at := time.Date(2026, 11, 21, 9, 0, 0, 0, time.Local)
	side := func(boot time.Duration, s settle.State) *finding.Side {
		return &finding.Side{
			Snapshot: gpu.Snapshot{At: boot,
				Readings: []gpu.Reading{{Device: device,
					Memory: gpu.Memory{Total: gpu.Bytes(80 << 30), Reserved: gpu.Bytes(615 << 20)}}}},
			Curves: map[gpu.ID]settle.Curve{card0: {State: s}},
		}
	}
	in := diagnosis.Input{
		Job:   slurm.Job{ID: 3, UID: 5, Node: "n1", Exit: slurm.ExitStatus{Known: true, Raw: 256}},
		Cards: []finding.Card{{Device: device}}, Start: side(100*time.Second, settle.Flat),
		End: side(900*time.Second, settle.Clean),
		StartFindings: []finding.Finding{{Code: code.Dirty, GPU: card0, Index: &zero, Bytes: gpu.Bytes(40 << 30),
			Holder: &finding.Holder{Process: attrib.Process{PID: 5150, UID: 7}}}},
		Messages: []oom.Message{{
			Kind: oom.Device, Framework: oom.PyTorch, GPU: &zero, Rank: &rank, Count: 3,
			Line:  "torch.OutOfMemoryError: CUDA out of memory.\x1b[2J",
			Asked: gpu.Bytes(20 << 30), Total: gpu.Bytes(79 << 30), Free: gpu.Bytes(4 << 30),
			InUse:     gpu.Bytes(35 << 30),
			Allocated: unsaid, Idle: unsaid,
			Others: []oom.Process{{PID: 5150, Memory: gpu.Bytes(40 << 30)}},
		}},
		Health: []gpu.Health{{Device: card0, Facts: []gpu.Fact{
			{Code: gpu.ECCUncorrected, Value: "0"}, {Code: gpu.RemapRows, Value: "2"},
			{Code: "bar1_used", Value: "1000"}, {Code: gpu.FabricState, Value: "completed"},
			{Code: gpu.RecoveryAction, Unknown: "no_permission"},
		}, Accounting: gpu.Accounting{Mode: "on",
			Processes: []gpu.Accounted{{PID: 900, Peak: gpu.Bytes(35 << 30), Began: at.Add(-time.Minute),
				Ran: 50 * time.Second}}}}},
		Kernel: &gpu.KernelLog{
			Xids: []gpu.Xid{{BusID: "0000:1b:00.0", Instance: "GPU-I 5", Code: 31, PID: 900, Name: "train\n",
				Text: "Ch 00000008", More: 3}},
			Kills: []gpu.HostKill{{PID: 901, Name: "loader"}}, Lost: true,
		},
		Seen: []diagnosis.Sighting{{At: 500 * time.Second, Device: card0, PID: 900, Bytes: gpu.Bytes(1 << 30),
			Own: true}},
		WallStart: at.Add(-time.Hour), WallEnd: at, SharedUnknown: "gres.conf not read", HealthUnknown: "",
	}
	d := diagnosis.Why(in)
	return ended(in.Job, ledger.End{Health: in.Health, Kernel: in.Kernel, Messages: in.Messages, Diagnosis: &d})
}

// ended is the document of a job's end.
func ended(j slurm.Job, e ledger.End) (Run, ledger.End) {
	r := documented(ledger.Run{Job: j, Devices: []ledger.Assigned{{Device: gpu.Device{ID: card0}}},
		Ends: []ledger.End{e}}).Runs[0]
	return r, r.Record.Ends[0]
}

// An admin reads every cause with PIDs and figures, and what the job's output said.
func TestWhy(t *testing.T) {
	r, e := squeezed()
	var b strings.Builder
	r.why(&b, e)
	const want = `  its output says (PyTorch, 3 times): torch.OutOfMemoryError: CUDA out of memory.\x1b[2J
  Why out of memory: another process held memory of your GPU
    YES          another process         GPU 0: 40.0 GiB when your job began
    no           left by an earlier job  none on record
    no           memory without process  none at start or end
    no           fragmented memory       GPU 0: only 4.0 GiB free, 20.0 GiB asked
    cannot tell  framework's pool        PyTorch does not say what its pool kept
    cannot tell  GPU or driver fault     part of the kernel log was overwritten
    no           your own use            GPU 0: 35.0 + 20.0 GiB asked fit in 79.0 GiB
    no           several processes       the rest was not your job's
    no           limits, host memory     the GPU's memory ran out
    cannot tell  only a share            gres.conf not read
    peak: PID 900 had 35.0 GiB at most, began 2026-11-21 08:59:00
    try: another node: sbatch --exclude=n1
`
	if b.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", b.String(), want)
	}
}

// Of a job that is known to have ended well only its peaks are told; where that is not known, everything is.
func TestWhyThatNobodyAsks(t *testing.T) {
	d := diagnosis.Why(diagnosis.Input{})
	d.Peaks = []gpu.Accounted{{PID: 900, Peak: gpu.Bytes(1 << 30), Running: true}}
	const peak = "    peak: PID 900 had 1.0 GiB at most\n"
	for known, want := range map[bool]string{true: "", false: "  Out of memory? How the job ended is not known\n    "} {
		r, e := ended(slurm.Job{Exit: slurm.ExitStatus{Known: known}}, ledger.End{Diagnosis: &d})
		var b strings.Builder
		r.why(&b, e)
		if got := b.String(); !strings.HasPrefix(got, want) || !strings.HasSuffix(got, peak) || known && got != peak {
			t.Errorf("exit known %v:\n%s", known, got)
		}
	}
}

// What was read of the kernel's log is told, and why it was not.
func TestKernelLog(t *testing.T) {
	_, e := squeezed()
	for _, tt := range []struct {
		log  gpu.KernelLog
		want string
	}{
		{*e.Kernel, `  kernel log: part of it was overwritten before it was read
  kernel log: Xid 31 on 0000:1b:00.0: memory page fault: a program's kernel used an address that is not its own, PID 900 (train\x0a), and 3 like it before: Ch 00000008
  kernel log: host memory ran out: PID 901 (loader) was ended
`},
		{gpu.KernelLog{Unknown: "/dev/kmsg: permission denied", Mismatch: "NVRM: API mismatch"},
			"  kernel log: not read: /dev/kmsg: permission denied\n  kernel log: NVRM: API mismatch\n"},
	} {
		var b strings.Builder
		if kernelText(&b, tt.log); b.String() != tt.want {
			t.Errorf("got:\n%s\nwant:\n%s", b.String(), tt.want)
		}
	}
}
