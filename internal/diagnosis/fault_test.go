package diagnosis

import (
	"testing"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/health"
	"bookend/internal/oom"
)

// A driver that is not there, hangs or says nothing is never called well.
func TestFaultOfTheDriver(t *testing.T) {
	end := func(c code.Code, change ...func(*finding.Finding)) func(*Input) {
		return func(in *Input) {
			f := there(c, 0, 0, nil)
			for _, also := range change {
				also(&f)
			}
			in.Findings = []finding.Finding{f}
		}
	}
	start := func(c code.Code) func(*Input) {
		return func(in *Input) { in.StartFindings = []finding.Finding{there(c, 0, 0, nil)} }
	}
	doubted := func(f *finding.Finding) { f.Doubts = []string{"the hook sees part of the node"} }
	unknown := func(f *finding.Finding) { f.Unknown = "of MIG instance 1" }
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
		{"no driver", end(code.NoDriver), Fault, Yes, "no GPU driver"},
		{"no driver, but CUDA served the job", both(end(code.NoDriver), saying(itself)), Fault, Unknown, "not certain"},
		{"stuck", end(code.Stuck), Fault, Yes, "the driver hangs"},
		{"stuck, and the program met an error", both(end(code.Stuck), saying(says(oom.Fault, oom.CUDA))), Fault, Yes, "hangs"},
		{"stuck at the start, well at the end", start(code.Stuck), Fault, Unknown, "when your job began: not certain"},
		{"a GPU is missing", end(code.Missing), Fault, Yes, "is not there"},
		{"a GPU is missing, in doubt", end(code.Missing, doubted), Fault, Unknown, "not certain"},
		{"hung", end(code.Hang), Fault, Unknown, "did not answer in time"},
		{"slow", end(code.Slow), Fault, Unknown, "too slow"},
		{"slow at the start alone", start(code.Slow), Fault, No, "none"},
		{"an error of the driver", end(code.DriverKO), Fault, Unknown, "reported an error"},
		{"not read", end(code.Unread), Fault, Unknown, "could not be read"},
		{"asking it failed", end(code.BackendCrash), Fault, Unknown, "asking the driver failed"},
		{"an Xid of an instance, no one knows whose", end(code.XidFatal, unknown), Fault, Unknown, "not certain"},
		{"an Xid of the GPU, by its number", end(code.XidFatal, func(f *finding.Finding) { f.Xid = 48 }), Fault, Yes, "reported a fault of the GPU (Xid 48)"},
		{"no GPUs known", func(in *Input) { in.Cards = nil }, Fault, Unknown, "which GPUs"},
		{"Xid 79 of its GPU, no finding", xid("0000:1b:00.0", 79, gpu.Device{BusID: "0000:1b:00.0"}), Fault, Unknown, "whether of your job's"},
		{"Xid 79 of another GPU", xid("0000:1c:00.0", 79, gpu.Device{BusID: "0000:1b:00.0"}), Fault, No, "none"},
		{"Xid 79, the GPU's address unknown", xid("0000:1c:00.0", 79, gpu.Device{}), Fault, Unknown, "whether of your job's"},
		{"Xid 13 of its GPU", xid("0000:1b:00.0", 13, gpu.Device{BusID: "0000:1b:00.0"}), Fault, No, "none"},
		{"CUDA broken in a test before it", func(in *Input) { start(code.Broken)(in); in.Probes = nil }, Fault, Unknown, "when your job began"},
		{"CUDA broken before, well after", start(code.Broken), Fault, Unknown, "may be the test's own"},
		{"the program met an error, nothing tested", func(in *Input) {
			in.Messages, in.Probes = oom.Find([]byte("RuntimeError: CUDA driver initialization failed, you might not have a CUDA gpu.\n")), nil
		}, Fault, Unknown, "CUDA was not tested"},
	})
}

// What a program's own kernel can bring about, or what is not the card's, is called no fault of it for certain, at either end. That the driver asks for no recovery doubts no fault that the job met.
func TestDisputedFault(t *testing.T) {
	const bus = gpu.BusID("0000:1b:00.0")
	met := func(number int, judge func(*Input, health.Input)) func(*Input) {
		return func(in *Input) {
			in.Cards[0].Device.BusID = bus
			in.Kernel.Xids = []gpu.Xid{{BusID: bus, Code: number}}
			in.Health[0].Facts = append(in.Health[0].Facts, gpu.Fact{Code: gpu.RecoveryAction, Value: "none"})
			judge(in, health.Input{Cards: in.Cards, Now: in.Health, Kernel: in.Kernel})
		}
	}
	end := func(in *Input, h health.Input) { in.Findings = health.Judge(h) }
	start := func(in *Input, h health.Input) { in.StartFindings, in.Kernel = health.Judge(h), &gpu.KernelLog{} }
	asks := func(action string) func(*Input) {
		return func(in *Input) {
			in.Health[0].Facts = append(in.Health[0].Facts, gpu.Fact{Code: gpu.RecoveryAction, Value: action})
			end(in, health.Input{Cards: in.Cards, Now: in.Health})
		}
	}
	judged(t, []row{
		{"a kernel that cannot be stopped", met(109, end), Fault, Unknown, "not certain: the driver reported"},
		{"the same, before the job", met(109, start), Fault, Unknown, "when your job began: not certain"},
		{"NVLink", met(74, end), Fault, Unknown, "not certain"},
		{"a fault that was mended since", met(119, end), Fault, Yes, "reported a fault"},
		{"an action that is not the GPU's", asks("recover_imex"), Fault, Unknown, "not certain: the driver asks"},
		{"an action that is", asks("reset"), Fault, Yes, "the driver asks"},
	})
}
