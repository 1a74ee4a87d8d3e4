package settle

import (
	"testing"

	"bookend/internal/gpu"
)

// A card may be known by its bus id alone, and its faults may be: it counts all the same.
func TestDeviceKnownByItsBusID(t *testing.T) {
	const bus = gpu.BusID("0000:1b:00.0")
	fault := func(f gpu.Fault) func(int) gpu.Snapshot {
		f.Code = gpu.FaultLost
		return func(ms int) gpu.Snapshot { return without(at(ms, 0), f) }
	}
	reading := func(ms int) gpu.Snapshot {
		return change(at(ms, 0), func(r *gpu.Reading) { r.Device.BusID = bus })
	}
	instance := func(ms int) gpu.Snapshot {
		return change(reading(ms), func(r *gpu.Reading) { r.Device.Parent = "GPU-1" })
	}
	byID, byBus, byBoth := gpu.Device{ID: card}, gpu.Device{BusID: bus}, gpu.Device{ID: card, BusID: bus}
	const unseen = "device missing from the look"
	tests := map[string]struct {
		device gpu.Device
		look   func(int) gpu.Snapshot
		state  State
		why    string
	}{
		"bus id, fault with bus id": {byBus, fault(gpu.Fault{BusID: bus, Detail: "lost"}), Unknown, "lost"},
		"bus id, fault with both": {byBus, fault(gpu.Fault{BusID: bus, Device: card, Detail: "lost"}), Unknown,
			"lost"},
		"both, fault with bus id": {byBoth, fault(gpu.Fault{BusID: bus, Detail: "lost"}), Unknown, "lost"},
		"both, fault of another there": {byBoth, fault(gpu.Fault{BusID: bus, Device: "MIG-1", Detail: "lost"}),
			Unknown, unseen},
		"id, fault with id": {byID, fault(gpu.Fault{Device: card, BusID: bus, Detail: "lost"}), Unknown,
			"lost"},
		"id, fault of another":          {byID, fault(gpu.Fault{Device: "GPU-1", Detail: "lost"}), Unknown, unseen},
		"id, fault without a name":      {byID, fault(gpu.Fault{Detail: "lost"}), Unknown, unseen},
		"no name, fault without a name": {gpu.Device{}, fault(gpu.Fault{Detail: "lost"}), Unknown, "lost"},
		"no name, fault of some device": {gpu.Device{}, fault(gpu.Fault{Device: card, Detail: "lost"}), Unknown,
			unseen},
		"no name is no device's reading": {gpu.Device{}, func(ms int) gpu.Snapshot { return at(ms, 0) }, Unknown,
			unseen},
		"bus id, reading":               {byBus, reading, Clean, ""},
		"bus id, an instance's reading": {byBus, instance, Unknown, unseen},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			looks := every(tt.look, 0)
			if got := JudgeDevice(idle, tt.device, looks); got.State != tt.state || got.Why != tt.why || got.Steady {
				t.Errorf("one look: got %+v", got)
			}
			if done := Done(idle, []gpu.Device{tt.device}, looks); done != (tt.state == Clean) {
				t.Errorf("one look: got done %v", done)
			}
			looks = then(nil, 5, tt.look)
			if got := JudgeDevice(idle, tt.device, looks); got.State != tt.state || !got.Steady {
				t.Errorf("five looks: got %+v", got)
			}
			if !Done(idle, []gpu.Device{tt.device}, looks) {
				t.Error("five looks: not done")
			}
		})
	}
}

func TestExpectedOfDeviceKnownByItsBusID(t *testing.T) {
	const bus = gpu.BusID("0000:1b:00.0")
	s := change(at(0, 5*gib, process(7, 5*gib)), func(r *gpu.Reading) { r.Device.BusID = bus })
	if got := JudgeDevice(expect(5*gib, 7), gpu.Device{BusID: bus}, []gpu.Snapshot{s}); got.State != Clean {
		t.Errorf("got %+v", got)
	}
}
