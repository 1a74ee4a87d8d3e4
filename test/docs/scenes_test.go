package docs

import (
	"time"

	"bookend/internal/attrib"
	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/diagnosis"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/health"
	"bookend/internal/oom"
	"bookend/internal/report"
	"bookend/internal/settle"
	"bookend/internal/slurm"
)

const (
	mebi = 1 << 20
	gibi = 1 << 30

	me, other = 1001, 1002 // user ids
	card      = gpu.ID("GPU-8f0b1c00-77c1-4d0e-9b3a-5e2f00c0a000")
	busID     = gpu.BusID("00000000:3B:00.0")
)

// story is one job of a sample, and what was found around it.
type story struct {
	diagnosis.Input
	output string // of the job: what it said itself
	start  bool   // the start report is shown, not the end report
}

// The moments of every sample.
var (
	ended = time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	boot  = 10 * time.Hour // CLOCK_BOOTTIME at the end
)

// calm is a job that had an H200 to itself, clean at both ends, of which everything was read.
func calm(output string) story {
	s := story{output: output}
	s.Job = slurm.Job{ID: 42, UID: me, Node: "n1", Batch: true, Exit: slurm.ExitStatus{Known: true, Raw: 1 << 8}}
	s.Cards = []finding.Card{{Index: 0, Device: gpu.Device{ID: card, BusID: busID}}}
	s.Start, s.End = side(settle.Clean, 0), side(settle.Clean, 0)
	s.Probes = []gpu.Probe{{Device: card, Result: gpu.ProbeOK, Free: gpu.Bytes(143156 * mebi),
		Largest: gpu.Bytes(143154 * mebi), At: boot}}
	s.Health = []gpu.Health{{Device: card, Facts: []gpu.Fact{{Code: gpu.RecoveryAction, Value: "none"}},
		Accounting: gpu.Accounting{Mode: "off"}}}
	s.Kernel = &gpu.KernelLog{}
	s.AddressSpace = gpu.Bytes(diagnosis.Unlimited)
	s.WallStart, s.WallEnd = ended.Add(-time.Hour), ended
	return s
}

func side(state settle.State, used uint64) *finding.Side {
	return &finding.Side{
		Snapshot: gpu.Snapshot{At: boot, Readings: []gpu.Reading{{Device: gpu.Device{ID: card}, Memory: gpu.Memory{
			Total: gpu.Bytes(143771 * mebi), Reserved: gpu.Bytes(615 * mebi), Used: gpu.Bytes(used * mebi),
			Free: gpu.Bytes((143156 - used) * mebi)}}}},
		Curves: map[gpu.ID]settle.Curve{card: {State: state}},
	}
}

// listen looks for messages in the output.
func (s *story) listen() { s.Messages = oom.Find([]byte(s.output)) }

// scene is what the report is made from: the messages are looked for in the output, every cause is judged.
func (s story) scene() report.Scene {
	s.listen()
	r := report.Scene{
		Node: s.Job.Node, Job: s.Job, Cards: s.Cards, Now: *s.End, Before: s.Start, Findings: s.Findings,
		Privacy: config.PrivacyOwn, Show: config.ShowSummary,
	}
	if s.start {
		r.Now, r.Before, r.Findings = *s.Start, nil, s.StartFindings
	} else {
		why := diagnosis.Why(s.Input)
		r.Why = &why
	}
	for range r.Findings {
		r.Verdict.Judged = append(r.Verdict.Judged, finding.Judged{Action: config.Warn})
	}
	return r
}

func found(c code.Code, bytes uint64, h *finding.Holder, o *finding.Owner) finding.Finding {
	index := 0
	return finding.Finding{Code: c, GPU: card, Index: &index, Bytes: gpu.Bytes(bytes * mebi), Holder: h, Owner: o}
}

func holder(pid int, uid uint32, name string, ago time.Duration) *finding.Holder {
	return &finding.Holder{Process: attrib.Process{PID: pid, UID: uid, Name: name, Start: boot - ago}}
}

// torch is PyTorch's message with figures of the moment.
func torch(asked, free, others, mine, live, idle string) string {
	return "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate " + asked +
		". GPU 0 has a total capacity of 139.80 GiB of which " +
		free + " is free. " + others + "Including non-PyTorch memory, this process has " + mine +
		" memory in use. Of the allocated memory " +
		live + " is allocated by PyTorch, and " + idle + " is reserved by PyTorch but unallocated.\n"
}

// noDevices is what PyTorch says where CUDA cannot start for want of address space.
const noDevices = "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before " +
	"calling NumCudaDevices() that might have already set an error? Error 2: out of memory\n"

// scenes are the samples by name.
var scenes = map[string]func() story{
	"others":    others,
	"inherited": func() story { s := leftover(); s.start = true; return s },
	"leftover":  leftover,
	"unlisted":  unlisted,
	"pieces":    pieces,
	"pool": func() story {
		return calm(torch("22.78 GiB", "13.21 GiB", "", "126.59 GiB", "99.82 GiB", "25.90 GiB"))
	},
	"fault": fault,
	"own":   own,
	"processes": func() story {
		s := calm(torch("2.00 GiB", "1.12 GiB", "Process 5102 has 68.77 GiB memory in use. ", "69.90 GiB", "69.05 GiB",
			"310.22 MiB"))
		for _, pid := range []int{5101, 5102} {
			s.Seen = append(s.Seen, diagnosis.Sighting{At: boot - 20*time.Minute, Device: card, PID: pid,
				Bytes: gpu.Bytes(68 * gibi), Own: true})
		}
		return s
	},
	"address space": func() story {
		s := calm(noDevices)
		s.AddressSpace = gpu.Bytes(4 * gibi)
		return s
	},
	"limit in the script": func() story { // which the task hook, before the script, did not see
		return calm(noDevices)
	},
	"something else": func() story {
		return calm(torch("8.00 GiB", "3.10 GiB", "Process 8812 has 30.02 GiB memory in use. ", "106.68 GiB",
			"104.20 GiB", "1.93 GiB"))
	},
	"no figures": func() story { return calm("RuntimeError: CUDA error: out of memory\n") },
	"host": func() story {
		return calm("slurmstepd: error: Detected 1 oom_kill event in StepId=42.batch. Some of the step tasks have " +
			"been OOM Killed.\n")
	},
	"shared": func() story {
		return calm("triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 262144, " +
			"Hardware limit: 232448. Reducing block sizes or `num_stages` may help.\n")
	},
	"share": share,
}

// plain are jobs whose headline has to be read by itself.
var plain = map[string]func() story{
	"something else": scenes["something else"],
	"no figures":     scenes["no figures"],
	"shared":         scenes["shared"],
	"all ruled out": func() story {
		s := others()
		s.output, s.Findings[0].Bytes = scenes["no figures"]().output, gpu.Bytes(100*mebi)
		return s
	},
	"not all read": func() story {
		s := scenes["no figures"]()
		s.Kernel = nil
		return s
	},
	"failed": func() story { return calm("") },
	"failed by a GPU error": func() story {
		return calm("RuntimeError: CUDA error: an illegal memory access was " +
			"encountered\n")
	},
	"failed by a fault": func() story { return silent(fault()) },
	"failed, not alone": func() story { return silent(others()) },
	"ended well":        func() story { return well(others()) },
}

// silent is a job that says nothing of what it met.
func silent(s story) story {
	s.output = ""
	return s
}

// well is a job that ended well.
func well(s story) story {
	s.Job.Exit.Raw = 0
	return silent(s)
}

func others() story {
	s := calm(torch("8.00 GiB", "3.10 GiB", "Process 8812 has 30.02 GiB memory in use. ", "106.68 GiB", "104.20 GiB",
		"1.93 GiB"))
	s.End = side(settle.Flat, 30740)
	s.Findings = []finding.Finding{found(code.Foreign, 30740, holder(8812, other, "python", 30*time.Minute),
		&finding.Owner{Job: 57, UID: other, Level: attrib.ByCgroup})}
	return s
}

func leftover() story {
	s := calm(torch("24.00 GiB", "14.90 GiB", "Process 20949 has 20.03 GiB memory in use. ", "104.87 GiB",
		"103.02 GiB", "1.31 GiB"))
	s.Start, s.End = side(settle.Flat, 20518), side(settle.Clean, 20518) // clean is: nothing more than at the start
	s.StartFindings = []finding.Finding{found(code.Dirty, 20518, holder(20949, me, "train", 85*time.Minute),
		&finding.Owner{Job: 12, UID: me, Level: attrib.ByExclusive})}
	return s
}

func unlisted() story {
	s := calm(torch("24.00 GiB", "14.90 GiB", "", "104.87 GiB", "103.02 GiB", "1.31 GiB"))
	s.Start, s.End = side(settle.Clean, 0), side(settle.Flat, 20518)
	f := found(code.Residue, 20518, nil, &finding.Owner{Job: 42, UID: me, Level: attrib.ByExclusive})
	f.Candidates, f.Searched = []finding.Holder{*holder(31180, me, "server", 40*time.Minute)}, true
	s.Findings = []finding.Finding{f}
	return s
}

func pieces() story {
	s := calm("RuntimeError: CUDA error: out of memory\n")
	s.Probes[0].Result, s.Probes[0].Largest = gpu.ProbeGap, gpu.Bytes(61204*mebi)
	s.Probes[0].Attempts = 34
	s.Findings = health.FoundByTests(s.Cards, []health.Outcome{{Probe: s.Probes[0], Seen: 1}})
	return s
}

func fault() story {
	s := calm("RuntimeError: CUDA error: uncorrectable ECC error encountered\n")
	s.Kernel.Xids = []gpu.Xid{{KernelMark: gpu.KernelMark{At: 35940 * time.Second}, BusID: busID, Code: 48, PID: 31180}}
	s.Findings = health.Judge(health.Input{Cards: s.Cards, Now: s.Health, Kernel: s.Kernel})
	return s
}

func own() story {
	s := calm(torch("4.50 GiB", "1.87 GiB", "", "137.93 GiB", "135.60 GiB", "1.74 GiB"))
	s.Health[0].Accounting = gpu.Accounting{Mode: "on", Processes: []gpu.Accounted{
		{PID: 31180, Peak: gpu.Bytes(141240 * mebi), Began: ended.Add(-50 * time.Minute), Ran: 50 * time.Minute}}}
	return s
}

func share() story {
	s := calm("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity " +
		"of 16.00 GiB of which 1.21 GiB " +
		"is free. Including non-PyTorch memory, this process has 14.79 GiB memory in use. Of the allocated memory " +
		"13.90 GiB is allocated by " +
		"PyTorch, and 210.00 MiB is reserved by PyTorch but unallocated.\n")
	s.Cards[0].Device.Parent = "GPU-parent"
	for _, e := range []*finding.Side{s.Start, s.End} {
		e.Snapshot.Readings[0].Memory = gpu.Memory{Total: gpu.Bytes(16384 * mebi), Reserved: gpu.Bytes(0),
			Used: gpu.Bytes(0), Free: gpu.Bytes(16384 * mebi)}
	}
	s.Probes = []gpu.Probe{{Device: card, Result: gpu.ProbeSkipped, Why: "a MIG instance: the test was never tried on one", At: boot}}
	return s
}
