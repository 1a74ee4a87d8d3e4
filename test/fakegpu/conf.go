package fakegpu

import (
	"bytes"
	"debug/elf"
	_ "embed"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"bookend/test/rig"
)

// MiB is 2^20 bytes, the unit of world.conf's sizes.
const MiB = 1 << 20

const maxGPUs = 64

type settings map[string]string

//go:embed defaults.conf
var defaults string

// globals are the keys without a card and their defaults; perGPU those of one card, of which complete fills in what
// depends on its number.
var globals, perGPU = func() (globals, perGPU settings) {
	globals, perGPU = parse(defaults), settings{}
	for key, value := range globals {
		if of, is := strings.CutPrefix(key, "gpu."); is {
			perGPU[of] = value
			delete(globals, key)
		}
	}
	return globals, perGPU
}()

func parse(text string) settings {
	s := settings{}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(line, "="); ok && !strings.HasPrefix(line, "#") {
			s[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}
	return s
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
		`^(?:(?:rc|sleep|meet|exit) \d+|note|hang|hang-hard|freeze|crash)(?: after \d+)?(?: times \d+)?$`)
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
	if !exported()[m[1]] {
		return fmt.Errorf("%q: no library has the function %q", key, m[1])
	}
	return nil
}

var exported = sync.OnceValue(func() map[string]bool {
	names := map[string]bool{}
	for _, lib := range []string{nvmlName, cudaName} {
		library := rig.Have(elf.NewFile(bytes.NewReader(rig.Have(binaries())[lib])))
		for _, s := range rig.Have(library.DynamicSymbols()) {
			names[s.Name] = names[s.Name] || s.Section != elf.SHN_UNDEF
		}
	}
	return names
})

// Set changes a key of world.conf; "" removes it. Every library call reads the file anew, so a change holds for
// the next call of any process. Keys: see defaults.conf (gpu.KEY as gpuN.KEY), instanceKey, and the rules of misbehaviour
//
//	on.FUNCTION = ACTION [after N] [times M]
//	on.FUNCTION.gpuN, on.any.gpuN       for one card; the more exact rule wins
//
// with FUNCTION as the library exports it, N and M counted per process, function and card, and these actions:
// rc CODE, sleep MS (then goes on), meet CALLS (goes on when so many have come to one), note (goes on; Noted lists the
// process), exit CODE, crash (SIGSEGV), hang, hang-hard (ignores every signal that can be ignored), freeze (the process is in state D and not even SIGKILL ends it before Thaw; needs cgroup v1's freezer
// and root).
func (w *World) Set(key, value string) error {
	return rig.Attempt(func() {
		s := w.settings()
		if s[key] = value; value == "" {
			delete(s, key)
		}
		rig.Try(check(key, value))
		w.apply(s)
	})
}

// Get returns a key of world.conf, "" where it is not set.
func (w *World) Get(key string) string { return w.settings()[key] }

// UUID returns a card's UUID.
func (w *World) UUID(gpu int) string { return w.Get(gpuKey(gpu, "uuid")) }

// BusID returns a card's PCI address, "0000:1b:00.0".
func (w *World) BusID(gpu int) string { return w.Get(gpuKey(gpu, "bus")) }

// Node returns the path of a card's device node.
func (w *World) Node(gpu int) string {
	return filepath.Join(w.Dev(), "nvidia"+w.Get(gpuKey(gpu, "minor")))
}

func (w *World) settings() settings {
	text, _ := os.ReadFile(filepath.Join(w.dir, "world.conf")) // none where the world has been taken away
	return parse(string(text))
}

// apply writes world.conf and makes the rest of the world agree with it.
func (w *World) apply(s settings) {
	if n := s.cards(); n < 1 || n > maxGPUs {
		panic(fmt.Errorf("gpus = %q: want 1 to %d", s["gpus"], maxGPUs))
	}
	if s["freezer"] == "" {
		s["freezer"] = freezerOf(w.dir)
	}
	var text strings.Builder
	for _, key := range slices.Sorted(maps.Keys(s)) {
		rig.Try(check(key, s[key]))
		if s[key] != "" {
			fmt.Fprintf(&text, "%s = %s\n", key, s[key])
		}
	}
	rig.Try(rig.Write(filepath.Join(w.dir, "world.conf"), []byte(text.String()), 0o644))
	w.render(s)
}
