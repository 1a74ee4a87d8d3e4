package inventory

import (
	"bufio"
	"errors"
	"fmt"
	"io"
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
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
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

var (
	errRecords = fmt.Errorf("more than %d entries", maxRecords)
	errBytes   = fmt.Errorf("more than %d bytes", maxBytes)
)

// device gives the log to its end, which is where reading would wait.
type device struct {
	read        func([]byte) (int, error)
	gap         *bool
	reads, size int
}

func (d *device) Read(b []byte) (int, error) {
	for ; d.reads < maxRecords; d.reads++ {
		n, err := d.read(b)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN), err == nil && n == 0:
			return 0, io.EOF
		case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EINVAL):
			*d.gap = true // overwritten while we read, or larger than the buffer: the next read is of the next entry
		case err != nil:
			return 0, err
		case d.size+n > maxBytes:
			return 0, errBytes
		default:
			d.reads, d.size = d.reads+1, d.size+n
			return n, nil
		}
	}
	return 0, errRecords
}

// drain reads to the end of the log and hands over each line but one that is longer than any record, or without an end:
// the kernel ends each. The device gives one record a read, with a line for its text and lines of its own for what else
// it has; a file gives what it likes.
func drain(read func([]byte) (int, error), c *collector) error {
	log := bufio.NewReaderSize(&device{read: read, gap: &c.gap}, maxRecord)
	for long := false; c.records <= maxRecords; {
		line, err := log.ReadSlice('\n')
		switch {
		case err == io.EOF:
			return nil
		case err != nil && err != bufio.ErrBufferFull:
			return err
		case err == nil && !long:
			c.line(line[:len(line)-1])
		}
		long = err != nil
	}
	return errRecords
}
