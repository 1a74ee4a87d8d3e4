package main

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"bookend/internal/gpu"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// mostAccounted is how many processes of a card are sent. Some 130 bytes each, so that 16 cards' fill a quarter of the
// answer.
const mostAccounted = 512

// account reads what accounting kept of a card's processes, after switching it on where that was asked for.
func (s *session) account(c *card, end time.Duration) gpu.Accounting {
	switch {
	case !s.req.Accounting && !s.req.StartAccounting:
		return gpu.Accounting{}
	case c.lost != "":
		return gpu.Accounting{Unknown: bounded("not asked: " + c.lost)}
	}
	mode, failed := ask(c.handle.GetAccountingMode, c.lib, "nvmlDeviceGetAccountingMode")
	switch {
	case failed != nil && failed.ret == nvml.ERROR_NOT_SUPPORTED:
		return gpu.Accounting{Unknown: "not supported on this card"}
	case failed != nil:
		return gpu.Accounting{Unknown: c.refused(*failed)}
	case mode != nvml.FEATURE_ENABLED && s.req.StartAccounting:
		return c.startAccounting()
	case mode != nvml.FEATURE_ENABLED || !s.req.Accounting:
		return gpu.Accounting{Mode: onOff(mode)}
	}
	a := gpu.Accounting{Mode: onOff(mode)}
	a.Processes, a.Unknown = s.accounted(c, end)
	return a
}

// startAccounting switches a card's accounting on, for whoever comes from now on. Nothing in Bookend switches it off:
// that drops what was kept, and others rely on it.
func (c *card) startAccounting() gpu.Accounting {
	off := gpu.Accounting{Mode: onOff(nvml.FEATURE_DISABLED)}
	if on := c.devices[0].nvidia.MIGMode; on == nil || *on {
		off.Unknown = "left off: the driver keeps no accounting of a card in MIG mode, and this one may be"
		return off
	}
	_, failed := ask(func() (struct{}, nvml.Return) {
		return struct{}{}, c.handle.SetAccountingMode(nvml.FEATURE_ENABLED)
	}, c.lib, "nvmlDeviceSetAccountingMode")
	if failed != nil {
		off.Unknown = bounded("cannot be switched on: " + c.refused(*failed))
		return off
	}
	return gpu.Accounting{Mode: onOff(nvml.FEATURE_ENABLED)} // where that is not so, the next look tells
}

// accounted lists the processes, the newest first, and says why these are not all.
func (s *session) accounted(c *card, end time.Duration) ([]gpu.Accounted, string) {
	pids, why := c.accountedPIDs()
	var all []gpu.Accounted
	var gaps []string
	if why != "" {
		gaps = append(gaps, why)
	}
	total := s.total(c)
	for i, pid := range pids {
		if s.boot() >= end {
			gaps = append(gaps, fmt.Sprintf("time for %d of %d processes", i, len(pids)))
			break
		}
		p, known := c.accountOf(pid, total)
		if c.lost != "" {
			gaps = append(gaps, c.lost)
			break
		}
		if known {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a,
		b gpu.Accounted) int {
		return cmp.Or(b.Began.Compare(a.Began), cmp.Compare(a.PID, b.PID))
	})
	if n := len(all); n > mostAccounted {
		all, gaps = all[:mostAccounted], append(gaps, fmt.Sprintf("the newest %d of %d processes", mostAccounted, n))
	}
	return all, bounded(strings.Join(gaps, "; "))
}

// accountedPIDs is made directly and not through go-nvml, which offers room for one and doubles it without end. The
// driver keeps 3872 alive and 128 dead.
func (c *card) accountedPIDs() ([]uint32, string) {
	const name = "nvmlDeviceGetAccountingPids"
	pids, failed := ask(func() ([]uint32, nvml.Return) {
		buffer, count, ret := fill(c.lib.symbol(name), c.handle)
		pids := make([]uint32, count)
		for i := range pids {
			pids[i] = binary.NativeEndian.Uint32(buffer[4*i:])
		}
		return pids, ret
	}, c.lib, name)
	if failed != nil {
		return nil, c.refused(*failed)
	}
	slices.Sort(pids)
	pids = slices.Compact(pids)
	for _, pid := range pids {
		if pid == 0 || pid > pidMax {
			return nil, fmt.Sprintf("%s: list not trusted: process %d", name, pid)
		}
	}
	return pids, ""
}

// accountOf reports false of a process that the driver has dropped since it was listed.
func (c *card) accountOf(pid uint32, total uint64) (gpu.Accounted, bool) {
	stats, failed := ask(func() (nvml.AccountingStats, nvml.Return) { return c.handle.GetAccountingStats(pid) }, c.lib,
		"nvmlDeviceGetAccountingStats")
	switch {
	case failed != nil && failed.ret == nvml.ERROR_NOT_FOUND:
		return gpu.Accounted{}, false
	case failed != nil:
		return gpu.Accounted{PID: int(pid), Peak: gpu.Unknown(c.refused(*failed))}, true
	}
	return accounted(pid, stats, total), true
}

// accounted takes out of the driver's numbers what can be true of a process on a card of this size.
func accounted(pid uint32, stats nvml.AccountingStats, total uint64) gpu.Accounted {
	const (
		notAvailable = ^uint64(0)
		year2200     = 7258118400 * 1_000_000 // µs since 1970
		century      = 100 * 366 * 24 * 3600 * 1000
	)
	p := gpu.Accounted{PID: int(pid), Peak: gpu.Bytes(stats.MaxMemoryUsage), Running: stats.IsRunning != 0}
	switch {
	case stats.MaxMemoryUsage == notAvailable:
		p.Peak = gpu.Unknown("nvmlDeviceGetAccountingStats: not available")
	case stats.MaxMemoryUsage > total:
		p.Peak = gpu.Unknown(fmt.Sprintf("nvmlDeviceGetAccountingStats: %d bytes of %d", stats.MaxMemoryUsage, total))
	}
	if stats.StartTime > 0 && stats.StartTime < year2200 {
		p.Began = time.UnixMicro(int64(stats.StartTime)).UTC()
	}
	if stats.Time < century {
		p.Ran = time.Duration(stats.Time) * time.Millisecond
	}
	return p
}

// total is a card's memory by the newest look, or more than any has.
func (s *session) total(c *card) uint64 {
	if r, ok := s.last.Reading(c.id); ok && r.Memory.Total.Known() {
		return r.Memory.Total.Bytes
	}
	return mostMemory
}
