package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A library that tests cards must be there, and root's alone, as the driver's own is.
func TestConfigCheckCUDALibrary(t *testing.T) {
	for name, tt := range map[string]struct {
		library func(t *testing.T, path string) // nil: none is configured
		exit    int
		says    string // all there is of it
		verdict string
	}{
		"none configured": {},
		"there": {library: func(t *testing.T, path string) { write(t, path, "", 0o644) },
			says: "checked: LIB: there; only root can write it and the folders above it\n"},
		"missing": {library: func(*testing.T, string) {},
			says: "nvidia.cuda_library: stat LIB: no such file or directory: no card will be tested\n"},
		"a folder": {library: func(t *testing.T, path string) { must(t, os.Mkdir(path, 0o755)) },
			says: "nvidia.cuda_library: LIB: not a file: no card will be tested\n"},
		"anybody's": {library: func(t *testing.T, path string) { write(t, path, "", 0o666) }, exit: exitTrouble,
			says:    "BKD-BK-REFUSED: check \"LIB\": not trusted: mode 0666 lets others write\n",
			verdict: "configuration is valid, but the hooks would test no card\n"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, config := home(t)
			path := filepath.Join(dir, "libcuda.so.1")
			if tt.library != nil {
				tt.library(t, path)
				write(t, config, valid(dir)+"nvidia: {cuda_library: "+path+"}\n", 0o644)
			}
			got := bookend(0, config, "config", "check")
			var of strings.Builder
			for line := range strings.Lines(got.out) {
				if strings.Contains(line, "libcuda") {
					of.WriteString(line)
				}
			}
			if want := strings.ReplaceAll(tt.says, "LIB", path); of.String() != want || got.exit != tt.exit || !strings.HasSuffix(got.out, tt.verdict) {
				t.Errorf("%+v, want of the library %q", got, want)
			}
		})
	}
}

// What cannot be read is said with what follows; it makes no configuration wrong.
func TestConfigCheckKernelLog(t *testing.T) {
	const follows = ": Xids are not seen, and a start trusts no earlier test\n"
	for name, tt := range map[string]struct {
		log  func(t *testing.T, path string)
		look string
		euid int
		says string // all there is of it
	}{
		"readable": {log: func(t *testing.T, path string) { write(t, path, "6,1,1000000,-;Linux version 6.1\n", 0o600) },
			says: "checked: LOG: the kernel's log can be read\n"},
		"missing": {says: "kernel log: cannot be read: open \"LOG\": no such file or directory" + follows},
		"a link": {log: func(t *testing.T, path string) { must(t, os.Symlink("/dev/null", path)) },
			says: "kernel log: cannot be read: open \"LOG\": too many levels of symbolic links" + follows},
		"empty":      {log: func(t *testing.T, path string) { write(t, path, "", 0o600) }, says: "kernel log: cannot be read: the kernel's log is empty" + follows},
		"not wanted": {look: "look: {kernel_log: false}\n"},
		"not root":   {euid: 1000, says: "not checked: LOG: run as root\n"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, config := home(t)
			path := filepath.Join(dir, "kmsg")
			if tt.log != nil {
				tt.log(t, path)
			}
			write(t, config, strings.Replace(valid(dir), "paths: {", "paths: {dev: "+dir+", ", 1)+tt.look, 0o644)
			got := bookend(tt.euid, config, "config", "check")
			var of strings.Builder
			for line := range strings.Lines(got.out) {
				if strings.Contains(line, "kmsg") || strings.Contains(line, "kernel") {
					of.WriteString(line)
				}
			}
			if want := strings.ReplaceAll(tt.says, "LOG", path); of.String() != want || got.exit != exitOK {
				t.Errorf("%+v, want of the log %q", got, want)
			}
		})
	}
}

// The hooks make no folder for the metrics but that of paths.var.
func TestConfigCheckTextfile(t *testing.T) {
	for name, tt := range map[string]struct{ file, says string }{
		"in paths.var":    {"DIR/var/bookend.prom", ""},
		"a folder there":  {"DIR/bookend.prom", ""},
		"none":            {"", ""},
		"no folder":       {"DIR/none/bookend.prom", "metrics.textfile: stat DIR/none: no such file or directory: no metrics will be written (BKD-ST-WRITE); the hooks do not make that folder\n"},
		"below some file": {"DIR/gpu/bookend.prom", "metrics.textfile: DIR/gpu: not a folder: no metrics will be written (BKD-ST-WRITE)\n"},
	} {
		dir, config := home(t)
		write(t, config, valid(dir)+strings.ReplaceAll("metrics: {textfile: \""+tt.file+"\"}\n", "DIR", dir), 0o644)
		got, said := bookend(0, config, "config", "check"), ""
		for line := range strings.Lines(got.out) {
			if strings.HasPrefix(line, "metrics") {
				said += line
			}
		}
		if want := strings.ReplaceAll(tt.says, "DIR", dir); said != want || got.exit != exitOK {
			t.Errorf("%s: %+v, want of it %q", name, got, want)
		}
	}
}

// What of the GPUs' order has no effect, or leaves GPUs out, is a line of its own; the configuration stays valid.
func TestConfigCheckGPUOrder(t *testing.T) {
	const two, lacks = `0: "0000:1b:00.0", 1: "0000:3d:00.0"`, "nvidia.gpu_map: has %s GPU numbers of node n1 in slurm.conf; number %d is missing: a job with such a GPU is not judged (BKD-AMBIGUOUS), unless Slurm names it by UUID\n"
	for name, tt := range map[string]struct{ order, gpus, slurm, says string }{
		"auto":              {"auto", "", "NodeName=n1 Gres=gpu:2", ""},
		"pci":               {"pci", "", "NodeName=n1 Gres=gpu:2", "nvidia.gpu_order: pci has no effect: it means auto\n"},
		"minor":             {"minor", "", "", "nvidia.gpu_order: minor has no effect: it means auto\n"},
		"whole map":         {"map", two, "NodeName=n[1-2] Gres=gpu:h200:2", ""},
		"longer map":        {"map", two, "NodeName=n1 Gres=gpu:1", ""},
		"too short":         {"map", two, "NodeName=n1 Gres=gpu:a:3,gpu:b:1,shard:8", fmt.Sprintf(lacks, "2 of the 4", 2)},
		"a gap":             {"map", `0: GPU-a, 5: GPU-b`, "NodeName=n1 Gres=gpu:2", fmt.Sprintf(lacks, "1 of the 2", 1)},
		"the same twice":    {"map", `0: "0000:3d:00.0", 1: "00000000:3D:00.0"`, "NodeName=n1 Gres=gpu:2", "nvidia.gpu_map.1: is the same GPU as index 0\n"},
		"another node":      {"map", two, "NodeName=n2 Gres=gpu:4", ""},
		"node not certain":  {"map", two, "Include gone.conf\nNodeName=n1\nNodeName=n2 Gres=gpu:4", ""},
		"no slurm.conf":     {"map", two, "", ""},
		"shards configured": {"map", two + "}\nslurm: {shards: \"no\"", "NodeName=n1 Gres=gpu:4", fmt.Sprintf(lacks, "2 of the 4", 2)},
	} {
		t.Run(name, func(t *testing.T) {
			dir, config := home(t)
			write(t, config, valid(dir)+"nvidia:\n  gpu_order: "+tt.order+"\n  gpu_map: {"+tt.gpus+"}\n", 0o644)
			slurmConf := filepath.Join(dir, "slurm.conf")
			if tt.slurm != "" {
				write(t, slurmConf, tt.slurm+"\n", 0o644)
			}
			got, said := bookendWith(slurmConf, config, "config", "check", "--node", "n1"), ""
			for line := range strings.Lines(got.out) {
				if strings.HasPrefix(line, "nvidia.gpu_") {
					said += line
				}
			}
			if said != tt.says || got.exit != exitOK {
				t.Errorf("%+v, want of it %q", got, tt.says)
			}
		})
	}
}
