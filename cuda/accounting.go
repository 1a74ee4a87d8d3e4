package main

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/serve"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// mostAccounted is how many processes of a GPU are sent: at 130 bytes each, 16 GPUs fill an eighth of the answer.
const mostAccounted = 256

// account reads what the driver's accounting kept of a GPU's processes, or switches accounting on if that is requested.
// Bookend never switches it off: that drops what was kept, and others rely on it. In MIG mode the driver keeps none.
func (s *session) account(p *patient, end time.Duration) gpu.Accounting {
	if !s.Req.Accounting && !s.Req.StartAccounting {
		return gpu.Accounting{}
	}
	if p.lost != "" {
		return gpu.Accounting{Unknown: serve.Bounded("not asked: " + p.lost)}
	}
	mode, failed := ask(p.card.GetAccountingMode, p.lib, "nvmlDeviceGetAccountingMode")
	a := gpu.Accounting{Mode: onOff(mode)}
	switch {
	case failed != nil && failed.ret == nvml.ERROR_NOT_SUPPORTED:
		return gpu.Accounting{Unknown: "not supported on this GPU"}
	case failed != nil:
		return gpu.Accounting{Unknown: p.refused(*failed)}
	case mode == nvml.FEATURE_ENABLED && s.Req.Accounting:
		a.Processes, a.Unknown = s.accounted(p, end)
	case mode == nvml.FEATURE_ENABLED || !s.Req.StartAccounting:
	case p.mig == nil || *p.mig:
		a.Unknown = "left off: the driver keeps no accounting of a GPU in MIG mode, and this one may be"
	default:
		start := func() (bool, nvml.Return) { return true, p.card.SetAccountingMode(nvml.FEATURE_ENABLED) }
		_, failed = ask(start, p.lib, "nvmlDeviceSetAccountingMode")
		if a.Mode = onOff(nvml.FEATURE_ENABLED); failed != nil { // if it had no effect, the next sample shows it
			why := serve.Bounded("cannot be switched on: " + p.refused(*failed))
			a = gpu.Accounting{Mode: onOff(mode), Unknown: why}
		}
	}
	return a
}

// accounted lists the processes, newest first, and returns why the list is incomplete.
func (s *session) accounted(p *patient, end time.Duration) (all []gpu.Accounted, unknown string) {
	pids, why := p.accountedPIDs()
	if why != "" {
		return nil, why
	}
	total := uint64(mostMemory)
	if r, ok := s.last.Reading(p.ID); ok && r.Memory.Total.Known() {
		total = r.Memory.Total.Bytes
	}
	var gaps []string
	for i, pid := range pids {
		if s.Boot() >= end {
			gaps = append(gaps, fmt.Sprintf("time for %d of %d processes", i, len(pids)))
			break
		}
		stats, failed := ask(func() (nvml.AccountingStats, nvml.Return) { return p.card.GetAccountingStats(pid) },
			p.lib, "nvmlDeviceGetAccountingStats")
		if failed != nil && failed.ret == nvml.ERROR_NOT_FOUND { // dropped since it was listed
			continue
		}
		one := accountOf(pid, stats, total)
		if failed != nil {
			one = gpu.Accounted{PID: int(pid), Peak: gpu.Unknown(p.refused(*failed))}
		}
		if p.lost != "" {
			gaps = append(gaps, p.lost)
			break
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b gpu.Accounted) int {
		return cmp.Or(b.Began.Compare(a.Began), cmp.Compare(a.PID, b.PID))
	})
	if n := len(all); n > mostAccounted {
		all, gaps = all[:mostAccounted], append(gaps, fmt.Sprintf("the newest %d of %d processes", mostAccounted, n))
	}
	return all, serve.Bounded(strings.Join(gaps, "; "))
}

// accountedPIDs calls the driver directly: go-nvml offers room for one process and doubles it without end. The driver
// keeps 3872 living and 128 ended ones.
func (p *patient) accountedPIDs() ([]uint32, string) {
	const name = "nvmlDeviceGetAccountingPids"
	buffer, count, failed := p.lib.fill(name, p.card)
	if failed != nil {
		return nil, p.refused(*failed)
	}
	pids := make([]uint32, count)
	for i := range pids {
		pids[i] = binary.NativeEndian.Uint32(buffer[4*i:])
		if pids[i] == 0 || pids[i] > gpu.MaxPID {
			return nil, fmt.Sprintf("%s: list not trusted: process %d", name, pids[i])
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids), ""
}

// accountOf keeps the driver's figures that are possible for a process on a GPU with total bytes.
func accountOf(pid uint32, stats nvml.AccountingStats, total uint64) gpu.Accounted {
	const (
		year2200 = 7258118400 * 1_000_000 // µs since 1970
		century  = 100 * 366 * 24 * 3600 * 1000
	)
	p := gpu.Accounted{PID: int(pid), Peak: gpu.Bytes(stats.MaxMemoryUsage), Running: stats.IsRunning != 0}
	if stats.MaxMemoryUsage > total { // 2^64 - 1 if it is not available
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
