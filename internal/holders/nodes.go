package holders

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"bookend/internal/child"
	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/slurm"
)

// deleted is what the kernel adds to the path of a file without a name. A device node loses its name when a
// container's /dev is emptied or the driver's nodes are made anew; whoever has it open still has the device.
const deleted = " (deleted)"

// mayBeNode is a quick look at a path: whether parseNode is worth the trouble.
func mayBeNode(target []byte) bool {
	at := bytes.LastIndexByte(target, '/')
	return at >= 0 && gpu.MayBeNode(target[at+1:])
}

// parseNode reads a path in a link or map: the node that its name stands for, and the directory in place of /dev.
func parseNode(target string) (n gpu.Node, folder string, ok bool) {
	// Threat: memfd_create and DMA buffers let a process choose all of what follows the colon.
	if strings.HasPrefix(target, "/memfd:") || strings.HasPrefix(target, dmaBuf) {
		return gpu.Node{}, "", false
	}
	return gpu.ParseNode(strings.TrimSuffix(target, deleted))
}

// place says in which folders a process's device nodes are.
type place struct {
	dev string // /dev
	// foreign reports a process with a root or a mount namespace of its own: a container's /dev shows as /dev, or with
	// the path of its root before it, and is none of the host's. In the host's own the very directory counts.
	foreign func() bool
}

// placeOf returns where the device nodes of an open process are. Where proc does not name the caller's mount namespace,
// all are foreign.
func placeOf(proc, dev string, f folder) place {
	return place{dev, sync.OnceValue(func() bool {
		mounts, _ := os.Readlink(filepath.Join(proc, "self", mountLink))
		return f.foreign(mounts)
	})}
}

// has reports a folder of device nodes. The root counts: a file shows so once its mount was taken away (umount -l).
func (p place) has(folder string) bool {
	dev := strings.TrimRight(p.dev, "/")
	return folder == dev || folder == "" || p.foreign() && path.Base(folder) == path.Base(dev)
}

// held is a holder. Of more cards than are kept over tells.
type held struct {
	finding.Holding
	over bool
}

// dmaBuf begins the name of a DMA buffer, as the kernel alone writes it.
const dmaBuf = "/dmabuf:"

// maxMinors is more than a node has GPUs.
const maxMinors = 64

func (h *held) add(target []byte, in place) {
	if bytes.HasPrefix(target, []byte(dmaBuf)) {
		h.Buffers = true
	}
	if !mayBeNode(target) {
		return
	}
	found, folder, ok := parseNode(string(target))
	if !ok || !in.has(folder) {
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

// mapFields are the fields before the path in a line of maps: addresses, rights, offset, device, inode.
const mapFields = 5

// parseMap returns the path in a line of /proc/PID/maps; a name in brackets, a process's choice, has no slash.
func parseMap(line []byte) []byte {
	for range mapFields {
		line = bytes.TrimLeft(line, " ")
		at := bytes.IndexByte(line, ' ')
		if at < 0 {
			return nil
		}
		line = line[at:]
	}
	if line = bytes.TrimLeft(line, " "); !bytes.HasPrefix(line, []byte("/")) {
		return nil
	}
	return line
}

// exiting is PF_EXITING: a process on its way out was seen to take half a second for 6 GiB of memory.
const exiting = 0x4

const ending = "X" // the state of a process of which all threads that live are on their way out

// goesOn reports a thread that has not ended and is not ending.
func goesOn(st child.Stat) bool { return st.State != ended && st.Flags&exiting == 0 }

// stateOf returns the state letter of a process's first thread, or X if the thread that answers for all is ending.
func stateOf(first, answer child.Stat) string {
	if answer.State != ended && !goesOn(answer) {
		return ending
	}
	return string(first.State)
}

func startOf(st child.Stat) time.Duration { return time.Duration(st.Ticks) * finding.Tick }

// parseUID reads the real uid from the text of /proc/PID/status. Threat: the name is the first line, and a
// kernel that does not escape it lets a process write a Uid line of its own; the kernel's is the last.
func parseUID(text string) (uint32, error) {
	line := statusLine(text, "Uid")
	if fields := strings.Fields(line); len(fields) == 4 {
		if uid, err := strconv.ParseUint(fields[0], 10, 32); err == nil {
			return uint32(uid), nil
		}
	}
	return 0, fmt.Errorf("parse status: Uid line %.80q", line)
}

// parseOtherPIDs reports a PID in another namespace too: NSpid then has several numbers. Linux before 4.1 has no NSpid.
func parseOtherPIDs(text string) bool {
	return len(strings.Fields(statusLine(text, "NSpid"))) > 1
}

// statusLine is what a line of /proc/PID/status says behind its key. The kernel's is the last of that key.
func statusLine(text, key string) string {
	at := strings.LastIndex(text, "\n"+key+":")
	if at < 0 {
		return ""
	}
	line, _, _ := strings.Cut(text[at+len(key)+len("\n:"):], "\n")
	return line
}

// parseEnviron finds the job id in an environment, 0 for none: the first counts; the last entry of a cut text does not.
func parseEnviron(text string, cut bool) slurm.JobID {
	if cut {
		text = text[:strings.LastIndexByte(text, 0)+1]
	}
	for entry := range strings.SplitSeq(text, "\x00") {
		if value, ok := strings.CutPrefix(entry, "SLURM_JOB_ID="); ok {
			if id, ok := slurm.ParseJobID(value); ok {
				return id
			}
			return 0
		}
	}
	return 0
}

// maxUnit bounds the name of a unit; the kernel bounds a folder's at 255.
const maxUnit = 128

// parseUnit names the system manager's unit, or the container, of a /proc/PID/cgroup without a job. A process in
// user.slice is no service whatever another hierarchy of cgroup v1 says, and below a user's manager no name counts.
func parseUnit(text string) (service, container string) {
	users := false
	for path := range slurm.CgroupPaths(text) {
		parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
		service, container = cmp.Or(service, serviceOf(parts)), cmp.Or(container, containerOf(parts))
		users = users || parts[0] == "user.slice"
	}
	switch {
	case container != "":
		return "", container
	case users:
		return "", ""
	}
	return service[:min(len(service), maxUnit)], ""
}

// serviceOf returns the unit that systemd put a process into: the first below system.slice and its own slices.
func serviceOf(parts []string) string {
	own := func(part string) bool { return !strings.HasSuffix(part, ".slice") }
	i := slices.IndexFunc(parts, own)
	if parts[0] != "system.slice" || i < 0 || !strings.HasSuffix(parts[i], ".service") || ofUsers(parts[i]) {
		return ""
	}
	return parts[i]
}

// ofUsers reports a unit that runs what users tell it to: Slurm's own, users' managers, and those that let users in.
func ofUsers(unit string) bool {
	name, _, _ := strings.Cut(strings.TrimSuffix(unit, ".service"), "@")
	switch name {
	case "user", "ssh", "sshd", "cron", "crond", "anacron", "atd":
		return true
	}
	return strings.Contains(unit, "slurmd") || strings.Contains(unit, "slurmstepd")
}

// containerOf returns the outermost container, by the 64 hexadecimal digits that end its cgroup's name.
func containerOf(parts []string) string {
	const idLen, shown = 64, 12 // of an id, and what its own tools show of one
	for _, part := range parts {
		if slurm.UserManager(part) {
			return ""
		}
		name := strings.TrimSuffix(part, ".scope")
		engine, id := "", name
		if at := strings.LastIndexAny(name, "-:"); at >= 0 {
			engine, id = name[:at], name[at+1:]
		}
		isID := len(id) == idLen && strings.Trim(id, "0123456789abcdef") == ""
		if isID && !strings.HasSuffix(engine, "conmon") { // podman's monitor is outside
			return "container:" + id[:shown]
		}
	}
	return ""
}
