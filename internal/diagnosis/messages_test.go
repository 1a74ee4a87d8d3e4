package diagnosis

import (
	"slices"
	"strings"
	"testing"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/condition"
	"bookend/internal/gpu"
	"bookend/internal/oomlog"
	"bookend/internal/record"
	"bookend/test/must"
)

// The output of a job of several nodes has the messages of all: what they say of the job itself holds wherever it was,
// and nothing on this node's cards is weighed against them.
func TestSeveralNodesShareAnOutput(t *testing.T) {
	two := func(f ...func(*Input)) func(*Input) {
		return both(append(f, func(in *Input) { in.Job.NodeList = "n[1-2]" })...)
	}
	left := func(in *Input) { in.dirtyStart(there(catalog.Dirty, 100.5, 0, before)) }
	judged(t, []row{
		{"its own use", two(saying(itself)), record.CauseOwn, record.Yes, "used 138.8 of 139.8 GiB, then requested 20.0 GiB more"},
		{"its pool", two(saying(pooled)), record.CausePool, record.Yes, "unallocated"},
		{"would fit but for another", two(saying(beside)), record.CauseOwn, record.No, "asked fit in"},
		{"no one else when it failed", two(saying(itself)), record.CauseOthers, record.CannotTell, "known of n1 alone"},
		{"somebody when it failed", two(saying(beside)), record.CauseOthers, record.CannotTell, "held by something"},
		{"clean here", two(saying(beside)), record.CauseLeftover, record.CannotTell, "known of n1 alone"},
		{"well here", two(saying(jax(20))), record.CauseFault, record.CannotTell, "known of n1 alone"},
		{"in pieces here", two(func(in *Input) {
			saying(jax(120))(in)
			in.Probes[0].Result, in.Probes[0].Largest = gpu.ProbeGap, gib(100)
		}), record.CausePieces, record.CannotTell, "whether that mattered"},
		{"little was free there", two(saying(itself)), record.CausePieces, record.CannotTell, "only 921 MiB free"},
		{"left here, somebody there", two(left, saying(beside)), record.CauseLeftover, record.CannotTell, "whether that mattered"},
		{"seen here", two(saying(beside), seeing(seen(500, 5150, 30, false))), record.CauseOthers, record.CannotTell, "GiB held"},
		{"PyTorch lists a process of that number", two(saying(listing(5150, 100.4)), seeing(seen(500, 5150, 30, false))), record.CauseOthers, record.CannotTell, "held by something"},
		{"several here", two(saying(jax(20)), recording(record.GPURecording{ID: gpu0, Own: record.Most{Bytes: 120 * gibi}, Together: 2})), record.CauseProcesses, record.CannotTell, "no two"},
		{"a full GPU here", two(saying(jax(20)), seeing(seen(500, 900, 133, true))), record.CauseOwn, record.CannotTell, "on other nodes"},
		{"no start on an empty GPU here", two(saying(says(record.KindInit, record.FromPyTorch))), record.CauseLimits, record.CannotTell, "no limit was seen"},
		{"no start under a limit", two(saying(says(record.KindInit, record.FromPyTorch)), limited(4)), record.CauseLimits, record.Yes, "ulimit -v is 4.0 GiB"},
		{"host memory", two(saying(says(record.KindHost, record.FromSlurm))), record.CauseLimits, record.Yes, "not the GPU's"},
		{"a part of several", func(in *Input) { in.Job.HetJobID = 42; saying(beside)(in) }, record.CauseLeftover, record.CannotTell, "known of n1 alone"},
	})
	in := well(1)
	in.Job.NodeList, in.Messages = "n[1-2]", []record.Message{beside}
	for _, s := range Why(in).Try {
		if strings.Contains(s, "exclude") {
			t.Errorf("no one knows that it was n1: %q", s)
		}
	}
}

// On one node a message without a card is weighed against none; what it lists may place it.
func TestUnplaced(t *testing.T) {
	of := func(m record.Message, f ...record.Finding) func(*Input) {
		return func(in *Input) {
			*in = well(2)
			in.Messages = []record.Message{m}
			in.dirtyStart(f...)
		}
	}
	many := itself
	many.Count = 2
	judged(t, []row{
		{"beside somebody", of(beside, there(catalog.Dirty, 100.5, 5150, nil)), record.CauseOthers, record.CannotTell, "whether that mattered"},
		{"left by an earlier job", of(beside, there(catalog.Dirty, 100.5, 0, before)), record.CauseLeftover, record.CannotTell, "whether that mattered"},
		{"by itself", of(itself, there(catalog.Dirty, 100.5, 0, before)), record.CauseLeftover, record.No, "not decisive"},
		{"several, the last by itself", of(many, there(catalog.Dirty, 100.5, 0, before)), record.CauseLeftover, record.CannotTell, "whether that mattered"},
	})
	in := well(2)
	of(beside, there(catalog.Dirty, 100.5, 0, before))(&in)
	if d := Why(in); !strings.Contains(d.Headline, "something unknown held 100.5 GiB") {
		t.Errorf("%q", d.Headline)
	}
}

func by(pid, file int, m record.Message) record.Message {
	m.PID, m.File = pid, file
	return m
}

func ofRank(n int, m record.Message) record.Message {
	m.Rank = &n
	return m
}

// What a process survived is no cause.
func TestLastWord(t *testing.T) {
	python, segment := says(record.KindHost, record.FromOther), says(record.KindHost, record.FromOther)
	segment.Line = "ImportError: /tmp/x/_ext.so: " + record.SegmentFailed
	for _, tt := range []struct {
		name     string
		said     []record.Message
		yes      []record.CauseName
		headline string
	}{
		{"the last of one process", []record.Message{pooled, itself}, []record.CauseName{record.CauseOwn}, "Why out of memory: your job needed more than the GPU has"},
		{"no figures before", []record.Message{jax(500), pooled}, []record.CauseName{record.CausePool}, "Why out of memory: fragmentation inside PyTorch"},
		{"no figures at the end", []record.Message{itself, jax(20)}, nil, "Why out of memory: nothing seen on n1 explains it: most likely your job itself"},
		{"an echo", []record.Message{pooled, itself, says(record.KindDevice, record.FromCUDA)}, []record.CauseName{record.CauseOwn}, "Why out of memory: your job needed more than the GPU has"},
		{"a GPU before host memory", []record.Message{itself, python}, []record.CauseName{record.CauseOwn}, "Why out of memory: your job needed more than the GPU has"},
		{"what need not be memory", []record.Message{itself, segment}, []record.CauseName{record.CauseOwn}, "Why out of memory: your job needed more than the GPU has"},
		{"Slurm's line has no place", []record.Message{itself, says(record.KindHost, record.FromSlurm)}, []record.CauseName{record.CauseOwn}, "Why out of memory: your job needed more than the GPU has"},
		{"an error of a kernel after it", []record.Message{itself, says(record.KindFault, record.FromCUDA)}, []record.CauseName{record.CauseOwn}, "Why out of memory: your job needed more than the GPU has"},
		{"of two files", []record.Message{pooled, by(0, 1, itself)}, []record.CauseName{record.CausePool, record.CauseOwn}, "Why out of memory: fragmentation inside PyTorch; your job needed more than the GPU has"},
		{"what one of two processes survived", []record.Message{by(902, 0, pooled), by(901, 0, itself), by(902, 0, itself)}, []record.CauseName{record.CauseOwn},
			"Why out of memory: your job needed more than the GPU has"},
		{"of two ranks", []record.Message{ofRank(0, itself), ofRank(3, pooled), ofRank(0, pooled)}, []record.CauseName{record.CausePool},
			"Why out of memory: fragmentation inside PyTorch"},
		{"each of two", []record.Message{by(901, 0, itself), by(902, 0, pooled)}, []record.CauseName{record.CausePool, record.CauseOwn},
			"Why out of memory: fragmentation inside PyTorch; your job needed more than the GPU has"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := well(1)
			in.Messages = tt.said
			d := Why(in)
			var yes []record.CauseName
			for _, c := range d.Causes {
				if c.Answer == record.Yes {
					yes = append(yes, c.Name)
				}
			}
			if !slices.Equal(yes, tt.yes) || d.Headline != tt.headline {
				t.Errorf("%v, %q, want %v, %q", yes, d.Headline, tt.yes, tt.headline)
			}
			whole(t, d)
		})
	}
}

// Beside a message about a full card host memory is called the cause only where the job was ended for it.
func TestStaleHostMemory(t *testing.T) {
	python, slurms := says(record.KindHost, record.FromOther), says(record.KindHost, record.FromSlurm)
	killed := func(exit int, m ...record.Message) func(*Input) {
		return func(in *Input) {
			in.Messages, in.Job.Exit.Raw = m, exit
			in.Kernel.Kills = []gpu.HostKill{{PID: 901, Cgroup: "/system.slice/slurmstepd.scope/job_42/step_0/user/task_0"}}
		}
	}
	judged(t, []row{
		{"caught, then the GPU was full", saying(python, itself), record.CauseLimits, record.CannotTell, "whether that mattered"},
		{"caught, then no figures", saying(python, jax(20)), record.CauseLimits, record.CannotTell, "whether that mattered"},
		{"caught, then no figures, under a limit", both(saying(python, jax(20)), limited(4)), record.CauseLimits, record.Yes, "ulimit -v is 4.0 GiB"},
		{"Slurm's line comes last whenever it was", saying(itself, slurms), record.CauseLimits, record.CannotTell, "came first"},
		{"Slurm's line alone", saying(slurms), record.CauseLimits, record.Yes, "ran out"},
		{"a helper killed, then the GPU was full", killed(1<<8, itself), record.CauseLimits, record.CannotTell, "came first"},
		{"a helper killed, the GPU full, then scancel or the time limit", killed(9, itself), record.CauseLimits, record.CannotTell, "came first"},
		{"the same, of the script's child", killed(137<<8, itself), record.CauseLimits, record.CannotTell, "came first"},
		{"killed, and Slurm's line says for what", killed(9, itself, slurms), record.CauseLimits, record.Yes, "ended your process 901"},
		{"killed, and Slurm's state says for what", func(in *Input) { killed(125, itself)(in); in.Job.Exit.Derived = 9 }, record.CauseLimits, record.Yes, "ended your process 901"},
		{"killed, and no GPU was full", killed(9), record.CauseLimits, record.Yes, "ended your process 901"},
		{"no one knows how it ended", func(in *Input) { killed(0, itself)(in); in.Job.Exit.Known = false }, record.CauseLimits, record.CannotTell, "came first"},
	})
	limit := well(1)
	killed(9)(&limit)
	limit.Kernel.Kills[0].Limit = 16 * gibi
	d := Why(limit)
	text := d.Headline + "; " + d.Cause(record.CauseLimits).Evidence + "; " + strings.Join(d.Try, "; ")
	must.Not(t, !strings.Contains(text, "your job's host memory (--mem), not the GPU's; host memory ran out: the kernel ended your process 901; the limit was 16.0 GiB; more host memory: sbatch --mem"), "%s", text)
	in := well(1)
	in.Messages = []record.Message{python, itself}
	if d := Why(in); d.Headline != "Why out of memory: your job needed more than the GPU has" || slices.Contains(d.Try, "more host memory: sbatch --mem, or fewer workers") {
		t.Errorf("%q, %q", d.Headline, d.Try)
	}
}

// Messages that were taken for a limit, or for host memory, and need be neither.
func TestNoLimit(t *testing.T) {
	for _, tt := range []struct {
		text   string
		limit  gpu.Figure
		want   record.Answer
		reason record.Reason
	}{
		{"RuntimeError: CUDA driver initialization failed, you might not have a CUDA gpu.", gpu.Bytes(record.Unlimited), record.No, record.ByFailure},
		{"RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you? Error 2: out of memory", gpu.Bytes(record.Unlimited), record.CannotTell, record.ByMessage},
		{"RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you? Error 3: initialization error", gpu.Bytes(record.Unlimited), record.No, record.ByFailure},
		{"ImportError: /tmp/x/_ext.so: failed to map segment from shared object: Operation not permitted", gpu.Bytes(record.Unlimited), record.No, record.ByFailure},
		{"ImportError: /tmp/x/_ext.so: failed to map segment from shared object", gpu.Bytes(record.Unlimited), record.CannotTell, record.ByFailure},
		{"ImportError: /tmp/x/_ext.so: failed to map segment from shared object", gib(4), record.Yes, record.ByMessage},
		{"ImportError: /tmp/x/_ext.so: failed to map segment from shared object: Cannot allocate memory", gpu.Bytes(record.Unlimited), record.Yes, record.ByMessage},
		{"/usr/local/cuda/bin/ptxas: error: out of memory", gpu.Bytes(record.Unlimited), record.No, record.ByFailure},
	} {
		in := well(1)
		in.AddressSpace, in.Messages = tt.limit, oomlog.Find([]byte(tt.text+"\n"))
		d := Why(in)
		if c := d.Cause(record.CauseLimits); c.Answer != tt.want || d.Reason != tt.reason {
			t.Errorf("%s: %s, %+v", tt.text, d.Reason, c)
		}
		whole(t, d)
	}
}

// What an output reports of a GPU, its driver or CUDA is never ruled out, even if driver and kernel's log have nothing; a
// program's own wrong address is its own.
func TestFaultInTheOutput(t *testing.T) {
	for text, want := range map[string]struct {
		answer   record.Answer
		evidence string
	}{
		"RuntimeError: CUDA error: uncorrectable ECC error encountered":                      {record.Yes, "uncorrectable memory error (ECC)"},
		"RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution": {record.Yes, "uncorrectable NVLink error"},
		"pynvml.NVMLError_GpuIsLost: GPU is lost":                                            {record.Yes, "a GPU is lost"},
		"Failed to initialize NVML: Driver/library version mismatch":                         {record.CannotTell, "different versions"},
		"Unable to determine the device handle for GPU0000:41:00.0: Unknown Error":           {record.CannotTell, "did not reach a GPU"},
		"RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable":         {record.CannotTell, "was refused"},
		"RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized": {record.CannotTell,
			"not ready on this node"},
		"RuntimeError: CUDA error: MPS client failed to connect to the MPS control daemon or the MPS server":   {record.CannotTell, "MPS did not answer"},
		"RuntimeError: CUDA error: unknown error":                                                              {record.CannotTell, "an error of the GPU or its driver"},
		"RuntimeError: CUDA error: an illegal memory access was encountered":                                   {record.No, "none in driver"},
		"Memory access fault by GPU node-4 (Agent handle: 0x55c0) on address 0x7f12. Reason: Page not present": {record.No, "none in driver"},
	} {
		in := well(1)
		in.Messages = oomlog.Find([]byte(text + "\n"))
		if c := Why(in).Cause(record.CauseFault); c.Answer != want.answer || !strings.Contains(c.Evidence, want.evidence) {
			t.Errorf("%s: %+v of %+v", text, c, in.Messages)
		}
	}
}

// A driver that is not there, hangs or says nothing is never called well.
func TestFaultOfTheDriver(t *testing.T) {
	end := func(c catalog.Code, change ...func(*record.Finding)) func(*Input) {
		return func(in *Input) {
			f := there(c, 0, 0, nil)
			for _, also := range change {
				also(&f)
			}
			in.Findings = []record.Finding{f}
		}
	}
	start := func(c catalog.Code) func(*Input) {
		return func(in *Input) { in.StartFindings = []record.Finding{there(c, 0, 0, nil)} }
	}
	doubted := func(f *record.Finding) { f.Doubts = []string{"the hook sees part of the node"} }
	unknown := func(f *record.Finding) { f.Unknown = "of MIG instance 1" }
	noted := func(f *record.Finding) { f.NoteOnly = "no cause is known" }
	after := func(cause int) func(*record.Finding) {
		return func(f *record.Finding) { f.Xid, f.CausedBy = 45, cause }
	}
	xid := func(bus gpu.BusID, number int, card gpu.Device) func(*Input) {
		return func(in *Input) {
			in.Cards[0].Device.BusID, in.Cards[0].Device.Parent = card.BusID, card.Parent
			in.Kernel.Xids = []gpu.Xid{{BusID: bus, Code: number, Instance: "GPU-I 1"}}
			if card.Parent != "" {
				in.Health[0].Device = card.Parent
			}
		}
	}
	judged(t, []row{
		{"no driver", end(catalog.NoDriver), record.CauseFault, record.Yes, "no GPU driver"},
		{"no driver, but CUDA served the job", both(end(catalog.NoDriver), saying(itself)), record.CauseFault, record.CannotTell, "not certain"},
		{"stuck", end(catalog.Stuck), record.CauseFault, record.Yes, "the driver hangs"},
		{"stuck at the start, well at the end", start(catalog.Stuck), record.CauseFault, record.CannotTell, "when your job began: not certain"},
		{"a GPU is missing", end(catalog.Missing), record.CauseFault, record.Yes, "is not there"},
		{"a GPU is missing, in doubt", end(catalog.Missing, doubted), record.CauseFault, record.CannotTell, "not certain"},
		{"slow", end(catalog.Slow), record.CauseFault, record.CannotTell, "too slow"},
		{"slow at the start alone", start(catalog.Slow), record.CauseFault, record.No, "none"},
		{"an error of the driver", end(catalog.DriverKO), record.CauseFault, record.CannotTell, "reported an error"},
		{"asking it failed", end(catalog.BackendCrash), record.CauseFault, record.CannotTell, "asking the driver failed"},
		{"an Xid of an instance, no one knows whose", end(catalog.XidFatal, unknown), record.CauseFault, record.CannotTell, "not certain"},
		{"an Xid of the GPU, by its number", end(catalog.XidFatal, func(f *record.Finding) { f.Xid = 48 }), record.CauseFault, record.Yes, "reported a fault of the GPU (Xid 48)"},
		{"a fault that names no GPU", end(catalog.KernelLog), record.CauseFault, record.CannotTell, "names no GPU"},
		{"a program that a memory error ended", end(catalog.Xid, after(94)), record.CauseFault, record.Yes, "memory error that ended a program (Xid 94)"},
		{"a program that a memory error ended, on a GPU of several jobs", both(end(catalog.Xid, after(94)), func(in *Input) { in.Shared = "shards" }), record.CauseFault, record.CannotTell, "ended a program, perhaps another job's (Xid 94)"},
		{"a program that a link's error ended", end(catalog.Xid, after(149)), record.CauseFault, record.CannotTell, "no program's (Xid 149): NVLink 5"},
		{"a program that its own error ended", end(catalog.Xid, after(13)), record.CauseFault, record.No, "a program's error"},
		{"a program that was ended", end(catalog.Xid, after(0), noted), record.CauseFault, record.No, "none"},
		{"no GPUs known", func(in *Input) { in.Cards = nil }, record.CauseFault, record.CannotTell, "which GPUs"},
		{"Xid 79 of its GPU, no finding", xid("0000:1b:00.0", 79, gpu.Device{BusID: "0000:1b:00.0"}), record.CauseFault, record.CannotTell, "whether of your job's"},
		{"Xid 79 of another GPU", xid("0000:1c:00.0", 79, gpu.Device{BusID: "0000:1b:00.0"}), record.CauseFault, record.No, "none"},
		{"Xid 79, the GPU's address unknown", xid("0000:1c:00.0", 79, gpu.Device{}), record.CauseFault, record.CannotTell, "whether of your job's"},
		{"Xid 13 of its GPU", xid("0000:1b:00.0", 13, gpu.Device{BusID: "0000:1b:00.0"}), record.CauseFault, record.No, "none"},
		{"CUDA broken in a test before it", func(in *Input) { start(catalog.Broken)(in); in.Probes = nil }, record.CauseFault, record.CannotTell, "when your job began"},
		{"CUDA broken before, well after", start(catalog.Broken), record.CauseFault, record.CannotTell, "may be the test's own"},
		{"the program met an error, nothing tested", func(in *Input) {
			in.Messages, in.Probes = oomlog.Find([]byte("RuntimeError: CUDA driver initialization failed, you might not have a CUDA gpu.\n")), nil
		}, record.CauseFault, record.CannotTell, "reports an error of the GPU or its driver"},
		{"the program's own error, nothing tested", both(saying(failing("misaligned address")), func(in *Input) { in.Probes = nil }), record.CauseFault, record.CannotTell, "CUDA was not tested"},
	})
}

// What a program's own kernel can bring about, or what is not the card's, is called no fault of it for certain, at either end. That the driver asks for no recovery doubts no fault that the job met.
func TestDisputedFault(t *testing.T) {
	const bus = gpu.BusID("0000:1b:00.0")
	met := func(number int, judge func(*Input, condition.Input)) func(*Input) {
		return func(in *Input) {
			in.Cards[0].Device.BusID = bus
			in.Disputed, in.Kernel.Xids = condition.Disputed, []gpu.Xid{{BusID: bus, Code: number}}
			in.Health[0].Facts = append(in.Health[0].Facts, gpu.Fact{Code: gpu.RecoveryAction, Value: "none"})
			judge(in, condition.Input{Cards: in.Cards, Now: in.Health, Kernel: in.Kernel})
		}
	}
	end := func(in *Input, h condition.Input) { in.Findings = condition.Judge(h) }
	start := func(in *Input, h condition.Input) { in.StartFindings, in.Kernel = condition.Judge(h), &gpu.KernelLog{} }
	asks := func(action string) func(*Input) {
		return func(in *Input) {
			in.Disputed = condition.Disputed
			in.Health[0].Facts = append(in.Health[0].Facts, gpu.Fact{Code: gpu.RecoveryAction, Value: action})
			end(in, condition.Input{Cards: in.Cards, Now: in.Health})
		}
	}
	judged(t, []row{
		{"a kernel that cannot be stopped", met(109, end), record.CauseFault, record.CannotTell, "not certain: the driver reported"},
		{"the same, before the job", met(109, start), record.CauseFault, record.CannotTell, "when your job began: not certain"},
		{"NVLink", met(74, end), record.CauseFault, record.CannotTell, "not certain"},
		{"a fault that was mended since", met(119, end), record.CauseFault, record.Yes, "reported a fault"},
		{"an action that is not the GPU's", asks("recover_imex"), record.CauseFault, record.CannotTell, "not certain: the driver asks"},
		{"an action that is", asks("reset"), record.CauseFault, record.Yes, "the driver asks"},
	})
}

// Figures that contradict each other, or what was seen, blame no neighbor.
func TestContradictions(t *testing.T) {
	another := itself
	another.Total, another.Free, another.InUse, another.Allocated = gib(23.6), gib(0.1), gib(23.4), gib(22.9)
	watched := both(recording(record.GPURecording{ID: gpu0, Peak: record.Most{Bytes: 24 * gibi}, Own: record.Most{Bytes: 23 * gibi}}),
		func(in *Input) { in.Every, in.Whole = time.Second, true })
	small := there(catalog.Foreign, 0.6, 5150, before)
	left := dirty(there(catalog.Dirty, 20, 0, before))
	judged(t, []row{
		{"a neighbor too small to matter", both(finds(small), saying(beside)), record.CauseOthers, record.CannotTell, "614 MiB at the end of your job; whether that mattered"},
		{"a neighbor in the message too small to matter", both(seeing(seen(500, 5150, 0.1, false)), saying(listing(5150, 0.6))), record.CauseOthers, record.CannotTell, "held by something"},
		{"others in the message, none in any sample", both(watched, saying(beside)), record.CauseOthers, record.CannotTell,
			"100.5 GiB held by something when it failed, though no sample saw more than 24.0 GiB in use"},
		{"left, but more was asked than a GPU has", both(left, saying(jax(500))), record.CauseLeftover, record.Yes, "20.0 GiB when your job began, but not decisive"},
		{"left, and an overflow", both(left, saying(absurd())), record.CauseLeftover, record.Yes, "but not decisive"},
		{"seen, but more was asked than a GPU has", both(seeing(seen(500, 5150, 30, false)), saying(jax(500))), record.CauseOthers, record.Yes, "but not decisive"},
		{"a message of another machine's GPU", saying(another), record.CauseOwn, record.Yes, "used 23.4 of 23.6 GiB"},
		{"a message of another machine's GPU, left here", both(left, saying(another)), record.CauseLeftover, record.CannotTell, "known of n1 alone"},
		{"no other in another machine's message", saying(another), record.CauseOthers, record.CannotTell, "known of n1 alone"},
	})
	in := well(1)
	both(watched, saying(beside))(&in)
	d := Why(in)
	if want := "Why out of memory: your program's message says that others held 100.5 GiB, but no sample shows it"; d.Headline != want ||
		slices.ContainsFunc(d.Try, func(s string) bool { return strings.Contains(s, "exclude") }) {
		t.Errorf("%q, %q", d.Headline, d.Try)
	}
}
