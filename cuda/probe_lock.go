package main

import (
	"errors"
	"fmt"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/safefile"
)

// lock takes a device's lock, or says why it was not to be had. Threat: a lock file of another's making would be held
// for ever: safefile takes none but root's own, in root's own folder.
func (p *prober) lock(id gpu.ID) (release func(), why string) {
	file, named := p.req.Probe.Locks[id]
	if !named {
		return func() {}, "" // nobody asked for any
	}
	begin := p.boot()
	wait := max(0, min(p.wait, p.end-begin))
	unlock, err := safefile.Lock(file, wait, true)
	p.wait -= p.boot() - begin
	if errors.Is(err, safefile.ErrLocked) {
		err = fmt.Errorf("somebody else was testing or judging it for %v", wait.Round(time.Millisecond))
	}
	if err != nil {
		return nil, err.Error()
	}
	return unlock, ""
}
