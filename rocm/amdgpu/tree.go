// Package amdgpu reads what AMD's driver shows of its cards in files of the kernel: memory, and who has it.
package amdgpu

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"bookend/internal/gpu"
	"bookend/internal/inventory"
)

// Driver is where the kernel shows it: the roots of /proc and /sys.
type Driver struct{ Proc, Sys string }

// number reads a file that has one decimal number.
func number(parts ...string) (uint64, error) {
	text, err := read(parts...)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read %q: %.40q is not a number", filepath.Join(parts...), text)
	}
	return n, nil
}

func (d Driver) module() string { return filepath.Join(d.Sys, "module", gpu.AMD.Module) }

func (d Driver) Loaded() bool {
	_, err := os.Stat(d.module())
	return err == nil
}

// Version is that of the module, where it came apart from the kernel, else the kernel's.
func (d Driver) Version() string {
	if v, err := read(d.module(), "version"); err == nil && v != "" {
		return v
	}
	v, _ := read(d.Proc, "sys/kernel/osrelease")
	return v
}

// KnownBad are the versions of the module that are known not to give memory back, and what is known of each.
var KnownBad = map[string]string{
	"6.16.6": "amdgpu 6.16.6, of ROCm 7.1, is known to keep memory of dma-bufs when their programs have ended, until " +
		"the node is rebooted: ROCm 7.2 is mended (ROCm/rocm-systems#8263)",
}

// kfd is the folder of KFD, the driver's half that compute goes through.
func (d Driver) kfd() string { return filepath.Join(d.Sys, "class/kfd/kfd") }

// Card is a device to look at.
type Card struct{ inventory.AMDCard }

// Cards are the devices that jobs can be given.
func (d Driver) Cards() (cards []Card, err error) {
	all, err := inventory.AMD(d.Sys)
	for _, c := range all {
		cards = append(cards, Card{c})
	}
	return cards, err
}

// Memory is a card's VRAM.
func (c Card) Memory() gpu.Memory {
	if c.Parent != "" {
		no := gpu.Unknown(c.Unjudged)
		return gpu.Memory{Total: no, Reserved: no, Used: no, Free: no, Unjudged: c.Unjudged}
	}
	total, err := number(c.Folder, "mem_info_vram_total")
	var used uint64
	if err == nil {
		used, err = number(c.Folder, "mem_info_vram_used")
	}
	if err == nil && used > total {
		err = fmt.Errorf("mem_info_vram_used: %d bytes of %d", used, total)
	}
	m := gpu.Memory{Reserved: gpu.Unknown("the driver does not tell"), Unjudged: c.Unjudged}
	if err != nil {
		m.Total, m.Used, m.Free = gpu.Unknown(err.Error()), gpu.Unknown(err.Error()), gpu.Unknown(err.Error())
		return m
	}
	m.Total, m.Used, m.Free = gpu.Bytes(total), gpu.Bytes(used), gpu.Bytes(total-used)
	return m
}

// Read takes one look at a card on which these processes are.
func (c Card) Read(on map[int]gpu.Process, unknown string) (gpu.Reading, []gpu.Fault) {
	r := gpu.Reading{Device: c.Device, Memory: c.Memory(), Processes: []gpu.Process{}, ProcessesUnknown: unknown}
	var sum uint64
	for _, p := range on {
		r.Processes, sum = append(r.Processes, p), sum+p.Memory.Bytes
	}
	r.Memory = withOwn(r.Memory, sum)
	if used := r.Memory.Used; c.Parent == "" && used.Known() && sum > used.Bytes+apart {
		for i := range r.Processes { // an entry of KFD's may stay when its memory has gone (ROCm/amdgpu#114)
			const why = "processes count %d MiB, the GPU %d MiB"
			r.Processes[i].Memory = gpu.Unknown(fmt.Sprintf(why, sum>>20, used.Bytes>>20))
		}
	}
	slices.SortFunc(r.Processes, func(a, b gpu.Process) int { return a.PID - b.PID })
	if busy, err := number(c.Folder, "gpu_busy_percent"); err == nil && busy <= 100 {
		memory, _ := number(c.Folder, "mem_busy_percent")
		r.Busy = &gpu.Busy{GPU: int(busy), Memory: int(min(memory, 100))}
	}
	if r.Memory.Used.Known() || c.Parent != "" {
		return r, nil
	}
	return r, []gpu.Fault{{Code: gpu.FaultDriver, Device: c.ID, BusID: c.BusID, Detail: r.Memory.Used.Unknown}}
}

// OwnShare is as much of a card's memory, in bytes, as the driver may keep for itself and its firmware: it does not
// tell, and idle cards are reported with some 300 MiB in use.
const OwnShare = 512 << 20

// withOwn counts what no process accounts for, up to OwnShare, as the driver's own.
func withOwn(m gpu.Memory, processes uint64) gpu.Memory {
	if m.Used.Known() {
		own := min(OwnShare, m.Used.Bytes-min(m.Used.Bytes, processes))
		m.Reserved, m.Used = gpu.Bytes(own), gpu.Bytes(m.Used.Bytes-own)
	}
	return m
}

// Health is a card's condition: what its RAS counts of its memory since the driver was loaded.
func (c Card) Health() gpu.Health {
	const source = "ras/umc_err_count"
	h := gpu.Health{Device: c.ID, Facts: []gpu.Fact{}}
	text, err := read(c.Folder, source)
	if err != nil {
		return h // most cards have no RAS
	}
	f := gpu.Fact{Code: gpu.ECCUncorrected, Source: source, Unknown: fmt.Sprintf("%.60q", text)}
	for line := range strings.Lines(text) {
		if count, ok := strings.CutPrefix(strings.TrimSpace(line), "ue: "); ok {
			if _, err := strconv.ParseUint(count, 10, 64); err == nil {
				f.Value, f.Unknown = count, ""
			}
		}
	}
	h.Facts = append(h.Facts, f)
	return h
}
