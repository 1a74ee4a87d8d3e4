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
// that user (asuser.Become). An error is a *Refused.
func Open(t Target, uid uint32) (*File, error) {
	if err := t.check(); err != nil {
		return nil, &Refused{other, err}
	}
	// Threat: the user names any file, and swaps it for a link, a FIFO or a device meanwhile. Only files that he could
	// read himself can be opened; none is followed, waited for, or becomes our terminal, and only one that he owns,
	// under no other name, is read.
	fd, err := openRetrying(t.Path, unix.O_RDONLY)
	if err != nil {
		return nil, &Refused{classify(err), err}
	}
	f := os.NewFile(uintptr(fd), t.Path)
	st, err := t.verify(f, uid)
	if err != nil {
		f.Close()
		return nil, refusal(err)
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

// refusal is an error as a *Refused.
func refusal(err error) error {
	var r *Refused
	if errors.As(err, &r) {
		return err
	}
	return &Refused{classify(err), err}
}
