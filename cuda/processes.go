package main

import (
	"slices"

	"bookend/internal/gpu"
)

// entry is one line of a driver's process list.
type entry struct {
	pid  uint32
	used uint64 // bytes, or notAvailable
	at   place  // nowhere without MIG
}

// list is one of the driver's lists.
type list struct {
	kind    gpu.Kind
	entries []entry
}

// notAvailable is NVML_VALUE_NOT_AVAILABLE.
const notAvailable = ^uint64(0)

// merge joins the lists by PID. A client of MPS stands in two of them with the same memory, which counts
// once: the larger figure holds. On a card in MIG mode a process stands in one list once an instance, and
// these add up.
func merge(lists []list) []gpu.Process {
	merged := []gpu.Process{}
	for _, l := range lists {
		for _, p := range l.processes() {
			i, found := find(merged, p.PID)
			if !found {
				merged = slices.Insert(merged, i, p)
				continue
			}
			merged[i].Kinds = append(merged[i].Kinds, l.kind)
			merged[i].Memory = larger(merged[i].Memory, p.Memory)
		}
	}
	return merged
}

// processes adds up one list by PID.
func (l list) processes() []gpu.Process {
	var all []gpu.Process
	for _, e := range l.entries {
		p := gpu.Process{PID: int(e.pid), Memory: figure(e.used), Kinds: []gpu.Kind{l.kind}}
		if i, found := find(all, p.PID); found {
			all[i].Memory = sum(all[i].Memory, p.Memory)
		} else {
			all = slices.Insert(all, i, p)
		}
	}
	return all
}

// find is where a process stands among those in the order of their PIDs, or would.
func find(all []gpu.Process, pid int) (int, bool) {
	return slices.BinarySearchFunc(all, pid, func(p gpu.Process, pid int) int { return p.PID - pid })
}

func figure(used uint64) gpu.Figure {
	if used == notAvailable {
		return gpu.Unknown("the driver does not say")
	}
	return gpu.Bytes(used)
}

func sum(a, b gpu.Figure) gpu.Figure {
	if !a.Known() {
		return a
	}
	if !b.Known() {
		return b
	}
	return gpu.Bytes(a.Bytes + b.Bytes)
}

func larger(a, b gpu.Figure) gpu.Figure {
	if !a.Known() || b.Known() && b.Bytes > a.Bytes {
		return b
	}
	return a
}
