package nodefiles

import (
	"path/filepath"

	"golang.org/x/sys/unix"

	"bookend/internal/gpu"
)

// Follower reads what is added to the kernel log, for a process that stays: the log is open, and only news are read.
type Follower struct {
	fd    int
	first [maxRecord]byte // of the news: usually there are none, and one call shows that
}

// Follow begins at the log's present end. If the log cannot be opened there are never news.
func Follow(dev string) *Follower {
	fd, err := openFile(filepath.Join(dev, "kmsg"))
	if err == nil {
		_, err = unix.Seek(fd, 0, unix.SEEK_END)
	}
	if err != nil {
		fd = -1 // each read of it fails
	}
	return &Follower{fd: fd}
}

// News returns the errors of GPUs that were added to the log since the last call. It never waits.
func (f *Follower) News() []gpu.Xid {
	n, err := unix.Read(f.fd, f.first[:])
	if n <= 0 && err != unix.EPIPE && err != unix.EINVAL { // those two mean that older entries were skipped
		return nil
	}
	begin := f.first[:max(n, 0)]
	c := newCollector(&gpu.KernelMark{})
	_ = drain(func(b []byte) (n int, err error) { // after a failure the next call goes on, as does the end of each job
		if n = copy(b, begin); n > 0 {
			begin = begin[n:]
			return n, nil
		}
		return unix.Read(f.fd, b)
	}, c)
	return c.log.Xids
}
