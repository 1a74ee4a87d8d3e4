package nodefiles

import (
	"cmp"
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

type node struct {
	id    string // gpu_id, its name in the files of processes
	bus   gpu.BusID
	minor int    // of its render node
	apu   bool   // it includes CPU cores, and uses their memory
	uuid  uint64 // 0 if the GPU has none
}

func nodesOf(sys string) (all []node, err error) {
	root := filepath.Join(sys, "class/kfd/kfd/topology/nodes")
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list KFD's nodes: %w", err)
	}
	for _, entry := range entries {
		id, err := read(root, entry.Name(), "gpu_id")
		text, errText := read(root, entry.Name(), "properties")
		if err = cmp.Or(err, errText); err != nil {
			return nil, fmt.Errorf("list KFD's nodes: %w", err)
		}
		if n := parseProperties(text); id != "0" { // 0 is a CPU's
			n.id = id
			all = append(all, n)
		}
	}
	return all, nil
}

// parseProperties parses a node's "key value" lines. location_id is bus, device and function on the PCI bus.
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

type AMDDevice struct {
	gpu.Device
	Key      string // KFD's gpu_id, or the bus id without KFD
	Dir      string // of its PCI device
	Unjudged string // why its memory does not show what a job left; empty if it does
	Host     bool   // part of a processor, not a GPU of its own
}

// AMD lists the devices of AMD's driver that jobs can be given, in order of bus id and render node: each GPU, or its
// partitions if it has several. It reads only the kernel's files and calls no device.
func AMD(sys string) (all []AMDDevice, err error) {
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

// amdDevices returns a GPU, or its partitions if KFD has several nodes at its bus id.
func amdDevices(dir string, bus gpu.BusID, own []node) (all []AMDDevice) {
	whole := AMDDevice{Key: string(bus), Dir: dir,
		Device: gpu.Device{ID: identity(dir, bus, own), BusID: bus, Vendor: gpu.AMD.Name}}
	whole.Name, _ = read(dir, "product_name")
	if minor, ok := renderNode(dir); ok {
		whole.Minor = &minor
	}
	if len(own) == 1 {
		whole.Key = own[0].id
		whole.Host = own[0].apu
		if whole.Host {
			whole.Unjudged = "the GPU shares the host's memory (APU)"
		}
	}
	if len(own) < 2 {
		return []AMDDevice{whole}
	}
	for _, n := range own {
		part := AMDDevice{Key: n.id, Dir: dir,
			Unjudged: "a partition: its driver tells the memory of the whole GPU alone"}
		part.Device = gpu.Device{ID: whole.ID + gpu.ID(fmt.Sprintf("/renderD%d", n.minor)), Parent: whole.ID,
			Minor: &n.minor, Name: whole.Name, Vendor: gpu.AMD.Name}
		all = append(all, part)
	}
	return all
}

// identity returns ROCm's name of a GPU, by its unique id, else by its bus id.
func identity(dir string, bus gpu.BusID, own []node) gpu.ID {
	if id := readWord(filepath.Join(dir, "unique_id")); len(id) == 16 && strings.Trim(id, "0123456789abcdef") == "" {
		return gpu.ID("GPU-" + id)
	}
	if len(own) > 0 && own[0].uuid != 0 {
		return gpu.ID(fmt.Sprintf("GPU-%016x", own[0].uuid))
	}
	return gpu.ID("PCI-" + bus)
}

func renderNode(dir string) (minor int, ok bool) {
	entries, _ := os.ReadDir(filepath.Join(dir, "drm"))
	for _, e := range entries {
		if minor, ok = gpu.ParseMinor(e.Name(), gpu.AMD.Nodes.Card); ok {
			return minor, true
		}
	}
	return 0, false
}

// AMDDriver is where the kernel shows AMD's driver: the paths of /proc and /sys.
type AMDDriver struct{ Proc, Sys string }

func number(parts ...string) (uint64, error) {
	text, err := read(parts...)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read %q: %.40q is not a number", filepath.Join(parts...), text)
	}
	return n, nil
}

func (d AMDDriver) Loaded() bool { return loaded(d.Sys, &gpu.AMD) }

func (d AMDDriver) Version() string { return version(d.Proc, d.Sys, &gpu.AMD) }

// KnownBadAMD describes the problem of module versions that are known not to release memory.
var KnownBadAMD = map[string]string{
	"6.16.6": "amdgpu 6.16.6, of ROCm 7.1, is known to keep memory of dma-bufs when their programs have ended, until " +
		"the node is rebooted: ROCm 7.2 is mended (ROCm/rocm-systems#8263)",
}

func (c AMDDevice) Memory() gpu.Memory {
	if c.Parent != "" {
		no := gpu.Unknown(c.Unjudged)
		return gpu.Memory{Total: no, Reserved: no, Used: no, Free: no, Unjudged: c.Unjudged}
	}
	total, err := number(c.Dir, "mem_info_vram_total")
	used, errUsed := number(c.Dir, "mem_info_vram_used")
	if err = cmp.Or(err, errUsed); err == nil && used > total {
		err = fmt.Errorf("mem_info_vram_used: %d bytes of %d", used, total)
	}
	m := gpu.Memory{Reserved: gpu.Unknown("the driver does not tell"), Unjudged: c.Unjudged}
	m.Total, m.Used, m.Free = gpu.Bytes(total), gpu.Bytes(used), gpu.Bytes(total-used)
	if err != nil {
		m.Total, m.Used, m.Free = gpu.Unknown(err.Error()), gpu.Unknown(err.Error()), gpu.Unknown(err.Error())
	}
	return m
}

// Read takes one sample of a GPU, given the processes on it.
func (c AMDDevice) Read(on map[int]gpu.Process, unknown string) (gpu.Reading, []gpu.Fault) {
	r := gpu.Reading{Device: c.Device, Memory: c.Memory(), Processes: []gpu.Process{}, ProcessesUnknown: unknown}
	var sum uint64
	for _, p := range on {
		r.Processes, sum = append(r.Processes, p), sum+p.Memory.Bytes
	}
	if m := &r.Memory; m.Used.Known() { // what no process accounts for, up to OwnShareAMD, is the driver's own
		own := min(OwnShareAMD, m.Used.Bytes-min(m.Used.Bytes, sum))
		m.Reserved, m.Used = gpu.Bytes(own), gpu.Bytes(m.Used.Bytes-own)
	}
	if used := r.Memory.Used; c.Parent == "" && used.Known() && sum > used.Bytes+apart {
		for i := range r.Processes { // a KFD entry may outlive its memory (ROCm/amdgpu#114)
			const why = "processes count %d MiB, the GPU %d MiB"
			r.Processes[i].Memory = gpu.Unknown(fmt.Sprintf(why, sum>>20, used.Bytes>>20))
		}
	}
	slices.SortFunc(r.Processes, func(a, b gpu.Process) int { return a.PID - b.PID })
	if busy, err := number(c.Dir, "gpu_busy_percent"); err == nil && busy <= 100 {
		memory, _ := number(c.Dir, "mem_busy_percent")
		r.Busy = &gpu.Busy{GPU: int(busy), Memory: int(min(memory, 100))}
	}
	if r.Memory.Used.Known() || c.Parent != "" {
		return r, nil
	}
	return r, []gpu.Fault{{Code: gpu.FaultDriver, Device: c.ID, BusID: c.BusID, Detail: r.Memory.Used.Unknown}}
}

// OwnShareAMD is what the driver may keep for itself, in bytes. It reports no figure; idle GPUs show some 300 MiB.
const OwnShareAMD = 512 << 20

// Health returns a GPU's condition: the errors that RAS counted in its memory since the driver was loaded.
func (c AMDDevice) Health() gpu.Health {
	const source = "ras/umc_err_count"
	h := gpu.Health{Device: c.ID, Facts: []gpu.Fact{}}
	text, err := read(c.Dir, source)
	if err != nil {
		return h // most GPUs have no RAS
	}
	f := gpu.Fact{Code: gpu.ECCUncorrected, Source: source, Unknown: fmt.Sprintf("%.60q", text)}
	for line := range strings.Lines(text) {
		if count, ok := strings.CutPrefix(strings.TrimSpace(line), "ue: "); ok {
			if _, err := strconv.ParseUint(count, 10, 64); err == nil {
				f.Value, f.Unknown = count, ""
			}
		}
	}
	h.Facts = append(h.Facts, f)
	return h
}
