package child

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// pipes are the child's three descriptors. Our ends are non-blocking, so that deadlines and Close work; the child's
// ends become blocking, as programs expect, when Fd is called. All are close-on-exec from the start.
type pipes struct {
	stdin, stdout, stderr *os.File // ours
	theirs                [3]*os.File
}

func openPipes() (*pipes, error) {
	p := &pipes{}
	for i, end := range []**os.File{&p.stdin, &p.stdout, &p.stderr} {
		r, w, err := os.Pipe()
		if err != nil {
			p.closeOurs()
			p.closeTheirs()
			return nil, fmt.Errorf("open pipe: %w", err)
		}
		if *end, p.theirs[i] = r, w; i == 0 {
			*end, p.theirs[i] = w, r
		}
	}
	return p, nil
}

func (p *pipes) closeTheirs() { closeAll(p.theirs[:]...) }

func (p *pipes) closeOurs() { closeAll(p.stdin, p.stdout, p.stderr) }

func closeAll(files ...*os.File) {
	for _, f := range files {
		_ = f.Close() // a nil file does no harm
	}
}

// hangUp ends feed and gather, even if another process still holds the other ends.
func (p *pipes) hangUp() {
	past := time.Unix(1, 0)
	_ = p.stdin.Close()
	_ = p.stdout.SetReadDeadline(past)
	_ = p.stderr.SetReadDeadline(past)
}

// feed writes the request in a goroutine, because a child may not read it. A child that closes its end early is not an
// error here (EPIPE; Go raises SIGPIPE only for descriptors 1 and 2): its answer counts. done gets nil or a panic.
func feed(w *os.File, request []byte, hold bool) <-chan error {
	done := make(chan error, 1)
	Go(func(p *Panic) { done <- p }, func() {
		_, _ = w.Write(request)
		if !hold {
			_ = w.Close()
		}
		done <- nil
	})
	return done
}

type output struct {
	bytes []byte
	over  bool // there was more than the limit
	err   error
}

// gather reads one pipe to its end. It reads on beyond what is kept, so that the child never blocks.
func gather(r *os.File, k keeper) <-chan output {
	done := make(chan output, 1)
	Go(func(p *Panic) { done <- output{err: p} }, func() {
		if _, err := io.Copy(&k, r); errors.Is(err, os.ErrDeadlineExceeded) {
			k.drain(r)
		}
		done <- k.output
	})
	return done
}

// keeper is a writer that keeps the first limit bytes, and closes flood, if set, when there are more.
type keeper struct {
	output
	limit    int
	flood    chan<- struct{}
	answered chan<- struct{}               // closed at the end of the first line; nil for none
	onLine   func(line []byte) (more bool) // gets the output line by line instead
}

func (k *keeper) Write(b []byte) (int, error) {
	if k.answered != nil && bytes.IndexByte(b, '\n') >= 0 {
		close(k.answered)
		k.answered = nil
	}
	n := len(b)
	for k.onLine != nil && !k.over {
		line, rest, whole := bytes.Cut(b, []byte{'\n'})
		if !whole || len(k.bytes)+len(line) > k.limit {
			break
		}
		if !k.onLine(append(k.bytes, line...)) {
			k.overflow()
		}
		k.bytes, b = k.bytes[:0], rest
	}
	room := min(len(b), k.limit-len(k.bytes))
	k.bytes = append(k.bytes, b[:room]...)
	if room < len(b) {
		k.overflow()
	}
	return n, nil
}

func (k *keeper) overflow() {
	if !k.over && k.flood != nil {
		close(k.flood)
	}
	k.over = true
}

// drain reads what is in the pipe when the child has ended, without waiting: no wait was enough for 64 hooks at once.
func (k *keeper) drain(r *os.File) {
	_ = r.SetReadDeadline(time.Time{})
	raw, err := r.SyscallConn()
	buf := make([]byte, 32<<10)
	for n := 1; err == nil && n > 0 && !k.over; {
		n = 0
		_ = raw.Read(func(fd uintptr) bool {
			for n, err = unix.Read(int(fd), buf); errors.Is(err, unix.EINTR); {
				n, err = unix.Read(int(fd), buf)
			}
			return true // never wait for more
		})
		_, _ = k.Write(buf[:max(0, n)])
	}
}
