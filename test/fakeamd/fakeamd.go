// Package fakeamd writes what AMD's driver shows in files: a node's /sys and /proc, as the kernel's sources and ROCm's
// documentation have them. There was no such hardware: sizes and ids are invented. A file that cannot be written is a
// panic.
package fakeamd

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Card is one card of a node.
type Card struct {
	Bus        string
	Minor      int    // of its render node
	UniqueID   string // 16 hexadecimal digits; "" for a card that has none
	Name       string
	Total      uint64 // bytes
	Partitions []int  // minors of their render nodes, the card's own first
	APU, NoKFD bool
	RAS        string // of its memory, as the file has it; "" for none
}

// World is a node.
type World struct {
	Proc, Sys string
	cards     []Card
}

// New makes a node with idle cards below a folder.
func New(dir string, cards ...Card) *World {
	w := &World{filepath.Join(dir, "proc"), filepath.Join(dir, "sys"), cards}
	w.put("0\n", w.Sys, "module/amdgpu/refcnt")
	w.put("6.8.0-test\n", w.Proc, "sys/kernel/osrelease")
	w.put("0\n", w.kfd("topology/nodes/0/gpu_id"))
	w.put("cpu_cores_count 64\nsimd_count 0\n", w.kfd("topology/nodes/0/properties"))
	w.put("", w.Sys, "bus/pci/drivers/amdgpu/bind")
	w.folder(w.kfd("proc"))
	node := 1
	for i, c := range cards {
		w.put("", w.Sys, "bus/pci/drivers/amdgpu", c.Bus)
		device := filepath.Join(w.Sys, "bus/pci/devices", c.Bus)
		w.put("0x1002\n", device, "vendor")
		w.put("0x038000\n", device, "class")
		w.put("0\n", device, "gpu_busy_percent")
		w.put(strconv.FormatUint(c.Total, 10)+"\n", device, "mem_info_vram_total")
		w.folder(device, "drm", fmt.Sprintf("renderD%d", c.Minor))
		w.folder(device, "drm", fmt.Sprintf("card%d", i+1))
		for name, text := range map[string]string{"unique_id": c.UniqueID, "product_name": c.Name, "ras/umc_err_count": c.RAS} {
			if text != "" {
				w.put(text+"\n", device, name)
			}
		}
		w.Use(i, 0)
		if c.NoKFD {
			continue
		}
		minors := c.Partitions
		if len(minors) == 0 {
			minors = []int{c.Minor}
		}
		for _, minor := range minors {
			folder := w.kfd("topology/nodes", strconv.Itoa(node))
			w.put(GPUID(minor)+"\n", folder, "gpu_id")
			w.put(properties(c, minor), folder, "properties")
			node++
		}
	}
	return w
}

// GPUID is KFD's of a device with such a render node.
func GPUID(minor int) string { return strconv.Itoa(40000 + minor) }

func properties(c Card, minor int) string {
	var domain, bus, device, function int
	if _, err := fmt.Sscanf(c.Bus, "%x:%x:%x.%x", &domain, &bus, &device, &function); err != nil {
		panic(err)
	}
	cores := 0
	if c.APU {
		cores = 24
	}
	id, _ := strconv.ParseUint(c.UniqueID, 16, 64)
	return fmt.Sprintf("cpu_cores_count %d\nsimd_count 304\nmem_banks_count 1\nlocation_id %d\ndomain %d\n"+
		"drm_render_minor %d\nhive_id 0\nnum_xcc 8\nunique_id %d\n", cores, bus<<8|device<<3|function, domain, minor, id)
}

func (w *World) kfd(parts ...string) string {
	return filepath.Join(append([]string{w.Sys, "class/kfd/kfd"}, parts...)...)
}

// Use sets the VRAM in use of a card, bytes.
func (w *World) Use(card int, bytes uint64) {
	w.put(strconv.FormatUint(bytes, 10)+"\n", w.Sys, "bus/pci/devices", w.cards[card].Bus, "mem_info_vram_used")
}

// Compute lists a process with KFD: what it has on a device, bytes.
func (w *World) Compute(pid, minor int, bytes uint64) { w.context(strconv.Itoa(pid), minor, bytes) }

// Second gives a process a second context.
func (w *World) Second(pid, minor int, bytes uint64) {
	w.context(fmt.Sprintf("pid:%d-id:1", pid), minor, bytes)
}

// Third gives it one below its first, as other kernels show it.
func (w *World) Third(pid, minor int, bytes uint64) {
	w.context(filepath.Join(strconv.Itoa(pid), "context_1"), minor, bytes)
}

func (w *World) context(folder string, minor int, bytes uint64) {
	w.put(strconv.FormatUint(bytes, 10)+"\n", w.kfd("proc", folder), "vram_"+GPUID(minor))
	w.put("locks\n", w.kfd("proc", folder), "sdma_"+GPUID(minor))
}

// Queue gives a process a queue on a device.
func (w *World) Queue(pid, minor int) {
	w.put(GPUID(minor)+"\n", w.kfd("proc", strconv.Itoa(pid), "queues/0/gpuid"))
}

// Gone takes a process off KFD's list.
func (w *World) Gone(pid int) {
	if err := os.RemoveAll(w.kfd("proc", strconv.Itoa(pid))); err != nil {
		panic(err)
	}
}

// Open gives a process a descriptor of a card's render node, with what fdinfo says of it.
func (w *World) Open(pid, fd, card int, text string) {
	w.folder(w.Proc, strconv.Itoa(pid), "fd")
	target := fmt.Sprintf("/dev/dri/renderD%d", w.cards[card].Minor)
	if err := os.Symlink(target, filepath.Join(w.Proc, strconv.Itoa(pid), "fd", strconv.Itoa(fd))); err != nil {
		panic(err)
	}
	head := "pos:\t0\nflags:\t02100002\nmnt_id:\t30\nino:\t1\n"
	w.put(head+strings.ReplaceAll(text, "BUS", w.cards[card].Bus), w.Proc, strconv.Itoa(pid), "fdinfo", strconv.Itoa(fd))
}

// Info is a descriptor's fdinfo as newer kernels print it.
func Info(client int, vram uint64) string {
	return fmt.Sprintf("drm-driver:\tamdgpu\ndrm-client-id:\t%d\ndrm-pdev:\tBUS\npasid:\t32770\n"+
		"drm-total-vram:\t%[2]d KiB\ndrm-shared-vram:\t0\ndrm-resident-vram:\t%[2]d KiB\ndrm-memory-vram:\t%[2]d KiB\n"+
		"drm-memory-gtt:\t2048 KiB\n", client, vram>>10)
}

// Without removes a path below /sys.
func (w *World) Without(path string) {
	if err := os.RemoveAll(filepath.Join(w.Sys, path)); err != nil {
		panic(err)
	}
}

// Put writes a file below /sys.
func (w *World) Put(text, path string) { w.put(text, w.Sys, path) }

// put replaces a file as a whole, as a reader of the kernel's sees it.
func (w *World) put(text string, parts ...string) {
	path := filepath.Join(parts...)
	w.folder(filepath.Dir(path))
	next := filepath.Join(filepath.Dir(w.Sys), ".next")
	if err := os.WriteFile(next, []byte(text), 0o644); err != nil {
		panic(err)
	}
	if err := os.Rename(next, path); err != nil {
		panic(err)
	}
}

func (w *World) folder(parts ...string) {
	if err := os.MkdirAll(filepath.Join(parts...), 0o755); err != nil {
		panic(err)
	}
}
