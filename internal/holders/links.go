package holders

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// reader reads folders and files of /proc into buffers that it keeps: a search makes a million such reads. One
// goroutine uses it at a time.
type reader struct {
	entries []byte // what getdents64 returned
	target  []byte // of one link
	text    []byte // of one file
}

// newReader sizes its buffers by what the kernel hands out at once: a link's target is at most a page long, a line
// of maps a path of a page in which every byte may be escaped to four.
func newReader() *reader {
	return &reader{entries: make([]byte, 32<<10), target: make([]byte, unix.PathMax), text: make([]byte, 64<<10)}
}

// errBound says that whoever asked for a folder's entries wanted no more of them.
var errBound = errors.New("stopped at a bound")

// names calls visit with each name of an open folder but "." and "..", until that returns false. The name is only
// good during the call.
func (r *reader) names(dir int, visit func(name []byte) bool) error {
	for {
		n, err := unix.ReadDirent(dir, r.entries)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("list directory: %w", err)
		}
		if n == 0 {
			return nil
		}
		for rest := r.entries[:n]; len(rest) > 0; {
			var name []byte
			if name, rest, err = nextEntry(rest); err != nil {
				return err
			}
			if string(name) != "." && string(name) != ".." && !visit(name) {
				return errBound
			}
		}
	}
}

// Offsets in struct linux_dirent64: inode and offset of 8 bytes each, then these.
const (
	entryLength = 16
	entryName   = 19
)

// nextEntry cuts the first entry off what getdents64 returned. A zero byte follows the name.
func nextEntry(entries []byte) (name, rest []byte, err error) {
	if len(entries) <= entryName {
		return nil, nil, fmt.Errorf("list directory: entry of %d bytes", len(entries))
	}
	length := int(binary.NativeEndian.Uint16(entries[entryLength:]))
	if length <= entryName || length > len(entries) {
		return nil, nil, fmt.Errorf("list directory: entry says %d of %d bytes", length, len(entries))
	}
	end := bytes.IndexByte(entries[entryName:length], 0)
	if end < 0 {
		return nil, nil, fmt.Errorf("list directory: a name without an end")
	}
	return entries[entryName : entryName+end], entries[length:], nil
}

// links calls visit with the target of each link in an open folder, as long as more says that another may be read.
// The target is only good during the call. A link that vanishes meanwhile is no error, one that cannot be read is
// passed over and its error returned in the end.
// Threat: opening an entry would open the device, or hang on a pipe or a dead file system, and so would asking for
// what it points to: only the links themselves are read.
func (r *reader) links(dir int, more func() bool, visit func(target []byte)) error {
	var failed error
	err := r.names(dir, func(name []byte) bool {
		if !more() {
			return false
		}
		n, err := readlinkat(dir, name, r.target)
		switch {
		case err == nil:
			visit(r.target[:n])
		case !gone(err):
			failed = fmt.Errorf("read link %.20q: %w", name, err)
		}
		return true
	})
	if err != nil {
		return err
	}
	return failed
}

// readlinkat is unix.Readlinkat without its copy of the name, which a zero byte must follow.
func readlinkat(dir int, name, target []byte) (int, error) {
	n, _, errno := unix.Syscall6(unix.SYS_READLINKAT, uintptr(dir), uintptr(unsafe.Pointer(unsafe.SliceData(name))),
		uintptr(unsafe.Pointer(unsafe.SliceData(target))), uintptr(len(target)), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// lines calls visit with each line of an open file, without its end, as long as more says that another piece may
// be read. The line is only good during the call.
func (r *reader) lines(file int, more func() bool, visit func(line []byte)) error {
	kept := 0
	for more() {
		n, err := unix.Read(file, r.text[kept:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("read lines: %w", err)
		}
		if n == 0 {
			if kept > 0 {
				visit(r.text[:kept])
			}
			return nil
		}
		rest := eachLine(r.text[:kept+n], visit)
		if kept = copy(r.text, rest); kept == len(r.text) {
			return fmt.Errorf("read lines: %w: %d bytes", errTooLarge, kept)
		}
	}
	return errBound
}

// eachLine calls visit with each whole line and returns what is left behind the last.
func eachLine(text []byte, visit func(line []byte)) (rest []byte) {
	for {
		at := bytes.IndexByte(text, '\n')
		if at < 0 {
			return text
		}
		visit(text[:at])
		text = text[at+1:]
	}
}
