//go:build cgo

package fakegpu

import (
	"debug/elf"
	"slices"
	"testing"
)

// A program that is given a MIG instance has that and nothing else; the card's own UUID names nothing then.
func TestCUDAOnAnInstance(t *testing.T) {
	w := newWorld(t, GPUs(2), Instance(0, 2, 1, 0, 10000))
	program := func(id string, mib string) error {
		p, err := w.StartAs(nil, []string{"CUDA_VISIBLE_DEVICES=" + id}, "alloc", "--mib", mib)
		if err == nil {
			p.End()
		}
		return err
	}
	if err := program(w.InstanceUUID(0, 2), "9000"); err != nil {
		t.Errorf("what fits: %v", err)
	}
	if program(w.InstanceUUID(0, 2), "11000") == nil {
		t.Error("an instance gave more than it has")
	}
	if program(w.UUID(0), "100") == nil {
		t.Error("a card in MIG mode was there as a whole")
	}
	if err := program(w.UUID(1), "11000"); err != nil {
		t.Errorf("another card: %v", err)
	}
}

func TestCUDAWithout(t *testing.T) {
	w := newWorld(t, GPUs(1))
	library, err := w.CUDAWithout("cuMemCreate")
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{library: false, w.CUDA(): true} {
		f, err := elf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		symbols, err := f.DynamicSymbols()
		has := slices.ContainsFunc(symbols, func(s elf.Symbol) bool { return s.Name == "cuMemCreate" && s.Section != elf.SHN_UNDEF })
		if err != nil || has != want {
			t.Errorf("%s has cuMemCreate: %v, %v", path, has, err)
		}
		_ = f.Close()
	}
}
