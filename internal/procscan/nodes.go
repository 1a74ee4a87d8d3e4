package procscan

import (
	"bytes"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"bookend/internal/child"
	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
)

// deleted is the suffix that the kernel adds to the path of a file without a name. A device node loses its name when a
// container's /dev is emptied or the nodes are created again; a process that has it open still has the device.
const deleted = " (deleted)"

// mayBeNode reports whether a path is worth parsing with parseNode.
func mayBeNode(target []byte) bool {
	at := bytes.LastIndexByte(target, '/')
	return at >= 0 && gpu.MayBeNode(target[at+1:])
}

// parseNode parses a path in a link or map: the device node of that name, and the directory in place of /dev.
func parseNode(target string) (n gpu.Node, dir string, ok bool) {
	// Threat: with memfd_create and DMA buffers a process can choose everything after the colon.
	if strings.HasPrefix(target, "/memfd:") || strings.HasPrefix(target, dmaBuf) {
		return gpu.Node{}, "", false
	}
	return gpu.ParseNode(strings.TrimSuffix(target, deleted))
}

// place describes the directories in which a process's device nodes can be.
type place struct {
	dev string // /dev
	// foreign reports whether the process has a root or mount namespace of its own. A container's /dev appears as /dev,
	// or with the path of its root before it, and is not the host's. In the host's own only dev itself counts.
	foreign func() bool
}

// placeOf returns where a process's device nodes are. Without the caller's mount namespace every process is foreign.
func placeOf(proc, dev string, f procDir) place {
	return place{dev, sync.OnceValue(func() bool {
		mounts, _ := os.Readlink(filepath.Join(proc, "self", mountLink))
		return f.foreign(mounts)
	})}
}

// has reports a directory of device nodes. The root counts: a file appears there after umount -l of its mount.
func (p place) has(dir string) bool {
	dev := strings.TrimRight(p.dev, "/")
	return dir == dev || dir == "" || p.foreign() && path.Base(dir) == path.Base(dev)
}

// held is a holder. over means that it has more GPUs open than are recorded.
type held struct {
	record.Holding
	over bool
}

// dmaBuf is the prefix of a DMA buffer's name, which only the kernel can write.
const dmaBuf = "/dmabuf:"

// maxMinors is more GPUs than any node has.
const maxMinors = 64

func (h *held) add(target []byte, in place) {
	if bytes.HasPrefix(target, []byte(dmaBuf)) {
		h.Buffers = true
	}
	if !mayBeNode(target) {
		return
	}
	found, dir, ok := parseNode(string(target))
	if !ok || !in.has(dir) {
		return
	}
	switch found.Kind {
	case gpu.CardNode:
		h.addMinor(found.Minor, found.Vendor)
	case gpu.ControlNode:
		h.Control = true
	case gpu.SharedNode:
		h.UVM = true
	case gpu.CapsNode:
		h.Caps = true
	}
}

func (h *held) addMinor(minor int, of *gpu.Vendor) {
	list := &h.Minors
	if of == &gpu.AMD {
		list = &h.Renders
	}
	at, have := slices.BinarySearch(*list, minor)
	switch {
	case have:
	case len(*list) == maxMinors:
		h.over = true
	default:
		*list = slices.Insert(*list, at, minor)
	}
}

func (h held) any() bool { return h.Of(&gpu.NVIDIA) || h.Of(&gpu.AMD) }

func (h *held) join(o held) {
	h.Control, h.UVM, h.Caps = h.Control || o.Control, h.UVM || o.UVM, h.Caps || o.Caps
	h.Buffers = h.Buffers || o.Buffers
	for _, minor := range o.Minors {
		h.addMinor(minor, &gpu.NVIDIA)
	}
	for _, minor := range o.Renders {
		h.addMinor(minor, &gpu.AMD)
	}
}

// parseMap returns the path in a line of /proc/PID/maps: no field before it has a slash or a bracket. A name in
// brackets, which a process can choose, is no path.
func parseMap(line []byte) []byte {
	at := bytes.IndexAny(line, "/[")
	if at < 1 || line[at] != '/' || line[at-1] != ' ' {
		return nil
	}
	return line[at:]
}

// exiting is the flag PF_EXITING. An exit was measured to take half a second with 6 GiB of memory.
const exiting = 0x4

const ending = "X" // the state of a process whose living threads are all exiting

// goesOn reports whether a thread has neither ended nor begun to exit.
func goesOn(st child.Stat) bool { return st.State != ended && st.Flags&exiting == 0 }

// stateOf returns the state letter of a process's first thread, or X if the thread that is read is exiting.
func stateOf(first, answer child.Stat) string {
	if answer.State != ended && !goesOn(answer) {
		return ending
	}
	return string(first.State)
}

func startOf(st child.Stat) time.Duration { return time.Duration(st.Ticks) * record.Tick }

// wholeEntries returns the text of an environment that was cut without its last entry.
func wholeEntries(text string) string { return text[:strings.LastIndexByte(text, 0)+1] }

// variable returns a variable's value in an environment, empty if it has none. The first entry counts.
func variable(text, name string) string {
	for entry := range strings.SplitSeq(text, "\x00") {
		if value, is := strings.CutPrefix(entry, name+"="); is {
			return value
		}
	}
	return ""
}

// parseEnviron returns the job id in an environment, or 0, and whether Jupyter started the process as a notebook's
// kernel; nothing if even root may not read it.
func parseEnviron(text string, err error) (job slurm.JobID, notebook bool) {
	if err != nil {
		return 0, false
	}
	job, _ = slurm.ParseJobID(variable(text, "SLURM_JOB_ID"))
	return job, variable(text, "JPY_PARENT_PID") != ""
}
