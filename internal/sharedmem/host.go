package sharedmem

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/child"
	"bookend/internal/leftover"
)

// HostRequest asks for a node's memory and what takes it.
type HostRequest struct {
	Place   Place             `json:"place"`
	Earlier map[string]string `json:"earlier,omitempty"` // by job: the text with which its end named what it left
	After   time.Duration     `json:"after_ns,omitempty"`
}

// HostReply is a node's memory, and the signs of jobs.
type HostReply struct {
	leftover.HostUse
	Cgroups []string `json:"cgroups,omitempty"` // those lines of /proc/PID/cgroup that may be of a job
	Daemon  int      `json:"daemon,omitempty"`  // a step's slurmstepd, 0 for none
}

// ReadHost reads a node's memory, and after that its processes: a job that had memory then is seen if it still runs.
var ReadHost = child.NewOperation("host-memory", HostRequest.read)

func (r HostRequest) read() (reply HostReply, err error) {
	time.Sleep(r.After)
	reply.Host, err = r.Place.HostMemory(true)
	shm, unread := r.readFiles(&reply.HostUse)
	err = errors.Join(err, unread, r.Place.readMounts(&reply.HostUse, shm), r.Place.eachProcess(reply.add))
	reply.keepLargest()
	return reply, err
}

// HostMemory reads the node's memory. Without zfs it opens one file, at which no other program can make it wait.
func (p Place) HostMemory(zfs bool) (leftover.Host, error) {
	meminfo, err := p.text("meminfo")
	arc, unread := "", error(nil)
	if zfs {
		arc, unread = p.text("spl/kstat/zfs/arcstats")
	}
	if err = errors.Join(err, present(unread)); err != nil {
		return leftover.Host{}, err
	}
	return leftover.ParseHost(meminfo, arc)
}

// present drops the error of what is not there, or is a process that has ended.
func present(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

func (p Place) text(name string) (string, error) {
	const most = 1 << 20
	// Threat: none, the kernel's own file.
	f, err := os.Open(filepath.Join(p.Proc, name))
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most))
	return string(text), err
}

// readFiles sums up the files in /dev/shm by owner, and finds those that earlier jobs left.
func (r HostRequest) readFiles(use *leftover.HostUse) (device uint64, err error) {
	files, there := map[uint32][]leftover.Item{}, map[uint64]bool{}
	device, err = r.Place.each(func(uint64) bool { return true }, func(f leftover.Item, uid uint32) {
		files[uid], there[f.ID] = append(files[uid], f), true
	})
	for uid, all := range files {
		use.Files = append(use.Files, leftover.Sum(uid, all))
	}
	slices.SortFunc(use.Files, func(a, b leftover.OwnedFiles) int { return cmp.Compare(b.Bytes, a.Bytes) })
	for _, job := range slices.Sorted(maps.Keys(r.Earlier)) {
		if slices.ContainsFunc(leftover.Inodes(r.Earlier[job]), func(id uint64) bool { return there[id] }) {
			use.Earlier = append(use.Earlier, job)
		}
	}
	return device, present(err)
}

func (p Place) readMounts(use *leftover.HostUse, shm uint64) error {
	text, err := p.text("self/mountinfo")
	seen := map[uint64]bool{shm: true}
	for line := range strings.Lines(text) {
		f := strings.Fields(line) // number, parent, device, root, path
		if len(f) < 5 || !strings.Contains(line, " - tmpfs ") {
			continue
		}
		// Threat: another file system, which may not answer, is mounted over it: that is neither followed nor asked.
		const flags = unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT | unix.AT_STATX_DONT_SYNC
		var st unix.Statfs_t
		var root unix.Statx_t
		err := unix.Statx(unix.AT_FDCWD, f[4], flags, 0, &root)
		device := unix.Mkdev(root.Dev_major, root.Dev_minor)
		itself := err == nil && f[2] == fmt.Sprintf("%d:%d", root.Dev_major, root.Dev_minor)
		if itself && !seen[device] && unix.Statfs(f[4], &st) == nil {
			seen[device] = true
			used := (st.Blocks - st.Bfree) * uint64(st.Bsize)
			use.Mounts = append(use.Mounts, leftover.Mount{Path: f[4], Bytes: used})
		}
	}
	slices.SortFunc(use.Mounts, func(a, b leftover.Mount) int { return cmp.Compare(b.Bytes, a.Bytes) })
	use.Mounts = use.Mounts[:min(len(use.Mounts), 100)]
	return err
}

// eachProcess visits the processes with their cgroups, and the command line of what is named like Slurm's own.
func (p Place) eachProcess(visit func(one leftover.HostProcess, cgroup, command string)) error {
	// Threat: none, /proc itself.
	entries, err := os.ReadDir(p.Proc)
	for _, e := range entries {
		pid, other := strconv.Atoi(e.Name())
		if other != nil {
			continue
		}
		status, unread := p.text(fmt.Sprintf("%d/status", pid))
		cgroup, unplaced := p.text(fmt.Sprintf("%d/cgroup", pid))
		one, command := leftover.ParseProcess(pid, status, cgroup), ""
		if strings.HasPrefix(one.Name, daemon) && one.UID == 0 { // no user's: reading it takes a lock of the process's
			command, _ = p.text(fmt.Sprintf("%d/cmdline", pid))
		}
		err = cmp.Or(err, present(cmp.Or(unread, unplaced)))
		if unread == nil && unplaced == nil {
			visit(one, cgroup, command)
		}
	}
	return err
}

// daemon begins the name of a step's process (slurmstepd-wlm in Debian). One with "infinity" only keeps Slurm's scope.
const daemon = "slurmstepd"

func (r *HostReply) add(p leftover.HostProcess, cgroup, command string) {
	if strings.HasPrefix(p.Name, daemon) && p.UID == 0 && !strings.Contains(command, "infinity") {
		r.Daemon = p.PID
	}
	const most = 1000 // one is enough
	for line := range strings.Lines(cgroup) {
		mayBe := strings.Contains(line, "slurm") && !strings.Contains(line, "/user.slice/")
		if mayBe && len(r.Cgroups) < most && !slices.Contains(r.Cgroups, line) {
			r.Cgroups = append(r.Cgroups, line)
		}
	}
	kind := leftover.Users
	if p.OfSystem() {
		kind = leftover.System
	}
	r.In[kind] += p.Bytes
	r.Processes = append(r.Processes, p)
}

// keepLargest leaves the largest processes of users, and of system services.
func (r *HostReply) keepLargest() {
	slices.SortFunc(r.Processes, func(a, b leftover.HostProcess) int { return cmp.Compare(b.Bytes, a.Bytes) })
	kept := map[bool]int{}
	r.Processes = slices.DeleteFunc(r.Processes, func(p leftover.HostProcess) bool {
		kept[p.OfSystem()]++
		return kept[p.OfSystem()] > 2
	})
}
