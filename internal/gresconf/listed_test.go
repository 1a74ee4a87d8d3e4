package gresconf

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
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
	parts := []GPU{part("nvidia0", "nvidia-caps/nvidia-cap1", "nvidia-caps/nvidia-cap2"), part("nvidia1", "nvidia-caps/nvidia-cap3", "nvidia-caps/nvidia-cap4")}
	withInstance := append(whole(1, 0, 2), part("nvidia3", "nvidia-caps/nvidia-cap1", "nvidia-caps/nvidia-cap2"))
	for name, want := range map[string]struct {
		gpus []GPU
		err  string
	}{
		"typed": {whole(2, 3, 0, 1), ""}, "shards": {whole(2, 3, 0, 1), ""}, "leftout": {whole(0, 2, 3), ""},
		"multiple": {parts, ""}, "22.05-multiple": {split, ""}, // which the count in slurm.conf does not agree with
		"autodetect": {withInstance, ""}, "none": {nil, ""},
		"22.05-autodetect": {append(whole(1, 0, 2, 3), part("nvidia-caps/nvidia-cap1"), part("nvidia-caps/nvidia-cap2")), ""},
		"plain":            {nil, "slurmd does not count a device that it lists"},
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
			if !reflect.DeepEqual(got, want.gpus) || (err == nil) != (want.err == "") || err != nil && !strings.Contains(err.Error(), want.err) {
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
		for _, text := range []string{list + "slurmd: " + said + "\n", "[2026-11-22T14:51:01.002] " + said + "\n" + list} {
			if got, err := ParseListed(text); err == nil || got != nil {
				t.Errorf("%q: %v, %v", text, got, err)
			}
		}
	}
	built := "slurmd: We were configured to autodetect nvml functionality, but we weren't able to find that lib when Slurm was configured.\n"
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

func TestSimple(t *testing.T) {
	const two = "NodeName=n[1-4] Gres=gpu:2 State=UNKNOWN\n"
	for name, tt := range map[string]struct{ slurm, gres, want string }{
		"one run":              {two, "Name=gpu File=/dev/nvidia[0-1]\n", "{2 [[/dev/nvidia0] [/dev/nvidia1]] }"},
		"of this node":         {two, "NodeName=n2 Name=gpu File=/dev/nvidia7\nNodeName=n1 Name=gpu File=/dev/nvidia[1,0]\n", "{2 [[/dev/nvidia1] [/dev/nvidia0]] }"},
		"beside shards":        {"NodeName=n1 Gres=gpu:2,shard:8\n", "Name=gpu File=/dev/nvidia[0-1]\nName=shard Count=8\n", "{2 [[/dev/nvidia0] [/dev/nvidia1]] }"},
		"found by NVML":        {two, "AutoDetect=NVML\n", "{2 [] nvml}"},
		"found by nvidia":      {two, "NodeName=n1 AutoDetect=nvidia\n", "{2 [] nvidia}"},
		"not found":            {two, "AutoDetect=off\n", ""},
		"by another vendor":    {two, "AutoDetect=rsmi\n", ""},
		"found and named":      {two, "AutoDetect=nvml\nName=gpu File=/dev/nvidia[0-1]\n", ""},
		"two lines":            {two, "Name=gpu File=/dev/nvidia1\nName=gpu File=/dev/nvidia0\n", ""},
		"a type in slurm.conf": {"NodeName=n1 Gres=gpu:a:2\n", "Name=gpu File=/dev/nvidia[0-1]\n", ""},
		"a type without count": {"NodeName=n1 Gres=gpu:a\n", "Name=gpu File=/dev/nvidia0\n", ""},
		"two kinds":            {"NodeName=n1 Gres=gpu:1,gpu:1\n", "Name=gpu File=/dev/nvidia[0-1]\n", ""},
		"a type in gres.conf":  {two, "Name=gpu Type=a File=/dev/nvidia[0-1]\n", ""},
		"fewer files":          {two, "Name=gpu File=/dev/nvidia0\n", ""},
		"parts":                {two, "Name=gpu MultipleFiles=/dev/nvidia0,/dev/nvidia1\n", ""},
		"an unread file":       {two, "Name=gpu File=/dev/nvidia[0-1]\nInclude more\n", ""},
		"nodes not understood": {two, "NodeName=n[1 Name=gpu File=/dev/nvidia[0-1]\n", ""},
		"no node":              {"NodeName=m1 Gres=gpu:2\n", "Name=gpu File=/dev/nvidia[0-1]\n", ""},
		"no gres.conf":         {two, "-", ""},
	} {
		got, err := Simple(file("slurm.conf", tt.slurm), file("gres.conf", tt.gres), "n1")
		if (err != nil) != (tt.want == "") || err == nil && fmt.Sprint(got) != tt.want {
			t.Errorf("%s: %v, %v; want %q", name, got, err, tt.want)
		}
	}
}

func TestDeviceFiles(t *testing.T) {
	for list, want := range map[string]string{
		"/dev/nvidia0": "[/dev/nvidia0]", "/dev/nvidia[0-2,5],/dev/x": "[/dev/nvidia0 /dev/nvidia1 /dev/nvidia2 /dev/nvidia5 /dev/x]",
		"/dev/n[08-10]b": "[/dev/n08b /dev/n09b /dev/n10b]", "/dev/n[2-1]": "[/dev/n[2-1]]", "/dev/n[0-999]": "[/dev/n[0-999]]", "": "[]",
	} {
		if got := fmt.Sprint(DeviceFiles(list)); got != want {
			t.Errorf("%q: %s, want %s", list, got, want)
		}
	}
}

func TestCount(t *testing.T) {
	for list, want := range map[string]string{
		"gpu:4": "4 1 false", "gpu:h100:4(S:0-1),shard:8": "4 1 true", "gpu:a:2,gpu:b:1(S:0,1)": "3 2 true", "gpu": "1 1 false", "gpu:a": "1 1 true",
		"": "0 0 false", "shard:4": "0 0 false",
	} {
		if n, kinds, typed := Count(list); fmt.Sprint(n, kinds, typed) != want {
			t.Errorf("%q: %d, %d, %v; want %s", list, n, kinds, typed, want)
		}
	}
}

// What is listed has files, as many GPUs as its counts say, and the same meaning behind every prefix.
func FuzzParseListed(f *testing.F) {
	texts, err := filepath.Glob("testdata/slurmd/*")
	if err != nil || len(texts) == 0 {
		f.Fatal(texts, err)
	}
	for _, name := range texts {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Add("Gres Name=gpu Count=2 File=/dev/nvidia[0-1\nGres Name=gpu Type= Count=1 File=,")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ParseListed(text)
		if err != nil {
			if got != nil {
				t.Errorf("%v and %v", got, err)
			}
			return
		}
		if len(got) > maxGPUs || slices.ContainsFunc(got, func(g GPU) bool { return len(g) == 0 }) {
			t.Errorf("%v", got)
		}
		if again, err := ParseListed("Gres Name=shard Count=4 x\n" + text); err != nil || !reflect.DeepEqual(again, got) {
			t.Errorf("behind a line of shards: %v, %v; want %v", again, err, got)
		}
	})
}

// Counting a list of Gres never gives GPUs without an element that names them.
func FuzzCount(f *testing.F) {
	f.Add("gpu:h100:4(S:0-1),gpu:2,shard:8", "/dev/nvidia[0-3]")
	f.Add("gpu", "/dev/nvidia[0-,]")
	f.Fuzz(func(t *testing.T, gres, devices string) {
		if n, kinds, typed := Count(gres); kinds == 0 && (n != 0 || typed) || kinds > strings.Count(gres, ",")+1 {
			t.Errorf("%q: %d, %d, %v", gres, n, kinds, typed)
		}
		if all := DeviceFiles(devices); len(all) > (maxMinor+1)*(strings.Count(devices, ",")+1) {
			t.Errorf("%q: %d files", devices, len(all))
		}
	})
}
