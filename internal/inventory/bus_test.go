package inventory

import (
	"os"
	"path/filepath"
	"testing"

	"bookend/test/must"
)

func TestOnBus(t *testing.T) {
	for name, tt := range map[string]struct {
		devices map[string][2]string // vendor and class
		want    bool
	}{
		"no bus": {nil, false},
		"no GPU": {map[string][2]string{"0000:00:1f.0": {"0x8086", "0x060100"}}, false},
		"a GPU without an output": {map[string][2]string{"0000:00:1f.0": {"0x8086", "0x060100"},
			"0000:3b:00.0": {"0x10de", "0x030200"}}, true},
		"a display":                {map[string][2]string{"0000:3b:00.0": {"0x10de", "0x030000"}}, true},
		"a switch of the vendor's": {map[string][2]string{"0000:3b:00.0": {"0x10de", "0x068000"}}, false},
		"another vendor's display": {map[string][2]string{"0000:3b:00.0": {"0x1002", "0x030000"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			sys := t.TempDir()
			for bus, facts := range tt.devices {
				dir := filepath.Join(sys, "bus/pci/devices", bus)
				must.Do(t, os.MkdirAll(dir, 0o755))
				for i, file := range []string{"vendor", "class"} {
					must.Do(t, os.WriteFile(filepath.Join(dir, file), []byte(facts[i]+"\n"), 0o644))
				}
			}
			if got, err := OnBus(sys); got != tt.want || err != nil {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
	sys := t.TempDir()
	must.Do(t, os.MkdirAll(filepath.Join(sys, "bus/pci"), 0o755))
	must.Do(t, os.WriteFile(filepath.Join(sys, "bus/pci/devices"), nil, 0o644))
	if got, err := OnBus(sys); got || err == nil {
		t.Errorf("what cannot be listed is no answer: %v, %v", got, err)
	}
}
