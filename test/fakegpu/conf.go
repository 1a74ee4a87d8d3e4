package fakegpu

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// MiB is 2^20 bytes, the unit of world.conf's sizes.
const MiB = 1 << 20

// maxGPUs is MAX_GPUS of c/world.h.
const maxGPUs = 64

// settings are world.conf's keys and values.
type settings map[string]string

// globals are the keys without a card and their defaults; "" is unset. Sizes are the measured ones of an H200
// under driver 580.
var globals = settings{
	"gpus":           "4",
	"driver_version": "580.159.04", "nvml_version": "13.580.159.04", "cuda_version": "13000",
	"context_mib":       "527",  // what one context adds to used
	"client_hidden_mib": "9",    // the part of it that no process's figure shows
	"contextless_mib":   "3",    // footprint of a process that allocates without a context
	"teardown":          "auto", // plain, jumpy, none; auto: jumpy for memory in more than 64 blocks
	"teardown_ms":       "",     // 150 plain, 110 jumpy
	"teardown_stall_ms": "380",  // how long a memory call blocks in a jumpy teardown
	"process_stride":    "",     // 32: entries of that length in every version of the process lists
	"process_stride_v3": "",     // 32: in version 3 alone, as drivers 535.43 to 535.86 have it
	"freezer":           "",     // cgroup v1 folder for the action freeze; New names one
}

// perGPU are the keys of one card; defaults that depend on its number are filled in by complete.
var perGPU = settings{
	"uuid": "", "bus": "", "minor": "", "name": "NVIDIA H200", "excluded": "",
	"total_mib": "143771", "reserved_mib": "615",
	"extra_mib":      "",  // used by nobody who could be listed
	"moving_mib":     "",  // the same, there and gone again every 0.7 s
	"largest_mib":    "",  // bound on one allocation; otherwise free - 2 MiB
	"vmm":            "1", // 0: memory cannot be had without a context
	"list":           "",  // PID:MIB[:compute|graphics|mps] ... listed without being there; MIB -1: not available
	"process_memory": "",  // -1: not available for every process
	"mig_lists":      "",  // parent: a MIG instance lists the processes of the whole card
	"busy":           "0", // percent
	"persistence":    "1", "compute_mode": "0", "mig": "0", "addressing_mode": "0", "virtualization_mode": "0",
	"ecc_uncorrected": "0", "ecc_corrected": "0", "remapped_corrected": "0", "remapped_uncorrected": "0",
	"remap_pending": "0", "remap_failure": "0", "recovery_action": "0",
	"ecc_uncorrected_ever": "0",
	"recovery_action_type": "1", "recovery_action_rc": "0", // of that field's value
	"retired_pages": "", "retired_pending": "0", // the first set: a card from before Ampere
	"fabric_state": "0", "fabric_status": "0",
	"clocks_event_reasons": "1", // idle
	"accounting_mode":      "0", // until nvmlDeviceSetAccountingMode
	// PID:MIB:START_US:MS:RUNNING ... in accounting without having been there; MIB -1: not available
	"accounted": "",
}

// buses are a machine's in ascending order; beyond them come those of the next PCI domain.
var buses = []string{"1b", "3d", "4e", "5f", "9d", "bb", "cb", "db"}

func busOf(gpu int) string { return fmt.Sprintf("%04x:%s:00.0", gpu/len(buses), buses[gpu%len(buses)]) }

func gpuKey(gpu int, key string) string { return fmt.Sprintf("gpu%d.%s", gpu, key) }

func (s settings) cards() int {
	n, _ := strconv.Atoi(s["gpus"])
	return n
}

// complete gives every card what its options left open.
func (s settings) complete() {
	for gpu := range min(max(s.cards(), 0), maxGPUs) {
		card := maps.Clone(perGPU)
		card["uuid"] = fmt.Sprintf("GPU-%08x-77c1-4d0e-9b3a-5e2f00c0a%03x", 0x8f0b1c00+gpu*0x11, gpu)
		card["bus"] = busOf(gpu)
		card["minor"] = strconv.Itoa(gpu)
		for key, value := range card {
			if _, set := s[gpuKey(gpu, key)]; !set {
				s[gpuKey(gpu, key)] = value
			}
		}
	}
}

var (
	gpuKeyForm = regexp.MustCompile(`^gpu([1-5]?\d|6[0-3])\.([a-z0-9_]+)$`)
	ruleKey    = regexp.MustCompile(`^on\.(\w+)(?:\.gpu(?:[1-5]?\d|6[0-3]))?$`)
	ruleForm   = regexp.MustCompile(
		`^(?:(?:rc|sleep|exit) \d+|hang|hang-hard|freeze|crash)(?: after \d+)?(?: times \d+)?$`)
)

// check refuses what the libraries would not understand, so that a typing error in a test cannot pass for a
// driver that behaves.
func check(key, value string) error {
	if strings.ContainsAny(key+value, "\n=") {
		return fmt.Errorf("%q = %q: a line break or = cannot be written", key, value)
	}
	if _, ok := globals[key]; ok {
		return nil
	}
	if m := gpuKeyForm.FindStringSubmatch(key); m != nil {
		if _, ok := perGPU[m[2]]; ok || instanceKey.MatchString(m[2]) {
			return nil
		}
	}
	m := ruleKey.FindStringSubmatch(key)
	switch {
	case m == nil:
		return fmt.Errorf("unknown key %q", key)
	case value != "" && !ruleForm.MatchString(value):
		return fmt.Errorf("%q: want ACTION [after N] [times M], got %q", key, value)
	case m[1] == "any":
		return nil
	}
	functions, err := exported()
	if err == nil && !functions[m[1]] {
		err = fmt.Errorf("%q: no library has the function %q", key, m[1])
	}
	return err
}

var exported = sync.OnceValues(func() (map[string]bool, error) {
	files, err := binaries()
	names := map[string]bool{}
	for _, lib := range []string{nvmlName, cudaName} {
		f, bad := elf.NewFile(bytes.NewReader(files[lib]))
		if err = errors.Join(err, bad); err != nil {
			return nil, err
		}
		symbols, bad := f.DynamicSymbols()
		err = errors.Join(err, bad)
		for _, s := range symbols {
			names[s.Name] = names[s.Name] || s.Section != elf.SHN_UNDEF
		}
	}
	return names, err
})

// Set changes a key of world.conf; "" removes it. Every library call reads the file anew, so a change holds for
// the next call of any process. Keys: see globals and perGPU (as gpuN.KEY), instanceKey, and the rules of misbehaviour
//
//	on.FUNCTION = ACTION [after N] [times M]
//	on.FUNCTION.gpuN, on.any.gpuN       for one card; the more exact rule wins
//
// with FUNCTION as the library exports it, N and M counted per process, function and card, and these actions:
// rc CODE, sleep MS (then goes on), exit CODE, crash (SIGSEGV), hang, hang-hard (ignores every signal that can be
// ignored), freeze (the process is in state D and not even SIGKILL ends it before Thaw; needs cgroup v1's freezer
// and root).
func (w *World) Set(key, value string) error {
	s, err := w.settings()
	if err != nil {
		return err
	}
	if s[key] = value; value == "" {
		delete(s, key)
	}
	if err := check(key, value); err != nil {
		return fmt.Errorf("set world.conf: %w", err)
	}
	return w.apply(s)
}

// Get returns a key of world.conf, "" where it is not set.
func (w *World) Get(key string) string {
	s, _ := w.settings()
	return s[key]
}

// UUID returns a card's UUID.
func (w *World) UUID(gpu int) string { return w.Get(gpuKey(gpu, "uuid")) }

// BusID returns a card's PCI address, "0000:1b:00.0".
func (w *World) BusID(gpu int) string { return w.Get(gpuKey(gpu, "bus")) }

// Node returns the path of a card's device node.
func (w *World) Node(gpu int) string {
	return filepath.Join(w.Dev(), "nvidia"+w.Get(gpuKey(gpu, "minor")))
}

func (w *World) settings() (settings, error) {
	text, err := os.ReadFile(filepath.Join(w.dir, "world.conf"))
	if err != nil {
		return nil, err
	}
	s := settings{}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, "="); ok {
			s[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}
	return s, nil
}

// apply writes world.conf and makes the rest of the world agree with it.
func (w *World) apply(s settings) error {
	if n := s.cards(); n < 1 || n > maxGPUs {
		return fmt.Errorf("gpus = %q: want 1 to %d", s["gpus"], maxGPUs)
	}
	if s["freezer"] == "" {
		s["freezer"] = freezerOf(w.dir)
	}
	var text strings.Builder
	var bad error
	for _, key := range slices.Sorted(maps.Keys(s)) {
		if bad = errors.Join(bad, check(key, s[key])); s[key] != "" {
			fmt.Fprintf(&text, "%s = %s\n", key, s[key])
		}
	}
	if bad != nil {
		return bad
	}
	return errors.Join(replace(filepath.Join(w.dir, "world.conf"), []byte(text.String()), 0o644), w.render(s))
}
