package main

import (
	"errors"
	"fmt"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/safefile"

	"golang.org/x/sys/unix"
)

// descriptors are the two lowest that were free before CUDA started: room for a lock and its folder.
//
// The kernel gives a dying process's descriptors back from the last to the first. A lock below the driver's own lasts
// until these are gone, so that nobody who gets it meets the memory that the test had. This helps and is not needed:
// a reader looks again before he judges.
type descriptors struct{ pipe []int }

func (d *descriptors) reserve() {
	pipe := make([]int, 2)
	if unix.Pipe2(pipe, unix.O_CLOEXEC) == nil {
		d.pipe = pipe
	}
}

func (d *descriptors) giveUp() {
	for _, fd := range d.pipe {
		_ = unix.Close(fd)
	}
	d.pipe = nil
}

// lock takes a device's lock, or says why it was not to be had. Threat: a lock file of another's making would be held
// for ever: safefile takes none but root's own, in root's own folder.
func (p *prober) lock(id gpu.ID) (release func(), why string) {
	file, named := p.req.Probe.Locks[id]
	if !named {
		return func() {}, "" // nobody asked for any
	}
	begin := p.boot()
	wait := max(0, min(p.wait, p.end-begin))
	p.low.giveUp()
	unlock, err := safefile.Lock(file, wait, true)
	p.wait -= p.boot() - begin
	if errors.Is(err, safefile.ErrLocked) {
		err = fmt.Errorf("somebody else was testing or judging it for %v", wait.Round(time.Millisecond))
	}
	if err != nil {
		p.low.reserve()
		return nil, err.Error()
	}
	return func() { unlock(); p.low.reserve() }, ""
}
