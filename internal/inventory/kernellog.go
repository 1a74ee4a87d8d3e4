package inventory

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"bookend/internal/gpu"
)

// What is read and kept at most.
const (
	maxRecords = 200_000  // the largest ring that kernels are usually built for, 16 MiB, has fewer
	maxBytes   = 64 << 20 // the same as the device writes it
	maxRecord  = 16 << 10 // the kernel's own buffer for one record is 8 KiB
	maxXids    = 256
	maxKills   = 64
	maxText    = 1 << 10 // of one line; the kernel's lines are no longer
)

// ReadLog reads the kernel's log, <dev>/kmsg, to its end. It collects what came after the mark; without one it fills in
// Last and nothing else. Last holds unless Unknown is set. Strings in it are from outside: bounded, not clean.
//
// It counts only what the kernel itself wrote: whatever root's programs write there has another facility than the
// kernel's, which the kernel does not let them choose.
func ReadLog(dev string, since *gpu.KernelMark) gpu.KernelLog {
	path := filepath.Join(dev, "kmsg")
	// Threat: in a container it may be a link to a console, or a FIFO or a file of somebody's: none is followed or
	// waited for, becomes our terminal, or is read without end.
	fd, err := retry(func() (int, error) {
		return unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return gpu.KernelLog{Unknown: fmt.Sprintf("open %q: %v", path, err)}
	}
	defer unix.Close(fd)
	c := newCollector(since)
	if err := drain(func(b []byte) (int, error) { return unix.Read(fd, b) }, c); err != nil {
		return gpu.KernelLog{Unknown: fmt.Sprintf("read %q: %v", path, err)}
	}
	return c.result()
}

func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

var (
	errRecords = fmt.Errorf("more than %d entries", maxRecords)
	errBytes   = fmt.Errorf("more than %d bytes", maxBytes)
)

// drain reads to the end of the log and hands over each line. The device gives one record a read, with a line for its
// text and lines of its own for what else it has; a file gives what it likes.
func drain(read func([]byte) (int, error), c *collector) error {
	chunk := make([]byte, maxRecord)
	l := lines{each: c.line}
	total := 0
	for range maxRecords {
		n, err := retry(func() (int, error) { return read(chunk) })
		switch {
		case errors.Is(err, unix.EAGAIN), err == nil && n == 0:
			return nil
		case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EINVAL):
			c.gap = true // overwritten while we read, or larger than the buffer: the next read is of the next entry
		case err != nil:
			return err
		default:
			l.add(chunk[:n])
		}
		if c.records > maxRecords {
			return errRecords
		}
		if total += max(n, 0); total > maxBytes {
			return errBytes
		}
	}
	return errRecords
}

// lines puts lines together from chunks. One without an end is not told: the kernel ends each.
type lines struct {
	each func(line []byte)
	rest []byte
	long bool // the line is longer than any record: none of it is told
}

func (l *lines) add(chunk []byte) {
	for {
		line, after, ended := bytes.Cut(chunk, []byte("\n"))
		if l.rest = append(l.rest, line...); len(l.rest) > maxRecord {
			l.rest, l.long = l.rest[:0], true
		}
		if !ended {
			return
		}
		if !l.long {
			l.each(l.rest)
		}
		l.rest, l.long = l.rest[:0], false
		chunk = after
	}
}
