package main

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// builder makes files until something fails.
type builder struct{ err error }

func (b *builder) do(err error) {
	if b.err == nil {
		b.err = err
	}
}

func (b *builder) dir(path string, uid int, mode os.FileMode) {
	if err := os.Mkdir(path, mode); err != nil && !os.IsExist(err) {
		b.do(err)
	}
	b.give(path, uid, mode)
}

func (b *builder) file(path string, uid int, mode os.FileMode, text string) {
	b.do(os.WriteFile(path, []byte(text), mode))
	b.give(path, uid, mode)
}

func (b *builder) node(path string, uid int, mode uint32, dev int) {
	b.do(unix.Mknod(path, mode, dev))
	b.give(path, uid, os.FileMode(mode&0o777))
}

func (b *builder) give(path string, uid int, mode os.FileMode) {
	b.do(os.Chown(path, uid, uid))
	b.do(os.Chmod(path, mode))
}

// mountFUSE mounts a file system whose server never answers. Nothing is asked of it before undo but by who touches it.
func mountFUSE(over string, format uint32, options string) (undo func() error, err error) {
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open FUSE: %w", err)
	}
	data := fmt.Sprintf("fd=%d,rootmode=%o,user_id=%d,group_id=%d%s", fd, format|0o755, syscall.Getuid(), syscall.Getgid(), options)
	if err := unix.Mount("torture", over, "fuse", unix.MS_NOSUID|unix.MS_NODEV, data); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("mount FUSE on %q: %w", over, err)
	}
	return func() error {
		err := unix.Unmount(over, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		_ = unix.Close(fd) // whoever waits for it is told that nobody is there
		return err
	}, nil
}
