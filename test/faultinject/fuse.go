package faultinject

import (
	"encoding/binary"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// MountSilent mounts a file system over a file or directory, with the same mode, whose server never answers: a process
// that touches it sleeps until undo or a signal. Options may be ",allow_other"; without it all users but root are
// refused.
func MountSilent(over string, mode uint32, options string) (undo func() error, err error) {
	fd, err := mountFUSE(over, mode, options)
	if err != nil {
		return nil, err
	}
	return sync.OnceValue(func() error {
		err := unix.Unmount(over, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		_ = unix.Close(fd) // ends the connection: waiting processes get an error
		return err
	}), nil
}

// MountDeaf is MountSilent with a server that takes requests and answers none: not even SIGKILL ends a process that has
// sent one. A file can be opened, and reading it sleeps.
func MountDeaf(over string, mode uint32) (undo func(), err error) {
	fd, err := mountFUSE(over, mode, ",allow_other")
	if err != nil {
		return nil, err
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		serve(fd, mode)
	}()
	return sync.OnceFunc(func() {
		_ = unix.Unmount(over, unix.MNT_FORCE) // aborts the connection: waiting processes and the server get an error
		_ = unix.Unmount(over, unix.MNT_DETACH)
		<-served
	}), nil
}

func mountFUSE(over string, mode uint32, options string) (fd int, err error) {
	if fd, err = unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		return -1, fmt.Errorf("open FUSE: %w", err)
	}
	data := fmt.Sprintf("fd=%d,rootmode=%o,user_id=0,group_id=0%s", fd, mode, options)
	if err := unix.Mount("none", over, "fuse", unix.MS_NOSUID|unix.MS_NODEV, data); err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("mount FUSE on %q: %w", over, err)
	}
	return fd, nil
}

// Operations of the FUSE protocol (linux/fuse.h) that opening one file takes, and the lengths of its headers.
const (
	opGetattr = 3
	opOpen    = 14
	opRead    = 15
	opInit    = 26
	headIn    = 40 // length, operation, unique, node, uid, gid, pid, padding
	headOut   = 16 // length, error, unique
	directIO  = 1  // FOPEN_DIRECT_IO: a read waits for the server, not for a page
)

// serve answers what leads to an open file, refuses other operations, and leaves a read without an answer; of a
// directory it answers only the first request.
func serve(fd int, mode uint32) {
	defer unix.Close(fd)
	for request := make([]byte, 1<<20); ; {
		got, err := unix.Read(fd, request)
		if err == unix.EINTR || err == unix.ENOENT {
			continue
		}
		if err != nil || got < headIn {
			return
		}
		op := binary.NativeEndian.Uint32(request[4:])
		if op == opRead || mode&unix.S_IFMT == unix.S_IFDIR && op != opInit {
			continue
		}
		body, failed := reply(op, mode), int32(0)
		if body == nil {
			failed = -int32(unix.ENOSYS)
		}
		head := binary.NativeEndian.AppendUint32(nil, uint32(headOut+len(body)))
		head = append(binary.NativeEndian.AppendUint32(head, uint32(failed)), request[8:16]...)
		_, _ = unix.Write(fd, append(head, body...))
	}
}

func reply(op, mode uint32) (body []byte) {
	order := binary.NativeEndian
	switch op {
	case opInit:
		body = make([]byte, 64)
		order.PutUint32(body, 7)
		order.PutUint32(body[4:], 31)    // protocol 7.31
		order.PutUint32(body[20:], 4096) // the longest write
	case opGetattr:
		body = make([]byte, 104)
		order.PutUint64(body[16:], 1)    // inode
		order.PutUint64(body[24:], 4096) // size
		order.PutUint32(body[76:], mode)
		order.PutUint32(body[80:], 1) // links
	case opOpen:
		body = make([]byte, 16)
		order.PutUint32(body[8:], directIO)
	}
	return body
}
