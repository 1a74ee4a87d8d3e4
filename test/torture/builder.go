package main

import (
	"os"

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
