package joblog

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// File is a job's output, open to be read. What is written to it after it was opened is not part of it.
type File struct {
	f        *os.File
	dev, ino uint64
	Size     int64
}

// Open opens the target, which must be an existing regular file of uid's with one name. The process must have become
// that user (child.Become). An error is a *Refused.
func Open(t Target, uid uint32) (*File, error) {
	f, st, err := t.open(uid, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	return &File{f, st.Dev, st.Ino, st.Size}, nil
}

// ReadAt is io.ReaderAt's up to Size. An error but io.EOF is a *Refused.
func (f *File) ReadAt(p []byte, at int64) (int, error) {
	n, err := io.NewSectionReader(f.f, 0, f.Size).ReadAt(p, at)
	if err != nil && !errors.Is(err, io.EOF) {
		err = refusal(err)
	}
	return n, err
}

// Is reports whether both are one file, whatever their paths.
func (f *File) Is(o *File) bool { return f.dev == o.dev && f.ino == o.ino }

// Close closes the file, which was only read: nothing can be lost.
func (f *File) Close() { _ = f.f.Close() }
