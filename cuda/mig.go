package main

import (
	"fmt"
	"strconv"
	"strings"

	"bookend/internal/gpu"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// place is where on its card a MIG instance lies, or a process runs: GPU instance and compute instance.
type place struct{ gi, ci uint32 }

// nowhere is what the driver writes for either where there is none, or none that it tells.
const nowhere = ^uint32(0)

// mostInstances bounds both numbers: a card has 7 of each at present, and the driver's numbers reach 14.
const mostInstances = 64

// isInstance tells a MIG instance's id from a card's.
func isInstance(id gpu.ID) bool { return strings.HasPrefix(string(id), "MIG-") }

// parseInstance reads an id of drivers before 470, "MIG-GPU-<uuid>/<gi>/<ci>". Later drivers name instances
// "MIG-<uuid>", but Slurm's configuration may still hold the older form.
func parseInstance(id gpu.ID) (card gpu.ID, at place, ok bool) {
	parts := strings.Split(strings.TrimPrefix(string(id), "MIG-"), "/")
	if len(parts) != 3 {
		return "", place{}, false
	}
	gi, bad := strconv.ParseUint(parts[1], 10, 31)
	ci, worse := strconv.ParseUint(parts[2], 10, 31)
	return gpu.ID(parts[0]), place{uint32(gi), uint32(ci)}, bad == nil && worse == nil
}

// parentOf finds the card of a MIG instance.
func (l *library) parentOf(asked gpu.Device) (nvml.Device, *failure) {
	if card, _, old := parseInstance(asked.ID); old {
		return l.byUUID(card)
	}
	handle, failed := l.byUUID(asked.ID)
	if failed != nil {
		return nil, failed
	}
	return ask(handle.GetDeviceHandleFromMigDeviceHandle, l, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle")
}

// openInstance finds an instance on its card, and calls it as it was asked for.
func (l *library) openInstance(asked gpu.Device, card device) opened {
	_, at, old := parseInstance(asked.ID)
	instances, failed := l.instances(card)
	for _, d := range instances {
		if d.ID == asked.ID || old && d.at == at {
			d.ID = asked.ID
			return opened{devices: []device{d}}
		}
	}
	if failed != nil {
		return opened{fault: l.about(asked, *failed)} // it may be the one that could not be opened
	}
	return opened{fault: missing(asked)}
}

// migMode returns nil where it is not known. A card or driver that cannot do MIG has it off.
func (l *library) migMode(handle nvml.Device) *bool {
	mode, failed := ask(func() (int, nvml.Return) {
		current, _, ret := handle.GetMigMode()
		return current, ret
	}, l, "nvmlDeviceGetMigMode")
	if failed != nil && !optional(failed.ret) {
		return nil
	}
	on := failed == nil && mode == nvml.DEVICE_MIG_ENABLE
	return &on
}

// cut reports whether a device is a whole card in MIG mode.
func (d device) cut() bool { return d.Parent == "" && d.nvidia.MIGMode != nil && *d.nvidia.MIGMode }

// instances opens a card's MIG instances. Their indexes have holes. A failure is that of an instance, or of all,
// that may exist and could not be opened.
func (l *library) instances(card device) ([]device, *failure) {
	if !card.cut() {
		return nil, nil
	}
	most, worst := ask(card.handle.GetMaxMigDeviceCount, l, "nvmlDeviceGetMaxMigDeviceCount")
	var found []device
	onInstance := map[uint32]int{}
	for i := range min(most, mostInstances) {
		d, failed := l.instance(card, i)
		switch {
		case failed == nil:
			found = append(found, d)
			onInstance[d.at.gi]++
		case failed.ret != nvml.ERROR_NOT_FOUND && failed.ret != nvml.ERROR_INVALID_ARGUMENT: // those are holes
			worst = failed
		}
	}
	for i, d := range found {
		if onInstance[d.at.gi] > 1 && d.unjudged == "" {
			found[i].shared = true
			found[i].unjudged = fmt.Sprintf("it shares the memory of GPU instance %d with other compute instances",
				d.at.gi)
		}
	}
	return found, worst
}

// instance opens the i-th instance of a card.
func (l *library) instance(card device, i int) (device, *failure) {
	handle, failed := ask(func() (nvml.Device, nvml.Return) { return card.handle.GetMigDeviceHandleByIndex(i) }, l,
		"nvmlDeviceGetMigDeviceHandleByIndex")
	if failed != nil {
		return device{}, failed
	}
	uuid, failed := ask(handle.GetUUID, l, "nvmlDeviceGetUUID")
	if failed != nil {
		return device{}, failed
	}
	d := device{Device: card.Device, handle: handle, nvidia: card.nvidia, unjudged: card.unjudged}
	d.ID, d.Parent = gpu.ID(uuid), card.ID
	if name, failed := ask(handle.GetName, l, "nvmlDeviceGetName"); failed == nil {
		d.Name = name
	}
	d.at.gi = l.instanceNumber(handle.GetGpuInstanceId, "nvmlDeviceGetGpuInstanceId")
	d.at.ci = l.instanceNumber(handle.GetComputeInstanceId, "nvmlDeviceGetComputeInstanceId")
	return d, nil
}

func (l *library) instanceNumber(call func() (int, nvml.Return), name string) uint32 {
	n := l.number(call, name)
	if n == nil || *n < 0 || *n >= mostInstances {
		return nowhere
	}
	return uint32(*n)
}

// own keeps what a list says of an instance itself: some drivers list all that runs on its card.
func (d device) own(entries []entry) ([]entry, string) {
	if d.Parent == "" {
		return entries, ""
	}
	mine := []entry{}
	for _, e := range entries {
		switch {
		case d.at.gi == nowhere || e.at.gi == nowhere,
			d.shared && e.at.gi == d.at.gi && (d.at.ci == nowhere || e.at.ci == nowhere):
			return nil, fmt.Sprintf("list not trusted: no telling on which MIG instance process %d is", e.pid)
		case e.at.gi == d.at.gi && (!d.shared || e.at.ci == d.at.ci):
			mine = append(mine, e)
		}
	}
	return mine, ""
}
