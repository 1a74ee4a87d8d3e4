package main

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"bookend/internal/gpu"
)

// What a driver lists is taken as a whole or not at all: real processes on possible places, each with one figure that the
// card can hold.
func FuzzEntries(f *testing.F) {
	f.Add([]byte("\x07\x00\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\xff\xff"), uint32(4194304), uint64(1)<<37)
	f.Add([]byte("\x07\x00\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x01\x00\x07\x00\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x01\x00"), uint32(100), uint64(5))
	f.Add([]byte{}, uint32(1), uint64(0))
	f.Fuzz(func(t *testing.T, data []byte, pidMax uint32, total uint64) {
		var list []entry
		for ; len(data) >= 15; data = data[15:] {
			e := entry{pid: binary.LittleEndian.Uint32(data), used: binary.LittleEndian.Uint64(data[4:]), at: place{uint32(data[13]), uint32(data[14])}}
			if data[12] > 127 {
				e.used = notAvailable
			}
			list = append(list, e)
		}
		if implausible(list, pidMax) != "" || oversized(list, gpu.Bytes(total)) != "" {
			return
		}
		figures := map[string]uint64{}
		for _, e := range list {
			key := fmt.Sprint(e.pid, e.at)
			if before, twice := figures[key]; twice && before != e.used {
				t.Errorf("%+v has two figures", e)
			}
			figures[key] = e.used
			if e.pid == 0 || e.pid > pidMax || e.used != notAvailable && e.used > total || e.at.gi >= mostInstances && e.at.gi != nowhere {
				t.Errorf("%+v of at most %d and %d bytes", e, pidMax, total)
			}
		}
	})
}

// An old instance's id names its card and its place, or nothing.
func FuzzInstance(f *testing.F) {
	for _, seed := range []string{"MIG-GPU-1/2/3", "MIG-1", "GPU-1", "MIG-GPU-1/-1/0", "MIG-GPU-1/2/3/4", "MIG-//", "MIG-GPU-1/4294967296/0"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, id string) {
		card, at, ok := parseInstance(gpu.ID(id))
		if !ok {
			return
		}
		parts := strings.Split(strings.TrimPrefix(id, "MIG-"), "/")
		if len(parts) != 3 || parts[0] != string(card) || number(parts[1]) != fmt.Sprint(at.gi) || number(parts[2]) != fmt.Sprint(at.ci) {
			t.Errorf("%q is %+v of %q", id, at, card)
		}
	})
}

// number is a decimal without its leading zeros.
func number(s string) string {
	if n := strings.TrimLeft(s, "0"); n != "" || s == "" {
		return n
	}
	return "0"
}
