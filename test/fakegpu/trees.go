package fakegpu

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"bookend/internal/nodefiles"
	"bookend/test/rig"
)

// Virtual consoles can be opened and held by anybody who may open their node, as a driver's nodes can; major 195
// without a driver cannot. These minors are far from the consoles anybody uses.
const (
	consoleMajor   = 4
	firstConsole   = 40 // card with device minor 0
	cardConsoles   = 16 // then the next cards share them: who has which card open, the node's name tells
	controlConsole = 57
	uvmConsole     = 58
)

// render makes dev, proc-driver and sys show what the settings say.
func (w *World) render(s settings) {
	w.node("nvidiactl", controlConsole)
	w.node("nvidia-uvm", uvmConsole)
	w.renderModule(s)
	gpus := filepath.Join(w.DriverProc(), "gpus")
	present := map[string]bool{}
	for gpu := range s.cards() {
		minor := rig.Have(strconv.Atoi(s[gpuKey(gpu, "minor")]))
		bus := s[gpuKey(gpu, "bus")]
		present[bus] = true
		w.node(fmt.Sprintf("nvidia%d", minor), firstConsole+minor%cardConsoles)
		update(filepath.Join(gpus, bus, "information"), information(s, gpu))
	}
	entries, _ := os.ReadDir(gpus)
	for _, e := range entries {
		if !present[e.Name()] {
			rig.Try(os.RemoveAll(filepath.Join(gpus, e.Name())))
		}
	}
}

// node makes a device node, or a plain file where that is not to be had.
func (w *World) node(name string, minor int) {
	path := filepath.Join(w.Dev(), name)
	if _, err := os.Lstat(path); err == nil {
		return
	}
	device := int(unix.Mkdev(consoleMajor, uint32(minor)))
	if unix.Mknod(path, unix.S_IFCHR|0o666, device) == nil && os.Chmod(path, 0o666) == nil && opens(path) {
		return
	}
	os.Remove(path)
	rig.Try(os.WriteFile(path, nil, 0o666))
	rig.Try(os.Chmod(path, 0o666))
}

// bootLines are the kernel's log of a fake node, as /dev/kmsg gives it: what it says of itself.
const bootLines = "6,1,1000000,-;Linux version fake\n6,2,1000100,-;Command line: quiet\n"

// logKernel gives the node a kernel log, once: what becomes of it is the tests' to say. A file is read as the device
// is.
func (w *World) logKernel() { rig.Try(os.WriteFile(w.KernelLog(), []byte(bootLines), 0o600)) }

// KernelLog stands for /dev/kmsg.
func (w *World) KernelLog() string { return filepath.Join(w.Dev(), "kmsg") }

func opens(path string) bool {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
	}
	return err == nil
}

// information is a card's file in the driver's own format, spaces and tabs included.
func information(s settings, gpu int) string {
	lines := []string{
		"Model: \t\t " + s[gpuKey(gpu, "name")],
		fmt.Sprintf("IRQ:   \t\t %d", 180+gpu),
		"GPU UUID: \t " + s[gpuKey(gpu, "uuid")],
		"Video BIOS: \t 96.00.d3.00.02",
		"Bus Type: \t PCIe",
		"DMA Size: \t 52 bits",
		"DMA Mask: \t 0xfffffffffffff",
		"Bus Location: \t " + s[gpuKey(gpu, "bus")],
		"Device Minor: \t " + s[gpuKey(gpu, "minor")],
		"GPU Firmware: \t " + s["driver_version"],
		"GPU Excluded:\t " + map[string]string{"": "No", "1": "Yes"}[s[gpuKey(gpu, "excluded")]],
	}
	return strings.Join(lines, "\n") + "\n"
}

func (w *World) renderModule(s settings) {
	// everything but the modules leads to the real /sys
	for _, name := range []string{"bus", "class", "devices", "fs", "kernel"} {
		if err := os.Symlink(filepath.Join("/sys", name), filepath.Join(w.Sys(), name)); !errors.Is(err, fs.ErrExist) {
			rig.Try(err)
		}
	}
	version := fmt.Sprintf("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  %s  Release Build  "+
		"(dvs-builder@U22-I3-B17-02-5)  Tue Jan  6 20:54:18 UTC 2026\nGCC version:  gcc version 12.2.0 (Debian "+
		"12.2.0-14+deb12u1)\n", s["driver_version"])
	module := filepath.Join(w.Sys(), "module/nvidia")
	update(filepath.Join(w.DriverProc(), "version"), version)
	update(filepath.Join(module, "version"), s["driver_version"]+"\n")
	update(filepath.Join(module, "srcversion"), "4F2C9E61A07B3D58E1B7C20\n")
	update(filepath.Join(module, "initstate"), "live\n")
	update(filepath.Join(module, "refcnt"), "3\n")
}

// update writes a file only if it says something else: what identifies a loaded module must not change by itself.
func update(path, content string) {
	if old, err := os.ReadFile(path); err == nil && string(old) == content {
		return
	}
	rig.Try(os.MkdirAll(filepath.Dir(path), 0o755))
	rig.Try(rig.Write(path, []byte(content), 0o644))
}

// Slurm writes into a new directory what Slurm has to say of a world's GPUs: slurm.conf and gres.conf of a node that
// gives out all of them, sorted by minor, and a slurmd that lists them as version 24.11 does. It returns the keys for
// the slurm section of a configuration.
func (w *World) Slurm(dir, node string) (keys string, err error) {
	cards, err := nodefiles.Read(w.DriverProc(), "")
	if err != nil {
		return "", err
	}
	minors := map[int]bool{}
	for _, c := range cards {
		if c.Device.Minor != nil && !c.Excluded {
			minors[*c.Device.Minor] = true
		}
	}
	var files []string
	var list strings.Builder
	for n := range 256 {
		if minors[n] {
			files = append(files, fmt.Sprint(n))
			fmt.Fprintf(&list, "slurmd: Gres Name=gpu Type=(null) Count=1 Index=%d ID=7696487 File=/dev/nvidia%d "+
				"Links=(null) Flags=HAS_FILE,ENV_NVML\n", n, n)
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	for name, text := range map[string]string{
		"slurm.conf": fmt.Sprintf("ClusterName=lab\nGresTypes=gpu\nSlurmdPidFile=%s/slurmd.pid\nNodeName=%s "+
			"Gres=gpu:%d State=UNKNOWN\n", dir, node, len(files)),
		"gres.conf": fmt.Sprintf("Name=gpu File=/dev/nvidia[%s]\n", strings.Join(files, ",")),
		"slurmd":    "#!/bin/sh\ncat >&2 <<'end'\n" + list.String() + "end\n",
	} {
		if err := rig.Write(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("gres_conf: %[1]s/gres.conf, slurmd: %[1]s/slurmd", dir), nil
}
