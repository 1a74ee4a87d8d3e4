// Package nodefiles reads what the kernel shows of the node's GPUs in files: which there are, the driver's epoch, the
// use of AMD's GPUs, and the kernel log. It loads no vendor library and attaches no GPU. A read of the driver's /proc
// can still block as long as the driver does, and the log may be large, so hooks run this package in a child.
package nodefiles

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"bookend/internal/child"
	"bookend/internal/gpu"
)

// ErrNoDriver means that a vendor's driver shows no GPU. NVIDIA's has no /proc tree while no module is loaded.
var ErrNoDriver = errors.New("the driver is not loaded, or has no GPU")

// Read lists the GPUs of the vendors that are Present, NVIDIA's first. It returns ErrNoDriver if a driver shows none
// but should, and nothing if driverProc (/proc/driver/nvidia) is empty: then the backends must be asked.
func Read(driverProc, sys string) (cards []gpu.Physical, err error) {
	if driverProc == "" {
		return nil, nil
	}
	present := Present(sys)
	if present[0] == &gpu.NVIDIA {
		cards, err = readNVIDIA(driverProc)
	}
	if err != nil || present[len(present)-1] != &gpu.AMD {
		return cards, err
	}
	all, err := AMD(sys)
	for _, c := range all {
		if !c.Host || present[0] != &gpu.NVIDIA {
			cards = append(cards, gpu.Physical{Device: c.Device})
		}
	}
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("amdgpu: %w", ErrNoDriver)
	}
	return cards, err
}

// Present returns the vendors of the node's GPUs, NVIDIA if unknown. AMD's integrated graphics count only if alone.
func Present(sys string) (all []*gpu.Vendor) {
	amd, _ := AMD(sys)
	nvidia, _ := onBus(sys, &gpu.NVIDIA)
	other, _ := onBus(sys, &gpu.AMD)
	if nvidia || loaded(sys, &gpu.NVIDIA) || len(amd) == 0 && !other {
		all = append(all, &gpu.NVIDIA)
	}
	if len(all) == 0 || slices.ContainsFunc(amd, func(c AMDDevice) bool { return !c.Host }) {
		all = append(all, &gpu.AMD)
	}
	return all
}

func loaded(sys string, v *gpu.Vendor) bool {
	_, err := os.Stat(filepath.Join(sys, "module", v.Module))
	return err == nil
}

// readNVIDIA lists the GPUs below driverProc by bus id, unreadable ones too: leaving one out would shift the numbers.
func readNVIDIA(driverProc string) ([]gpu.Physical, error) {
	root := filepath.Join(driverProc, "gpus")
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("nvidia: %w", ErrNoDriver)
	}
	if err != nil {
		return nil, fmt.Errorf("list GPUs: %w", err)
	}
	cards := make([]gpu.Physical, 0, len(entries))
	for _, entry := range entries { // in order of name
		bus, err := gpu.ParseBusID(entry.Name())
		if err != nil {
			return nil, fmt.Errorf("list GPUs: %w", err)
		}
		text, err := read(filepath.Join(root, entry.Name(), "information"))
		card := parseInformation(text, bus)
		if err != nil {
			card.Unknown = err.Error()
		}
		cards = append(cards, card)
	}
	return cards, nil
}

// maxFile is larger than any kernel file that is read whole; the largest, a GPU's, has some 600 bytes.
const maxFile = 4 << 10

// read returns the text of a kernel file without surrounding space.
// Threat: a driver in trouble may answer without end, and a configured path may lead to a pipe or be a link.
func read(parts ...string) (string, error) {
	path := filepath.Join(parts...)
	fd, err := openFile(path)
	if err != nil {
		return "", fmt.Errorf("read %q: %w", path, err)
	}
	file := os.NewFile(uintptr(fd), path)
	defer file.Close()
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		return "", fmt.Errorf("read %q: not a regular file", path)
	}
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(text) > maxFile {
		return "", fmt.Errorf("read %q: more than %d bytes", path, maxFile)
	}
	return strings.TrimSpace(string(text)), err
}

// list returns the names in a kernel directory, in no order. On a node with many processes there are thousands.
func list(parts ...string) ([]string, error) {
	dir, err := os.Open(filepath.Join(parts...))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.Readdirnames(-1)
}

// parseInformation parses a GPU's information file. A line that is unknown or unreadable leaves its field unknown.
func parseInformation(text string, bus gpu.BusID) gpu.Physical {
	card := gpu.Physical{Device: gpu.Device{BusID: bus, Vendor: gpu.NVIDIA.Name}}
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(key) {
		case "Model":
			card.Device.Name = value
		case "GPU UUID":
			card.Device.ID = parseUUID(value)
		case "Device Minor":
			if minor, ok := gpu.ParseMinor(value, ""); ok {
				card.Device.Minor = &minor
			}
		case "GPU Excluded", "Blacklisted": // the second until driver 450
			card.Excluded = value == "Yes"
		}
	}
	if card.Excluded {
		card.Device.Minor = nil
	}
	return card
}

// parseUUID accepts only a complete UUID: until the driver has cached it, the line is absent or has question marks.
func parseUUID(s string) gpu.ID {
	const digits = len("00000000-0000-0000-0000-000000000000")
	rest, ok := strings.CutPrefix(s, "GPU-")
	if !ok || len(rest) != digits || strings.Trim(rest, "0123456789abcdef-") != "" {
		return ""
	}
	return gpu.ID(s)
}

// ReadEpoch returns the epoch of all vendors' drivers together. A part that cannot be read is empty.
func ReadEpoch(proc, sys string) gpu.Epoch {
	var versions, modules []string
	for _, v := range Present(sys) {
		versions = append(versions, version(proc, sys, v))
		modules = append(modules, moduleIdentity(filepath.Join(sys, "module", v.Module)))
	}
	joined := func(words []string) string {
		if slices.Contains(words, "") {
			return ""
		}
		return strings.Join(words, "+")
	}
	return gpu.Epoch{Boot: BootID(proc), Driver: joined(versions), Module: joined(modules)}
}

// BootID returns what names this boot of the machine, empty if it cannot be read.
func BootID(proc string) string { return readWord(filepath.Join(proc, "sys/kernel/random/boot_id")) }

// version returns that of a vendor's module. AMD's without one came with the kernel, and has the kernel's.
func version(proc, sys string, v *gpu.Vendor) string {
	own := readWord(filepath.Join(sys, "module", v.Module, "version"))
	if own == "" && v == &gpu.AMD {
		return readWord(filepath.Join(proc, "sys/kernel/osrelease"))
	}
	return own
}

// moduleIdentity distinguishes one load of the module from the next by the inode of its sysfs directory: sysfs creates
// that at each load and numbers directories in a cycle (since Linux 4.14), so the number of an unloaded module does not
// come back. On older kernels srcversion, a checksum of the sources, differs unless the same build is loaded again.
func moduleIdentity(dir string) string {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return ""
	}
	return fmt.Sprintf("%s@%d", readWord(filepath.Join(dir, "srcversion")), st.Ino)
}

// readWord reads a file of one line. Anything but one printable word is unknown.
func readWord(file string) string {
	text, _ := read(file)
	if strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return ""
	}
	return text
}

func hasGPU(sys string) (bool, error) {
	if present := Present(sys); present[len(present)-1] == &gpu.AMD {
		return true, nil
	}
	return onBus(sys, &gpu.NVIDIA)
}

// onBus reports whether a vendor's GPU is on the PCI bus. No driver is called, no device wakes up.
func onBus(sys string, v *gpu.Vendor) (bool, error) {
	root := filepath.Join(sys, "bus/pci/devices")
	devices, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // a machine may have no PCI bus
		return false, err
	}
	for _, d := range devices {
		dir := filepath.Join(root, d.Name())
		class := readWord(filepath.Join(dir, "class"))
		is := func(begins string) bool { return strings.HasPrefix(class, begins) }
		if readWord(filepath.Join(dir, "vendor")) == v.PCI && slices.ContainsFunc(v.Classes, is) {
			return true, nil
		}
	}
	return false, nil
}

// Request asks what the kernel and the driver show about themselves in files.
type Request struct {
	DriverProc string          `json:"driver_proc,omitempty"`
	Dev        string          `json:"dev,omitempty"`
	Proc       string          `json:"proc,omitempty"`
	Sys        string          `json:"sys"`
	Since      *gpu.KernelMark `json:"since,omitempty"`  // start in the kernel's log; nil for its newest entry only
	Before     *gpu.KernelMark `json:"before,omitempty"` // from there to Since, only errors of GPUs count
}

// Inventory has the GPUs that the driver lists in /proc, or the problem.
type Inventory struct {
	Cards    []gpu.Physical `json:"cards"`
	Epoch    gpu.Epoch      `json:"epoch"`
	NoDriver bool           `json:"no_driver,omitempty"`
	Problem  string         `json:"problem,omitempty"`
}

// ListGPUs lists the GPUs, and the epoch.
var ListGPUs = child.NewOperation("inventory", func(r Request) (Inventory, error) {
	list := Inventory{Epoch: ReadEpoch(r.Proc, r.Sys)}
	var err error
	list.Cards, err = Read(r.DriverProc, r.Sys)
	if err != nil {
		list.NoDriver, list.Problem = errors.Is(err, ErrNoDriver), err.Error()
	}
	return list, nil
})

// HasGPU reports whether a GPU is on the PCI bus (AMD's: with its driver), or NVIDIA's driver has a directory in /proc.
var HasGPU = child.NewOperation("present", func(r Request) (bool, error) {
	// Threat: none, nothing is opened.
	if _, err := os.Lstat(r.DriverProc); err == nil {
		return true, nil
	}
	return hasGPU(r.Sys)
})

// ReadKernel reads the kernel's log, a ring buffer of up to many megabytes, record by record, and the epoch.
var ReadKernel = child.NewOperation("kernel", func(r Request) (gpu.KernelLog, error) {
	log := ReadLog(r.Dev, r.Since, r.Before)
	log.Epoch = ReadEpoch(r.Proc, r.Sys)
	return log, nil
})
