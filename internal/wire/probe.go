package wire

import (
	"path"

	"bookend/internal/gpu"
)

// Limits on what is said of a device's health and of a test allocation.
const (
	maxFacts     = 256     // of a device
	maxAccounted = 8 << 10 // processes of a device: NVIDIA's driver keeps 4000
	maxAttempts  = 1 << 16
)

// validateRule refuses what only a broken hook would ask for. Threat: the paths are opened by root; they come from
// root's own hook, and a relative one would mean another file.
func validateRule(r gpu.ProbeRule) *Error {
	if r.LockWait < 0 || r.LockWait > maxTime || r.Gap > maxBytes || len(r.Locks) > maxDevices ||
		len(r.Known) > maxProcesses {
		return garbage("probe: %d locks, wait of %v, gap of %d bytes", len(r.Locks), r.LockWait, r.Gap)
	}
	if r.Empty != "" && !path.IsAbs(r.Empty) {
		return garbage("probe: folder %.200q is not absolute", r.Empty)
	}
	for id, file := range r.Locks {
		if !validID(id) || !path.IsAbs(file) || !short(file) {
			return garbage("probe: lock %.200q of device %.200q", file, id)
		}
	}
	return nil
}

func validateHealth(all []gpu.Health) *Error {
	if len(all) > maxDevices {
		return garbage("health of %d devices", len(all))
	}
	seen := map[gpu.ID]bool{}
	for _, h := range all {
		if h.Device == "" || !validID(h.Device) || seen[h.Device] {
			return garbage("health of device %.200q, nameless or twice", h.Device)
		}
		seen[h.Device] = true
		if len(h.Facts) > maxFacts || len(h.Accounting.Processes) > maxAccounted ||
			!short(h.Accounting.Mode, h.Accounting.Unknown) {
			return garbage("device %q: %d facts, %d processes in accounting", h.Device, len(h.Facts),
				len(h.Accounting.Processes))
		}
		for _, f := range h.Facts {
			if f.Code == "" || !validID(gpu.ID(f.Code)) || !short(f.Value, f.Unknown, f.Source) {
				return garbage("device %q: fact %.200q", h.Device, f.Code)
			}
		}
		for _, p := range h.Accounting.Processes {
			if p.PID <= 0 || p.PID > maxPID || !validFigures(p.Peak) || p.Ran < 0 {
				return garbage("device %q: accounting of process %d", h.Device, p.PID)
			}
		}
	}
	return nil
}

func validateProbe(p gpu.Probe) *Error {
	switch {
	case p.Device == "" || !validID(p.Device):
		return garbage("probe of device %.200q", p.Device)
	case !validResult(p.Result):
		return garbage("device %q: probe result %.20q", p.Device, p.Result)
	case p.Method != "" && p.Method != gpu.Contextless && p.Method != gpu.WithContext:
		return garbage("device %q: probe method %.20q", p.Device, p.Method)
	case !validFigures(p.Free, p.Largest) || p.Attempts < 0 || p.Attempts > maxAttempts || p.At < 0:
		return garbage("device %q: impossible probe", p.Device)
	case p.Times.Init < 0 || p.Times.Search < 0 || p.Times.Release < 0:
		return garbage("device %q: probe of negative duration", p.Device)
	case !short(p.Why):
		return garbage("device %q: reason is too long", p.Device)
	case p.Error != nil && !short(p.Error.Call, p.Error.Name, p.Error.Meaning, p.Error.Remedy):
		return garbage("device %q: error is too long", p.Device)
	}
	return nil
}

func validResult(r gpu.ProbeResult) bool {
	switch r {
	case gpu.ProbeOK, gpu.ProbeGap, gpu.ProbeBlocked, gpu.ProbeBroken, gpu.ProbeSkipped:
		return true
	}
	return false
}
