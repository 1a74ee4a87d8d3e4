package nodefiles

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"bookend/internal/child"
	"bookend/internal/gpu"
)

type byPID = map[int]gpu.Process

// Users returns the processes on each device by the device's key, or why they are unknown. more reports whether KFD's
// figures leave so much of a GPU's memory that every process must be searched; otherwise only KFD's are.
func (d AMDDriver) Users(cards []AMDDevice, more func(AMDDevice, uint64) bool) (on map[string]byPID, unknown string) {
	on, err := d.computing()
	if err != nil {
		return nil, err.Error()
	}
	all := false
	known := map[int]bool{}
	for _, c := range cards {
		var sum uint64
		for pid, p := range on[c.Key] {
			sum, known[pid] = sum+p.Memory.Bytes, true
		}
		all = all || c.Parent == "" && c.Unjudged == "" && more(c, sum)
	}
	pids := slices.Collect(maps.Keys(known))
	if all {
		if pids, err = d.processes(); err != nil {
			return nil, err.Error()
		}
	}
	slices.Sort(pids)
	clients, err := d.clients(pids)
	if err != nil {
		return nil, err.Error()
	}
	for _, c := range cards {
		if c.Parent == "" { // all partitions of a GPU have its bus id
			on[c.Key] = bothTell(on[c.Key], clients[c.BusID])
		}
	}
	return on, ""
}

// computing returns KFD's processes by its gpu_id: those with memory or a queue. An open /dev/kfd proves nothing.
func (d AMDDriver) computing() (map[string]byPID, error) {
	root := filepath.Join(d.Sys, "class/kfd/kfd/proc")
	on := map[string]byPID{}
	entries, err := list(root)
	if errors.Is(err, fs.ErrNotExist) {
		return on, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list KFD's processes: %w", err)
	}
	for _, entry := range entries {
		pid, ok := parseOwner(entry)
		if !ok {
			continue
		}
		err := addContext(on, pid, filepath.Join(root, entry))
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // if it does not exist, it has ended
			return nil, fmt.Errorf("read KFD's process %d: %w", pid, err)
		}
	}
	return on, nil
}

// parseOwner returns the PID in the name of a process's directory: "PID", or "pid:PID-id:N" for a second context.
func parseOwner(name string) (pid int, ok bool) {
	if rest, second := strings.CutPrefix(name, "pid:"); second {
		name, _, _ = strings.Cut(rest, "-")
	}
	pid, ok = gpu.Decimal(name, gpu.MaxPID)
	return pid, ok && pid > 0
}

// addContext adds the data in one directory of a process, but not sdma_* and cu_occupancy, which take driver locks.
func addContext(on map[string]byPID, pid int, dir string) error {
	names, err := list(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		device, memory := strings.CutPrefix(name, "vram_")
		switch {
		case memory:
			bytes, err := number(dir, name)
			if err != nil {
				return err
			}
			if bytes > 0 {
				add(on, device, pid, bytes)
			}
		case strings.HasPrefix(name, "context_"):
			err = addContext(on, pid, filepath.Join(dir, name))
		case name == "queues":
			err = addQueues(on, pid, filepath.Join(dir, name))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func addQueues(on map[string]byPID, pid int, dir string) error {
	queues, err := list(dir)
	for _, q := range queues {
		if device, err := read(dir, q, "gpuid"); err == nil {
			add(on, device, pid, 0)
		}
	}
	return err
}

func add(on map[string]byPID, device string, pid int, bytes uint64) {
	if on[device] == nil {
		on[device] = byPID{}
	}
	p := on[device][pid]
	on[device][pid] = gpu.Process{PID: pid, Memory: gpu.Bytes(p.Memory.Bytes + bytes), Kinds: []gpu.Kind{gpu.Compute}}
}

func (d AMDDriver) processes() (pids []int, err error) {
	names, err := list(d.Proc)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	for _, name := range names {
		if pid, ok := gpu.Decimal(name, gpu.MaxPID); ok {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

type client struct {
	bus   gpu.BusID
	id    string // drm-client-id: the same in each descriptor of one opening, in any process
	bytes uint64 // of VRAM
}

// clients returns the VRAM of processes by the GPU's bus id. Each opening counts once, for its lowest PID.
func (d AMDDriver) clients(pids []int) (map[gpu.BusID]map[int]uint64, error) {
	opened, failed := make([][]client, len(pids)), make([]error, len(pids))
	threads := min(len(pids), runtime.GOMAXPROCS(0))
	_, err := child.Parallel(threads, func(first int) (none struct{}) {
		for i := first; i < len(pids); i += threads {
			opened[i], failed[i] = d.opened(pids[i])
		}
		return none
	})
	if err != nil {
		return nil, err
	}
	all, seen := map[gpu.BusID]map[int]uint64{}, map[string]bool{}
	for i, pid := range pids {
		if errors.Is(failed[i], fs.ErrPermission) {
			return nil, fmt.Errorf("look into process %d: %w", pid, failed[i])
		}
		for _, c := range opened[i] {
			if name := string(c.bus) + " " + c.id; !seen[name] {
				seen[name] = true
				if all[c.bus] == nil {
					all[c.bus] = map[int]uint64{}
				}
				all[c.bus][pid] += c.bytes
			}
		}
	}
	return all, nil
}

func (d AMDDriver) opened(pid int) (all []client, err error) {
	own := filepath.Join(d.Proc, strconv.Itoa(pid))
	links, err := os.Open(filepath.Join(own, "fd"))
	if err != nil {
		return nil, err
	}
	defer links.Close()
	names, err := links.Readdirnames(-1)
	for _, fd := range names {
		var target [256]byte // no path of a device node is longer
		n, err := unix.Readlinkat(int(links.Fd()), fd, target[:])
		// Threat: a process may name its own file like a node; what the kernel writes about that names no driver.
		if err != nil || n == len(target) || path.Base(path.Dir(string(target[:n]))) != gpu.AMD.Nodes.Folder {
			continue
		}
		if text, err := read(own, "fdinfo", fd); err == nil {
			if c, ok := parseClient(text); ok {
				all = append(all, c)
			}
		}
	}
	return all, err
}

// parseClient parses fdinfo. VRAM is "drm-resident-vram", else "drm-memory-vram" of older kernels, never the sum.
func parseClient(text string) (c client, ok bool) {
	resident := false
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch key {
		case "drm-driver":
			ok = value == gpu.AMD.Module
		case "drm-client-id":
			c.id = value
		case "drm-pdev":
			c.bus, _ = gpu.ParseBusID(value)
		case "drm-resident-vram", "drm-memory-vram":
			if bytes, known := parseSize(value); known && !resident {
				c.bytes, resident = bytes, key == "drm-resident-vram"
			}
		}
	}
	return c, ok && c.id != "" && c.bus != ""
}

func parseSize(text string) (bytes uint64, ok bool) {
	digits, unit, _ := strings.Cut(text, " ")
	n, err := strconv.ParseUint(digits, 10, 40)
	shift, known := map[string]int{"": 0, "KiB": 10, "MiB": 20}[unit]
	return n << shift, err == nil && known
}

// apart is how far KFD and fdinfo may differ, in bytes, because they are read one after the other.
const apart = 64 << 20

// bothTell merges a device's processes from both sources: fdinfo may count more than KFD; less is a contradiction.
func bothTell(computing byPID, opened map[int]uint64) byPID {
	all := maps.Clone(computing)
	if all == nil {
		all = byPID{}
	}
	for pid, bytes := range opened {
		p, is := all[pid]
		switch {
		case !is && bytes > 0:
			p = gpu.Process{PID: pid, Memory: gpu.Bytes(bytes), Kinds: []gpu.Kind{gpu.Graphics}}
		case !is:
			continue
		case bytes+apart < p.Memory.Bytes:
			p.Memory = gpu.Unknown(fmt.Sprintf("KFD counts %d MiB, fdinfo %d MiB", p.Memory.Bytes>>20, bytes>>20))
		case bytes > p.Memory.Bytes:
			p.Memory = gpu.Bytes(bytes)
		}
		all[pid] = p
	}
	return all
}
