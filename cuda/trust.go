package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"bookend/internal/gpu"
)

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

// writesLongEntries reports whether a driver is one of 535.43 to 535.86, which write version 3 of the process lists
// with entries of 32 bytes where that version has 24. Of a single entry nothing shows it. 535.98 is the first
// driver after them that does not.
func writesLongEntries(driver string) bool {
	branch, rest, _ := strings.Cut(driver, ".")
	release, _, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(release)
	return branch == "535" && err == nil && n >= 43 && n < 98
}

// trusted keeps those entries of a list that are the device's, or says why the list cannot be true: some drivers
// lay the entries out differently from what their version says, and the numbers then read are neither processes
// nor bytes.
func (d device) trusted(entries []entry, pidMax uint32, total gpu.Figure) ([]entry, string) {
	if why := implausible(entries, pidMax); why != "" {
		return nil, why
	}
	mine, why := d.own(entries)
	if why == "" {
		why = oversized(mine, total)
	}
	if why != "" {
		return nil, why
	}
	return mine, ""
}

// implausible says why entries cannot be processes.
func implausible(entries []entry, pidMax uint32) string {
	type line struct {
		pid uint32
		at  place
	}
	seen := map[line]uint64{}
	for _, e := range entries {
		if e.pid == 0 || e.pid > pidMax {
			return fmt.Sprintf("list not trusted: process %d of at most %d", e.pid, pidMax)
		}
		if !e.at.possible() {
			return fmt.Sprintf("list not trusted: process %d on MIG instance %d/%d", e.pid, e.at.gi, e.at.ci)
		}
		before, twice := seen[line{e.pid, e.at}]
		if twice && before != e.used {
			return fmt.Sprintf("list not trusted: process %d twice, with %d and %d bytes", e.pid, before, e.used)
		}
		seen[line{e.pid, e.at}] = e.used
	}
	return ""
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
