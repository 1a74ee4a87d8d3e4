package joblog

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Tail returns the last bytes of the target, at most limit, which must be an existing regular file of uid's with one
// name. The process must have become that user (asuser.Become). An error is a *Refused.
func Tail(t Target, uid uint32, limit int) ([]byte, error) {
	if err := t.check(); err != nil {
		return nil, &Refused{other, err}
	}
	if limit < 0 {
		return nil, &Refused{other, fmt.Errorf("%d bytes to be read", limit)}
	}
	// Threat: the user names any file, and swaps it for a link, a FIFO or a device meanwhile. Only files that he could
	// read himself can be opened; none is followed, waited for, or becomes our terminal, and only one that he owns,
	// under no other name, is read.
	fd, err := openRetrying(t.Path, unix.O_RDONLY)
	if err != nil {
		return nil, &Refused{classify(err), err}
	}
	f := os.NewFile(uintptr(fd), t.Path)
	defer f.Close()
	tail, err := t.read(f, uid, int64(limit))
	var r *Refused
	if err != nil && !errors.As(err, &r) {
		err = &Refused{classify(err), err}
	}
	return tail, err
}

// read stops at limit, however fast a process of the user's makes the file longer.
func (t Target) read(f *os.File, uid uint32, limit int64) ([]byte, error) {
	st, err := t.verify(f, uid)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.NewSectionReader(f, max(0, st.Size-limit), limit))
}
