package main

import (
	"fmt"

	"bookend/internal/gpu"
)

// pidMax is the kernel's PID_MAX_LIMIT on 64-bit machines.
const pidMax = 1 << 22

// trusted keeps those entries of a list that are the device's, or says why the list cannot be true: some drivers
// lay the entries out differently from what their version says, and the numbers then read are neither processes
// nor bytes.
func (d device) trusted(entries []entry, total gpu.Figure) ([]entry, string) {
	once, why := plausible(entries)
	if why != "" {
		return nil, why
	}
	mine, why := d.own(once)
	if why == "" {
		why = oversized(mine, total)
	}
	if why != "" {
		return nil, why
	}
	return mine, ""
}

// plausible keeps each line of a list once, or says why entries cannot be processes.
func plausible(entries []entry) (once []entry, why string) {
	type line struct {
		pid uint32
		at  place
	}
	seen := map[line]uint64{}
	for _, e := range entries {
		before, twice := seen[line{e.pid, e.at}]
		switch {
		case e.pid == 0 || e.pid > pidMax:
			return nil, fmt.Sprintf("list not trusted: process %d of at most %d", e.pid, pidMax)
		case !e.at.possible():
			return nil, fmt.Sprintf("list not trusted: process %d on MIG instance %d/%d", e.pid, e.at.gi, e.at.ci)
		case twice && before != e.used:
			return nil, fmt.Sprintf("list not trusted: process %d twice, with %d and %d bytes", e.pid, before, e.used)
		case !twice:
			once = append(once, e)
		}
		seen[line{e.pid, e.at}] = e.used
	}
	return once, ""
}

func (p place) possible() bool {
	return (p.gi < mostInstances || p.gi == nowhere) && (p.ci < mostInstances || p.ci == nowhere)
}

// oversized says which process has more than the device.
func oversized(entries []entry, total gpu.Figure) string {
	most := uint64(mostMemory)
	if total.Known() {
		most = total.Bytes
	}
	for _, e := range entries {
		if e.used != notAvailable && e.used > most {
			return fmt.Sprintf("list not trusted: process %d with %d bytes of %d", e.pid, e.used, most)
		}
	}
	return ""
}

// mostShares is how many times its size a device may be accounted for: memory that processes share is counted for
// each of them.
const mostShares = 4

// overbooked says that processes together have far more than there is.
func overbooked(processes []gpu.Process, total gpu.Figure) string {
	if !total.Known() {
		return ""
	}
	sum := uint64(0) // at most 8192 processes of 1 PiB: no overflow
	for _, p := range processes {
		sum += p.Memory.Bytes
	}
	if sum/mostShares <= total.Bytes {
		return ""
	}
	return fmt.Sprintf("list not trusted: %d processes with %d bytes of %d", len(processes), sum, total.Bytes)
}
