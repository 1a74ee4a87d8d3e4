package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"bookend/internal/gpu"
)

// entry is one line of a driver's process list.
type entry struct {
	pid      uint32
	used     uint64 // bytes, or notAvailable
	instance uint64 // GPU and compute instance together; all ones without MIG
}

// list is one of the driver's lists.
type list struct {
	kind    gpu.Kind
	entries []entry
}

// notAvailable is NVML_VALUE_NOT_AVAILABLE.
const notAvailable = ^uint64(0)

// pidLimitMax is the kernel's PID_MAX_LIMIT on 64-bit machines.
const pidLimitMax = 1 << 22

// pidLimit reads the kernel's pid_max at path; no PID reaches it. The kernel's own limit stands in for it.
func pidLimit(path string) uint32 {
	text, err := os.ReadFile(path)
	if err != nil {
		return pidLimitMax
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32)
	if err != nil || n < 1 || n > pidLimitMax {
		return pidLimitMax
	}
	return uint32(n)
}

// implausible says why a list cannot be true: some drivers lay the entries out differently from what their
// version says, and the numbers then read are neither processes nor bytes.
func implausible(entries []entry, pidMax uint32, total gpu.Figure) string {
	most := uint64(mostMemory)
	if total.Known() {
		most = total.Bytes
	}
	for _, e := range entries {
		if e.pid == 0 || e.pid > pidMax {
			return fmt.Sprintf("list not trusted: process %d of at most %d", e.pid, pidMax)
		}
		if e.used != notAvailable && e.used > most {
			return fmt.Sprintf("list not trusted: process %d with %d bytes of %d", e.pid, e.used, most)
		}
	}
	return ""
}

// merge joins the lists by PID. A client of MPS stands in two of them with the same memory, which counts
// once: the larger figure holds. On a card in MIG mode a process stands in one list once an instance, and
// these add up.
func merge(lists []list) []gpu.Process {
	merged := []gpu.Process{}
	for _, l := range lists {
		for _, p := range perProcess(l) {
			i, found := slices.BinarySearchFunc(merged, p.PID, func(q gpu.Process, pid int) int { return q.PID - pid })
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

// perProcess adds up one list by PID, in the order of first appearance.
func perProcess(l list) []gpu.Process {
	type place struct {
		pid      uint32
		instance uint64
	}
	seen := map[place]bool{}
	at := map[uint32]int{}
	var processes []gpu.Process
	for _, e := range l.entries {
		if seen[place{e.pid, e.instance}] {
			continue
		}
		seen[place{e.pid, e.instance}] = true
		i, found := at[e.pid]
		if !found {
			at[e.pid] = len(processes)
			processes = append(processes, gpu.Process{PID: int(e.pid), Memory: figure(e.used), Kinds: []gpu.Kind{l.kind}})
			continue
		}
		processes[i].Memory = sum(processes[i].Memory, figure(e.used))
	}
	return processes
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
