package report

import (
	"slices"
	"strings"
	"testing"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/code"
	"bookend/internal/diagnosis"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/oom"
	"bookend/internal/settle"
	"bookend/internal/slurm"
)

const gibi = 1 << 30

func gib(n float64) gpu.Figure { return gpu.Bytes(uint64(n * gibi)) }

// story is a job on an H200 that failed with nothing wrong on the node.
func story(messages ...oom.Message) diagnosis.Input {
	device := gpu.Device{ID: "GPU-a"}
	side := func(at time.Duration) *finding.Side {
		return &finding.Side{
			Snapshot: gpu.Snapshot{At: at, Readings: []gpu.Reading{{Device: device, Memory: gpu.Memory{
				Total: gpu.Bytes(143771 * mebi), Reserved: gpu.Bytes(615 * mebi), Used: gpu.Bytes(0), Free: gpu.Bytes(143155 * mebi)}}}},
			Curves: map[gpu.ID]settle.Curve{"GPU-a": {State: settle.Clean, Looks: 1}},
		}
	}
	return diagnosis.Input{
		Job:   slurm.Job{ID: 42, UID: 1001, Node: "n1", Exit: slurm.ExitStatus{Known: true, Raw: 1 << 8}},
		Cards: []finding.Card{{Index: 0, Device: device}},
		Start: side(500 * time.Second), End: side(1000 * time.Second),
		Probes: []gpu.Probe{{Device: "GPU-a", Result: gpu.ProbeOK, Free: gpu.Bytes(143155 * mebi), Largest: gpu.Bytes(143153 * mebi)}},
		Health: []gpu.Health{{Device: "GPU-a", Facts: []gpu.Fact{{Code: gpu.ECCUncorrected, Value: "0"}}, Accounting: gpu.Accounting{Mode: "off"}}},
		Kernel: &gpu.KernelLog{}, Messages: messages, AddressSpace: gpu.Bytes(diagnosis.Unlimited),
		WallStart: time.Date(2026, 11, 21, 8, 51, 40, 0, time.UTC), WallEnd: time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC),
	}
}

// torch is PyTorch's message, figures in GiB: asked, of which free, by this process, live and idle in its pool.
func torch(asked, free, mine, live, idle float64) oom.Message {
	zero := 0
	return oom.Message{
		Kind: oom.Device, Framework: oom.PyTorch, GPU: &zero, Count: 1, Limit: gpu.Unknown("not said"), Line: "torch.OutOfMemoryError: CUDA out of memory.",
		Asked: gib(asked), Total: gpu.Bytes(143156 * mebi), Free: gib(free), InUse: gib(mine), Allocated: gib(live), Idle: gib(idle),
	}
}

func dirty(h *finding.Holder, o *finding.Owner, gib float64) finding.Finding {
	f := found(code.Dirty, h, o)
	f.Bytes = gpu.Bytes(uint64(gib * gibi))
	return f
}

// tell renders the end of a story.
func tell(in diagnosis.Input) []Safe {
	why := diagnosis.Why(in)
	s := scene(len(in.Cards), settle.Clean)
	if len(in.StartFindings) > 0 {
		s.Before = &finding.Side{Curves: map[gpu.ID]settle.Curve{"GPU-a": {State: settle.Flat}}}
	}
	s.Cards, s.Why = in.Cards, &why
	return End(s)
}

// The stories that everybody who runs out of memory is in: each names its cause and rules out the others.
func TestStories(t *testing.T) {
	squeezed := story(torch(40, 15.8, 23.5, 22.6, 0.4))
	squeezed.Messages[0].Others = []oom.Process{{PID: 4711, Memory: gib(100.5)}}
	squeezed.Start.Curves["GPU-a"], squeezed.End.Curves["GPU-a"] = settle.Curve{State: settle.Flat}, settle.Curve{State: settle.Clean}
	squeezed.StartFindings = []finding.Finding{dirty(holder(1002), nil, 100.5)}
	heir := story(torch(40, 15.8, 23.5, 22.6, 0.4))
	heir.Start.Curves["GPU-a"] = settle.Curve{State: settle.Flat}
	heir.StartFindings = []finding.Finding{dirty(nil, &finding.Owner{Job: 41, UID: 1002, Level: attrib.ByExclusive}, 100.5)}
	limited := story(oom.Message{Kind: oom.Init, Framework: oom.PyTorch, Count: 1, Line: "RuntimeError: CUDA error: out of memory"})
	measured := story(torch(20, 0.8, 138.9, 137.8, 0.5))
	measured.Health[0].Accounting = gpu.Accounting{Mode: "on", Processes: []gpu.Accounted{
		{PID: 900, Peak: gib(138.9), Began: measured.WallStart.Add(time.Minute), Ran: time.Minute},
		{PID: 10, Peak: gib(99), Began: measured.WallStart.Add(-time.Hour), Ran: time.Minute},
	}}
	failed := story()
	for _, tt := range []struct {
		name string
		in   diagnosis.Input
		yes  []diagnosis.Name
		want string
	}{
		{"itself", story(torch(20, 0.8, 138.9, 137.8, 0.5)), []diagnosis.Name{diagnosis.Own}, `
bookend: GPU 0 of n1 left clean by your job
bookend: Why out of memory: your job itself used up the GPU
bookend:   no           another process: none at start, end or failure
bookend:   no           left by an earlier job: GPU clean at your start
bookend:   no           memory without process: none at start, end or failure
bookend:   no           memory in pieces: only 819 MiB free, 20.0 GiB asked
bookend:   no           framework's pool: 512 MiB unused, 20.0 GiB asked
bookend:   no           GPU or driver fault: none in driver and kernel log
bookend:   no           driver overhead: only 530 MiB a process
bookend:   YES          your own use: 138.9 GiB in use, 20.0 GiB more asked,
bookend:                of 139.8 GiB
bookend:   no           several processes: one alone had it when it failed
bookend:   no           limits, host memory: the GPU's memory ran out
bookend:   no           only a share: it had the whole GPU
bookend:   Try:    a smaller batch, or a larger GPU
bookend:   Try:    gradient checkpointing, lower precision
bookend:   Try:    the model spread over more GPUs`},
		{"itself, measured", measured, []diagnosis.Name{diagnosis.Own}, `
bookend: GPU 0 of n1 left clean by your job
bookend: Why out of memory: your job itself used up the GPU
bookend:   no           another process: none at start, end or failure
bookend:   no           left by an earlier job: GPU clean at your start
bookend:   no           memory without process: none at start, end or failure
bookend:   no           memory in pieces: only 819 MiB free, 20.0 GiB asked
bookend:   no           framework's pool: 512 MiB unused, 20.0 GiB asked
bookend:   no           GPU or driver fault: none in driver and kernel log
bookend:   no           driver overhead: only 530 MiB a process
bookend:   YES          your own use: 138.9 GiB in use, 20.0 GiB more asked,
bookend:                of 139.8 GiB
bookend:   no           several processes: one alone had it when it failed
bookend:   no           limits, host memory: the GPU's memory ran out
bookend:   no           only a share: it had the whole GPU
bookend:   Peak:   138.9 GiB (process 900)
bookend:   Try:    a smaller batch, or a larger GPU
bookend:   Try:    gradient checkpointing, lower precision
bookend:   Try:    the model spread over more GPUs`},
		{"its pool in pieces", story(torch(12, 1.2, 138.5, 92.8, 45.1)), []diagnosis.Name{diagnosis.Pool}, `
bookend: GPU 0 of n1 left clean by your job
bookend: Why out of memory: your framework's pool was in pieces
bookend:   no           another process: none at start, end or failure
bookend:   no           left by an earlier job: GPU clean at your start
bookend:   no           memory without process: none at start, end or failure
bookend:   no           memory in pieces: only 1.2 GiB free, 12.0 GiB asked
bookend:   YES          framework's pool: 45.1 GiB unused, but in pieces; 12.0
bookend:                GiB asked, 1.2 GiB free
bookend:   no           GPU or driver fault: none in driver and kernel log
bookend:   no           driver overhead: only 530 MiB a process
bookend:   no           your own use: 93.4 + 12.0 GiB asked fit in 139.8 GiB
bookend:   no           several processes: one alone had it when it failed
bookend:   no           limits, host memory: the GPU's memory ran out
bookend:   no           only a share: it had the whole GPU
bookend:   Try:    PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
bookend:   Try:    a smaller batch, inputs of one size`},
		{"squeezed", squeezed, []diagnosis.Name{diagnosis.Others}, `
bookend: GPU 0 of n1 as your job found it: nothing more on it than before
bookend: Why out of memory: another process held memory of your GPU
bookend:   YES          another process: 100.5 GiB when your job began, since
bookend:                08:50:00
bookend:   no           left by an earlier job: none on record
bookend:   no           memory without process: none at start or end
bookend:   no           memory in pieces: only 15.8 GiB free, 40.0 GiB asked
bookend:   no           framework's pool: 409 MiB unused, 40.0 GiB asked
bookend:   no           GPU or driver fault: none in driver and kernel log
bookend:   no           driver overhead: only 530 MiB a process
bookend:   no           your own use: 23.5 + 40.0 GiB asked fit in 139.8 GiB
bookend:   no           several processes: the rest was not your job's
bookend:   no           limits, host memory: the GPU's memory ran out
bookend:   no           only a share: it had the whole GPU
bookend:   Try:    another node: sbatch --exclude=n1
bookend:   Try:    tell your admin: bookend show 42 on n1`},
		{"an exported handle", heir, []diagnosis.Name{diagnosis.Leftover, diagnosis.Unlisted}, `
bookend: GPU 0 of n1 as your job found it: nothing more on it than before
bookend: Why out of memory: an earlier job left GPU memory in use
bookend:   no           another process: none at start or end
bookend:   YES          left by an earlier job: 100.5 GiB when your job began
bookend:   YES          memory without process: the same: no process is listed
bookend:                for it
bookend:   no           memory in pieces: only 15.8 GiB free, 40.0 GiB asked
bookend:   no           framework's pool: 409 MiB unused, 40.0 GiB asked
bookend:   no           GPU or driver fault: none in driver and kernel log
bookend:   no           driver overhead: only 530 MiB a process
bookend:   no           your own use: 23.5 + 40.0 GiB asked fit in 139.8 GiB
bookend:   no           several processes: the rest was not your job's
bookend:   no           limits, host memory: the GPU's memory ran out
bookend:   no           only a share: it had the whole GPU
bookend:   Try:    another node: sbatch --exclude=n1
bookend:   Try:    tell your admin: bookend show 42 on n1`},
		{"ulimit -v", limited, []diagnosis.Name{diagnosis.Limits}, `
bookend: GPU 0 of n1 left clean by your job
bookend: Why CUDA did not start: a limit of your job, not the GPU
bookend:   no           another process: none at start or end
bookend:   no           left by an earlier job: GPU clean at your start
bookend:   no           memory without process: none at start or end
bookend:   no           memory in pieces: 139.8 of 139.8 GiB in one block
bookend:   no           framework's pool: CUDA did not even start
bookend:   no           GPU or driver fault: none in driver and kernel log
bookend:   no           driver overhead: only 530 MiB a process
bookend:   no           your own use: CUDA did not even start
bookend:   no           several processes: CUDA did not even start
bookend:   YES          limits, host memory: CUDA could not start with 139.8
bookend:                GiB of GPU memory free: a limit such as ulimit -v
bookend:   no           only a share: it had the whole GPU
bookend:   Try:    ulimit -v unlimited; look for ulimit in script and .bashrc`},
		{"failed for another reason", failed, nil, `
bookend: GPU 0 of n1 left clean by your job
bookend: Your job failed (exit code 1); no known message in its output`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var yes []diagnosis.Name
			for _, c := range diagnosis.Why(tt.in).Causes {
				if c.Answer == diagnosis.Yes {
					yes = append(yes, c.Name)
				}
			}
			if !slices.Equal(yes, tt.yes) {
				t.Errorf("yes: %v, want %v", yes, tt.yes)
			}
			if got := text(tell(tt.in)); got != tt.want {
				t.Errorf("got:%s\nwant:%s", got, tt.want)
			}
		})
	}
}

func text(lines []Safe) string {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString("\n" + string(l))
	}
	return b.String()
}

// Whatever is found beside it, a report stays on one screen, and what is cut is never a yes nor what to try.
func TestWhyAndFindings(t *testing.T) {
	in := story(torch(20, 0.8, 138.9, 137.8, 0.5))
	why := diagnosis.Why(in)
	for n := range 12 {
		var many []finding.Finding
		for range n {
			many = append(many, found(code.Orphan, holder(1001), &finding.Owner{Job: 42, UID: 1001, Level: attrib.ByCgroup}))
		}
		s := scene(1, settle.Flat, many...)
		s.Why = &why
		got := End(s)
		all := text(got)
		for _, want := range []string{"\nbookend: Why out of memory: ", "\nbookend:   YES          your own use: ", "Try:    a smaller batch", "Try:    the model spread"} {
			if !strings.Contains(all, want) {
				t.Errorf("%d findings: no %q in%s", n, want, all)
			}
		}
		if len(got) > MaxLines || n > 0 && !strings.Contains(string(got[0]), "was not clean") || s.Clean() {
			t.Errorf("%d findings, %d lines:%s", n, len(got), all)
		}
		for _, l := range got {
			if len(l) > Width || !strings.HasPrefix(string(l), "bookend: ") {
				t.Errorf("bad line %q", l)
			}
		}
	}
}

// A start has no answer to it, and a job that nobody asks about reads nothing of it.
func TestNobodyAsks(t *testing.T) {
	in := story()
	in.Job.Exit.Raw = 0
	why := diagnosis.Why(in)
	s := scene(1, settle.Clean)
	if s.Why = &why; !s.Clean() || len(End(s)) != 1 {
		t.Errorf("%v", End(s))
	}
}

// Reasons from outside stay on their line, and of several cards each row names its own.
func TestWhyIsClean(t *testing.T) {
	s := scene(2, settle.Clean)
	index := 1
	s.Why = &diagnosis.Diagnosis{Reason: diagnosis.ByMessage, Headline: "Why\nexport PATH=/x", Try: []string{"\x1b[2J"}, Causes: []diagnosis.Cause{
		{Name: diagnosis.Own, Answer: diagnosis.Yes, Evidence: "a\nb " + strings.Repeat("w", 500), Index: &index},
	}}
	got := End(s)
	for _, l := range got {
		if len(l) > Width || strings.ContainsAny(string(l), "\n\x1b") || !strings.HasPrefix(string(l), "bookend: ") {
			t.Errorf("bad line %q", l)
		}
	}
	if !strings.Contains(text(got), "your own use: GPU 1: ") {
		t.Errorf("%s", text(got))
	}
}
