package inventory

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"bookend/internal/gpu"
)

// node is a device as KFD has it: a whole card, or a partition of one.
type node struct {
	id    string // gpu_id, which names it in the files of processes
	bus   gpu.BusID
	minor int    // of its render node
	apu   bool   // it has processors of the host, and their memory
	uuid  uint64 // 0 where the card has none
}

// nodesOf are KFD's, nothing where the kernel has no KFD.
func nodesOf(sys string) (all []node, err error) {
	root := filepath.Join(sys, "class/kfd/kfd/topology/nodes")
	folders, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list KFD's nodes: %w", err)
	}
	for _, folder := range folders {
		id, err := read(filepath.Join(root, folder.Name(), "gpu_id"))
		if err != nil {
			return nil, fmt.Errorf("list KFD's nodes: %w", err)
		}
		if id = strings.TrimSpace(id); id == "0" { // processors
			continue
		}
		text, err := read(filepath.Join(root, folder.Name(), "properties"))
		if err != nil {
			return nil, fmt.Errorf("list KFD's nodes: %w", err)
		}
		n := parseProperties(text)
		n.id = id
		all = append(all, n)
	}
	return all, nil
}

// parseProperties reads the lines "key value" of a node. location_id is bus, device and function as on the bus.
func parseProperties(text string) (n node) {
	values := map[string]uint64{}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if v, err := strconv.ParseUint(value, 10, 64); err == nil {
			values[key] = v
		}
	}
	at := values["location_id"]
	n.bus = gpu.BusID(fmt.Sprintf("%04x:%02x:%02x.%x", values["domain"], at>>8&0xff, at>>3&0x1f, at&7))
	n.minor, n.uuid = int(values["drm_render_minor"]), values["unique_id"]
	n.apu = values["cpu_cores_count"] > 0 && values["simd_count"] > 0
	return n
}

type AMDCard struct {
	gpu.Device
	Key      string // KFD's gpu_id; without KFD its place on the bus
	Folder   string // its PCI device's
	Unjudged string // why its memory says nothing of what a job left; empty where it does
	Host     bool   // it is part of a processor: no card
}

// AMD lists the devices of AMD's driver that jobs can be given, in order of bus id and render node: each card, or the
// partitions of one that is partitioned. It reads what the kernel shows of them in files: no device is asked.
func AMD(sys string) (all []AMDCard, err error) {
	root := filepath.Join(sys, "bus/pci/drivers", gpu.AMD.Module)
	entries, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list GPUs: %w", err)
	}
	if len(entries) == 0 {
		return nil, nil
	}
	nodes, err := nodesOf(sys)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		bus, err := gpu.ParseBusID(entry.Name())
		if err != nil { // bind, module, new_id and the like
			continue
		}
		own := slices.DeleteFunc(slices.Clone(nodes), func(n node) bool { return n.bus != bus })
		slices.SortFunc(own, func(a, b node) int { return a.minor - b.minor })
		all = append(all, amdDevices(filepath.Join(sys, "bus/pci/devices", entry.Name()), bus, own)...)
	}
	return all, nil
}

// amdDevices are a card, or its partitions: KFD then has several nodes at one place on the bus.
func amdDevices(folder string, bus gpu.BusID, own []node) (all []AMDCard) {
	whole := AMDCard{Key: string(bus), Folder: folder,
		Device: gpu.Device{ID: identity(folder, bus, own), BusID: bus, Vendor: gpu.AMD.Name}}
	name, _ := read(filepath.Join(folder, "product_name"))
	whole.Name = strings.TrimSpace(name)
	if minor, ok := renderNode(folder); ok {
		whole.Minor = &minor
	}
	if len(own) == 1 {
		whole.Key = own[0].id
		if whole.Host = own[0].apu; whole.Host {
			whole.Unjudged = "the GPU shares the host's memory (APU)"
		}
	}
	if len(own) < 2 {
		return []AMDCard{whole}
	}
	for _, n := range own {
		part := AMDCard{Key: n.id, Folder: folder,
			Unjudged: "a partition: its driver tells the memory of the whole GPU alone"}
		part.Device = gpu.Device{ID: whole.ID + gpu.ID(fmt.Sprintf("/renderD%d", n.minor)), Parent: whole.ID,
			Minor: &n.minor, Name: whole.Name, Vendor: gpu.AMD.Name}
		all = append(all, part)
	}
	return all
}

// identity is ROCm's name of a card, by its unique id, else its place on the bus.
func identity(folder string, bus gpu.BusID, own []node) gpu.ID {
	if id := readWord(filepath.Join(folder, "unique_id")); len(id) == 16 && strings.Trim(id, "0123456789abcdef") == "" {
		return gpu.ID("GPU-" + id)
	}
	if len(own) > 0 && own[0].uuid != 0 {
		return gpu.ID(fmt.Sprintf("GPU-%016x", own[0].uuid))
	}
	return gpu.ID("PCI-" + bus)
}

func renderNode(folder string) (minor int, ok bool) {
	entries, _ := os.ReadDir(filepath.Join(folder, "drm"))
	for _, e := range entries {
		if minor, ok = gpu.ParseMinor(e.Name(), gpu.AMD.Nodes.Card); ok {
			return minor, true
		}
	}
	return 0, false
}
