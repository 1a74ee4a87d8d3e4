package nodefiles

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bookend/internal/gpu"
	"bookend/test/fakeamd"
	"bookend/test/golden"
	"bookend/test/must"
)

// tree builds a driver's /proc tree from testdata/<name>: a file a card, named by bus id with "-" for ":".
func tree(t *testing.T, name string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", name, "*"))
	must.Not(t, err != nil || len(files) == 0, "fixture %q: %d files, %v", name, len(files), err)
	root := t.TempDir()
	for _, file := range files {
		text := must.Have(os.ReadFile(file))(t)
		must.Write(t, filepath.Join(root, "gpus", strings.ReplaceAll(filepath.Base(file), "-", ":"), "information"),
			string(text))
	}
	return root
}

// Of the UUIDs one is question marks and one has no line.
func TestRead(t *testing.T) {
	got := must.Have(json.MarshalIndent(must.Have(readNVIDIA(tree(t, "h200x4")))(t), "", " "))(t)
	golden.File(t, *update, "testdata/h200x4.json", string(got))
}

func TestReadKeepsACardItCannotRead(t *testing.T) {
	root := tree(t, "h200x4")
	must.Do(t, os.Remove(filepath.Join(root, "gpus/0000:3d:00.0/information")))
	must.Write(t, filepath.Join(root, "gpus/0000:9d:00.0/information"), strings.Repeat("x", maxFile+1))
	cards, err := readNVIDIA(root)
	must.Not(t, err != nil || len(cards) != 4, "%d GPUs, %v", len(cards), err)
	for _, c := range cards[1:3] {
		must.Not(t, c.Unknown == "" || c.Device.Minor != nil || c.Device.BusID == "",
			"%+v: want only a bus id and a reason", c)
	}
	must.Not(t, cards[0].Unknown != "" || cards[3].Unknown != "", "%+v: a readable GPU became unknown", cards)
}

func TestReadRefuses(t *testing.T) {
	must.Fail(t, "no tree", must.Err(readNVIDIA(t.TempDir())), ErrNoDriver)
	file := t.TempDir()
	must.Write(t, filepath.Join(file, "gpus"), "")
	if _, err := readNVIDIA(file); err == nil || errors.Is(err, ErrNoDriver) {
		t.Errorf("a file for a directory: %v", err)
	}
	odd := t.TempDir()
	must.Write(t, filepath.Join(odd, "gpus/card0/information"), "")
	must.Not(t, must.Err(readNVIDIA(odd)) == nil, "a directory that is no bus id was accepted")
}

func TestReadEpoch(t *testing.T) {
	proc, sys := t.TempDir(), t.TempDir()
	if got := ReadEpoch(proc, sys); got != (gpu.Epoch{}) {
		t.Errorf("nothing there: %+v", got)
	}
	must.Write(t, filepath.Join(sys, "module/amdgpu/version"), "6.12.12\n")
	if got := ReadEpoch(proc, sys); got != (gpu.Epoch{}) {
		t.Errorf("another vendor's module: %+v", got)
	}
	must.Write(t, filepath.Join(proc, "sys/kernel/random/boot_id"), "7cb16e45-ecce-4a09-a4bf-64c8347c4edd\n")
	must.Write(t, filepath.Join(sys, "module/nvidia/version"), "580.159.04\n")
	must.Write(t, filepath.Join(sys, "module/nvidia/srcversion"), "0123456789ABCDEF0123456\n")
	first := ReadEpoch(proc, sys)
	if first.Boot != "7cb16e45-ecce-4a09-a4bf-64c8347c4edd" || first.Driver != "580.159.04" ||
		!strings.HasPrefix(first.Module, "0123456789ABCDEF0123456@") {
		t.Errorf("%+v", first)
	}
	must.Not(t, !first.Same(ReadEpoch(proc, sys)), "two readings of one epoch differ")
	reload(t, filepath.Join(sys, "module"))
	if second := ReadEpoch(proc, sys); first.Same(second) {
		t.Errorf("a module loaded again looks like the same: %+v", second)
	}
	must.Write(t, filepath.Join(sys, "module/nvidia/version"), "580 \x00 04\n")
	if got := ReadEpoch(proc, sys); got.Driver != "" {
		t.Errorf("garbage as driver version: %q", got.Driver)
	}
}

// reload replaces the module's folder by an equal one while the first still stands, so that it gets another inode.
func reload(t *testing.T, modules string) {
	t.Helper()
	must.Write(t, filepath.Join(modules, "next/version"), "580.159.04\n")
	must.Write(t, filepath.Join(modules, "next/srcversion"), "0123456789ABCDEF0123456\n")
	for _, move := range [][2]string{{"nvidia", "old"}, {"next", "nvidia"}} {
		must.Do(t, os.Rename(filepath.Join(modules, move[0]), filepath.Join(modules, move[1])))
	}
}

// Devices by vendor and class, and whether one of them is a GPU.
func TestOnBus(t *testing.T) {
	golden.Lines(t, *update, "testdata/bus.txt", func(given string) string {
		sys := t.TempDir()
		for i, device := range strings.Fields(strings.TrimPrefix(given, "none")) {
			vendor, class, _ := strings.Cut(device, "/")
			dir := filepath.Join(sys, "bus/pci/devices", fmt.Sprintf("0000:%02x:00.0", i))
			must.Write(t, filepath.Join(dir, "vendor"), vendor+"\n")
			must.Write(t, filepath.Join(dir, "class"), class+"\n")
		}
		return fmt.Sprint(must.Have(hasGPU(sys))(t))
	})
	sys := t.TempDir()
	must.Write(t, filepath.Join(sys, "bus/pci/devices"), "")
	if got, err := hasGPU(sys); got || err == nil {
		t.Errorf("what cannot be listed is no answer: %v, %v", got, err)
	}
}

// Which vendors' GPUs a node has, which cards, and when its drivers began.
func TestVendors(t *testing.T) {
	amd := fakeamd.Card{Bus: "0000:26:00.0", Minor: 128, UniqueID: "a1b2c3d4e5f60718"}
	graphics := fakeamd.Card{Bus: "0000:c4:00.0", Minor: 128, APU: true}
	for name, tt := range map[string]struct {
		cards   []fakeamd.Card
		nvidia  string // loaded, on the bus, or neither
		present string
		listed  int // of AMD's
		driver  string
	}{
		"neither":                      {nil, "", "nvidia", 0, ""},
		"NVIDIA":                       {nil, "loaded", "nvidia", 0, "580.1"},
		"AMD":                          {[]fakeamd.Card{amd}, "", "amd", 1, "6.8.0-test"},
		"both":                         {[]fakeamd.Card{amd}, "loaded", "nvidia amd", 1, "580.1+6.8.0-test"},
		"AMD, NVIDIA without a driver": {[]fakeamd.Card{amd}, "on the bus", "nvidia amd", 1, ""},
		"a processor's own graphics":   {[]fakeamd.Card{graphics}, "loaded", "nvidia", 0, "580.1"},
		"nothing but such":             {[]fakeamd.Card{graphics}, "", "amd", 1, "6.8.0-test"},
	} {
		t.Run(name, func(t *testing.T) {
			w := fakeamd.New(t.TempDir(), tt.cards...)
			switch tt.nvidia {
			case "loaded":
				must.Write(t, filepath.Join(w.Sys, "module/nvidia/version"), "580.1\n")
			case "on the bus":
				must.Write(t, filepath.Join(w.Sys, "bus/pci/devices/0000:1b:00.0/vendor"), "0x10de\n")
				must.Write(t, filepath.Join(w.Sys, "bus/pci/devices/0000:1b:00.0/class"), "0x030200\n")
			}
			var present []string
			for _, v := range Present(w.Sys) {
				present = append(present, v.Name)
			}
			cards, err := Read(tree(t, "h200x4"), w.Sys)
			of := 0
			for _, c := range cards {
				if c.Device.Vendor == gpu.AMD.Name {
					of++
				}
			}
			must.Not(t, strings.Join(present, " ") != tt.present || of != tt.listed || err != nil,
				"got %v, %d of AMD's in %+v, %v", present, of, cards, err)
			if e := ReadEpoch(w.Proc, w.Sys); e.Driver != tt.driver {
				t.Errorf("driver %q, want %q", e.Driver, tt.driver)
			}
			if has, err := hasGPU(w.Sys); err != nil || has != (tt.nvidia == "on the bus" || tt.listed > 0) {
				t.Errorf("on the bus: %v, %v", has, err)
			}
		})
	}
}
