package slurmconf

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// whole makes GPUs of one device file each.
func whole(minors ...int) (all []GPU) {
	for _, m := range minors {
		all = append(all, GPU{fmt.Sprintf("/dev/nvidia%d", m)})
	}
	return all
}

func part(files ...string) (g GPU) {
	for _, f := range files {
		g = append(g, "/dev/"+f)
	}
	return g
}

// The texts are what slurmd of three versions printed.
func TestParseListed(t *testing.T) {
	split := append(whole(0), part("nvidia-caps/nvidia-cap1"), part("nvidia-caps/nvidia-cap2"))
	split = append(append(split, whole(1)...), part("nvidia-caps/nvidia-cap3"), part("nvidia-caps/nvidia-cap4"))
	parts := []GPU{part("nvidia0", "nvidia-caps/nvidia-cap1", "nvidia-caps/nvidia-cap2"),
		part("nvidia1", "nvidia-caps/nvidia-cap3", "nvidia-caps/nvidia-cap4")}
	withInstance := append(whole(1, 0, 2), part("nvidia3", "nvidia-caps/nvidia-cap1", "nvidia-caps/nvidia-cap2"))
	for name, want := range map[string]struct {
		gpus []GPU
		err  string
	}{
		"typed": {whole(2, 3, 0, 1), ""}, "shards": {whole(2, 3, 0, 1), ""}, "leftout": {whole(0, 2, 3), ""},
		"multiple": {parts, ""}, "22.05-multiple": {split, ""}, // which the count in slurm.conf does not agree with
		"autodetect": {withInstance, ""}, "none": {nil, ""},
		"22.05-autodetect": {append(whole(1, 0, 2, 3), part("nvidia-caps/nvidia-cap1"),
			part("nvidia-caps/nvidia-cap2")), ""},
		"plain": {nil, "slurmd does not count a device that it lists"},
	} {
		files, err := filepath.Glob("testdata/slurmd/*" + name)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", name, files, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "22.05-"+name) && (name == "multiple" || name == "autodetect") {
				continue
			}
			want := want
			if strings.HasSuffix(file, "24.11-autodetect") { // made without the library that this slurmd was built with
				want.gpus, want.err = nil, "slurmd could not detect the GPUs"
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got, err := ParseListed(string(text))
			if !reflect.DeepEqual(got, want.gpus) || (err == nil) != (want.err == "") || err != nil &&
				!strings.Contains(err.Error(), want.err) {
				t.Errorf("%s: %v, %v; want %v, %q", file, got, err, want.gpus, want.err)
			}
		}
	}
}

// A slurmd that could not ask the driver lists the order of gres.conf, which is not the running daemon's.
func TestParseListedWithoutDetection(t *testing.T) {
	const list = "slurmd: Gres Name=gpu Type=(null) Count=2 ID=7 File=/dev/nvidia[0-1] (null)\n"
	for _, said := range []string{
		"We were configured with nvml functionality, but that lib wasn't found on the system.",
		"Configured with rsmi, but that lib wasn't found.", "Configured with oneAPI, but that lib wasn't found.",
		"error: Failed to initialize NVML: Driver/library version mismatch", "error: System GPU detection failed",
		"error: Failed to get device count: Uninitialized", "error: Failed to get minor number for device 1: Not Found",
		"warning: The following autodetected GPUs are being ignored:",
	} {
		for _, text := range []string{list + "slurmd: " + said + "\n",
			"[2026-11-22T14:51:01.002] " + said + "\n" + list} {
			if got, err := ParseListed(text); err == nil || got != nil {
				t.Errorf("%q: %v, %v", text, got, err)
			}
		}
	}
	built := "slurmd: We were configured to autodetect nvml functionality, " +
		"but we weren't able to find that lib when Slurm was configured.\n"
	if got, err := ParseListed(built + list); err != nil || len(got) != 2 {
		t.Errorf("a slurmd without NVML, like the daemon: %v, %v", got, err)
	}
}

func TestParseListedOneByOne(t *testing.T) {
	for text, want := range map[string]string{
		"slurmd: Gres Name=gpu Type=(null) Count=4 Index=0 ID=7696487 File=/dev/nvidia[0,2-4] (null)\n": "[[/dev/nvidia0] [/dev/nvidia2] [/dev/nvidia3] [/dev/nvidia4]]",
		"Gres Name=gpu Type=x Count=2 ID=7 File=/dev/dri/renderD[128-129] Links=(null)":                 "[[/dev/dri/renderD128] [/dev/dri/renderD129]]",
		"Gres Name=gpu Type=x Count=3 ID=7 File=/dev/nvidia[0-1] (null)":                                "error",
		"Gres Name=gpu Type=x Count=4 ID=7 (null)":                                                      "error",
		"Gres Name=gpu Type=x Count=99999 ID=7 File=/dev/nvidia0 x":                                     "error",
		"Gres Name=gpu Type=x":                              "error",
		"slurmd: error: Gres Name=gpux Count=1 File=/dev/x": "[]",
		"nonsense\x00\xff":                                  "[]",
		strings.Repeat("Gres Name=gpu Type=x Count=200 ID=7 File=/dev/nvidia[0-199] x\n", 2): "error",
	} {
		got, err := ParseListed(text)
		said := fmt.Sprint(got)
		if err != nil {
			said = "error"
		}
		if said != want {
			t.Errorf("%.80q: %s, %v; want %s", text, said, err, want)
		}
	}
}
