// Package sharedmem reads what a user has in a node's shared memory (/dev/shm, System V segments, POSIX message queues
// and huge pages) and finds out what no process uses. It also reads all of the node's memory.
package sharedmem

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/child"
	"bookend/internal/leftover"
)

// Place is where a node's shared memory is, and the user who is asked for.
type Place struct {
	Dir  string `json:"dir"` // /dev/shm
	Proc string `json:"proc"`
	Sys  string `json:"sys"`
	UID  uint32 `json:"uid"`
}

// Reading waits for a listing, at most so long. Call it once.
type Reading func(limit time.Duration) leftover.Listing

// Read begins to list what the user has in shared memory: at a start everything, at an end what is not known from then.
// It costs no child: on a tmpfs, no call sleeps in a way that the hook's end does not stop.
func (p Place) Read(now time.Time, start leftover.Earlier) Reading {
	done := make(chan leftover.Listing, 1)
	child.Go(func(panicked *child.Panic) { done <- leftover.Listing{Unknown: panicked.Error()} }, func() {
		done <- p.list(now, start)
	})
	return func(limit time.Duration) leftover.Listing {
		select {
		case l := <-done:
			return l
		case <-time.After(limit):
			return leftover.Listing{Unknown: "the list of /dev/shm did not come in time"}
		}
	}
}

func (p Place) list(now time.Time, start leftover.Earlier) leftover.Listing {
	l := leftover.Listing{Wall: now, Login: p.login()}
	err := errors.New("what root has in shared memory is the node's")
	if p.UID != 0 {
		l.Files, l.Device, err = p.since(start.In(0))
	}
	if err == nil {
		l.Segments, err = p.segments()
	}
	if err != nil {
		l.Unknown = err.Error()
		return l
	}
	for i := range leftover.Others {
		files, device, err := p.other(i).since(start.In(1 + i))
		l.Others = append(l.Others, leftover.Listing{Files: files, Device: device})
		if err = present(err); err != nil {
			l.Others[i].Unknown = err.Error()
		}
	}
	return l
}

func (p Place) other(i int) Place {
	p.Dir = filepath.Join(filepath.Dir(p.Dir), leftover.Others[i].Dir)
	return p
}

func (p Place) open() (dir *os.File, device uint64, err error) {
	// Threat: none by the path, which is root's. What is mounted there may be on a disk or elsewhere: it is not read.
	dir, err = os.OpenFile(p.Dir, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, 0, err
	}
	var system unix.Statfs_t
	var st unix.Stat_t
	err = errors.Join(unix.Fstatfs(int(dir.Fd()), &system), unix.Fstat(int(dir.Fd()), &st))
	const mqueue = 0x19800202
	ofMemory := []int64{unix.TMPFS_MAGIC, mqueue, unix.HUGETLBFS_MAGIC}
	if err == nil && !slices.Contains(ofMemory, int64(system.Type)) {
		err = fmt.Errorf("%q is not in memory", p.Dir)
	}
	if err != nil {
		return nil, 0, errors.Join(err, dir.Close())
	}
	return dir, st.Dev, nil
}

// since lists the user's files that are not known. If known is nil, it lists the numbers of all users' files, without a
// call for each: a mark that has more than the user's own is as good.
func (p Place) since(known []uint64) (all []leftover.Item, device uint64, err error) {
	if known == nil {
		all, device, err = p.numbers()
		if err != nil || len(all) <= leftover.MaxMarked {
			return all, device, err
		}
	}
	return p.files(func(inode uint64) bool {
		_, is := slices.BinarySearch(known, inode)
		return !is
	})
}

func (p Place) numbers() (all []leftover.Item, device uint64, err error) {
	dir, device, err := p.open()
	if err != nil {
		return nil, 0, err
	}
	defer dir.Close()
	err = entries(int(dir.Fd()), func(inode uint64, _ string) { all = append(all, leftover.Item{ID: inode}) })
	return all, device, err
}

// files lists the wanted ones of the user's regular files.
func (p Place) files(wanted func(inode uint64) bool) (all []leftover.Item, device uint64, err error) {
	device, err = p.each(wanted, func(f leftover.Item, uid uint32) {
		if uid == p.UID {
			all = append(all, f)
		}
	})
	return all, device, err
}

// each visits the wanted ones of all users' regular files.
func (p Place) each(wanted func(inode uint64) bool, visit func(f leftover.Item, uid uint32)) (uint64, error) {
	dir, device, err := p.open()
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	return device, entries(int(dir.Fd()), func(inode uint64, name string) {
		if wanted(inode) {
			if f, uid, ok := describe(int(dir.Fd()), device, name); ok {
				visit(f, uid)
			}
		}
	})
}

// entries visits the regular files in a directory, as getdents64(2) describes them.
func entries(dir int, visit func(inode uint64, name string)) error {
	const most = 20_000 // some 40 ms, if each is described
	count, buffer := 0, make([]byte, 32<<10)
	for count <= most {
		n, err := unix.Getdents(dir, buffer)
		if n <= 0 || err != nil {
			return err
		}
		for rest := buffer[:n]; len(rest) > 0; count++ {
			inode, length := binary.NativeEndian.Uint64(rest), binary.NativeEndian.Uint16(rest[16:])
			name, _, _ := bytes.Cut(rest[19:length], []byte{0})
			if rest[18] == unix.DT_REG {
				visit(inode, string(name))
			}
			rest = rest[length:]
		}
	}
	return fmt.Errorf("more than %d entries", most)
}

// describe describes a regular file. Threat: users choose names, and may have mounted a file system that does not
// answer on one of theirs: neither is it followed nor asked.
func describe(dir int, device uint64, name string) (f leftover.Item, uid uint32, ok bool) {
	const flags = unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT | unix.AT_STATX_DONT_SYNC
	var st unix.Statx_t
	err := unix.Statx(dir, name, flags, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st)
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || unix.Mkdev(st.Dev_major, st.Dev_minor) != device {
		return f, 0, false
	}
	f = leftover.Item{ID: st.Ino, Bytes: st.Blocks * 512, Name: name}
	if st.Mask&unix.STATX_BTIME != 0 {
		f.Made = time.Unix(st.Btime.Sec, int64(st.Btime.Nsec))
	}
	return f, st.Uid, true
}

func (p Place) segments() ([]leftover.Item, error) {
	const most = 8 << 20 // 32,768 segments of some 200 bytes
	// Threat: none, the kernel's own file.
	f, err := os.Open(filepath.Join(p.Proc, "sysvipc/shm"))
	if errors.Is(err, os.ErrNotExist) { // a kernel without them
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil || len(text) == most {
		return nil, errors.Join(err, fmt.Errorf("%d bytes of System V segments", len(text)))
	}
	return leftover.ParseSegments(string(text), p.UID)
}

// login reports whether systemd has a slice for the user: one has who is logged in, or has services that linger.
func (p Place) login() bool {
	for _, tree := range []string{"", "systemd", "unified"} { // cgroup v2; v1; both
		slice := filepath.Join(p.Sys, "fs/cgroup", tree, fmt.Sprintf("user.slice/user-%d.slice", p.UID))
		// Threat: none, nothing is opened.
		if _, err := os.Lstat(slice); err == nil {
			return true
		}
	}
	return false
}
