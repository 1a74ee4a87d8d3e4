package state

import (
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/safefile"
)

// quietStep is the pause between two tries at locks that are held: a probe works for a few hundred milliseconds.
const quietStep = 5 * time.Millisecond

const noMPS = "no-mps"

// ProbeLock is the lock file of a GPU: whoever takes memory of it to test it holds the lock exclusively, and by
// flock, so that the lock ends with the process that holds it. Whoever judges that GPU's memory holds it shared.
func (s *Store) ProbeLock(id gpu.ID) string {
	return filepath.Join(s.dir, "probe-"+lockName(id)+".lock")
}

// lockName is an id as part of a file name. Threat: the id is the driver's and opaque: "..", "/" and the like must
// not lead out of the folder, so it is hashed.
func lockName(id gpu.ID) string {
	h := fnv.New128a()
	_, _ = h.Write([]byte(id)) // cannot fail: hash.Hash says so
	return fmt.Sprintf("%x", h.Sum(nil))
}

// Quiet waits until no probe is at work on these GPUs, for at most wait in all, and keeps probes off them until
// release, which must be called and may be called again. Of each GPU for which that did not succeed, busy says why.
func (s *Store) Quiet(ids []gpu.ID, wait time.Duration) (busy map[gpu.ID]string, release func()) {
	held := map[gpu.ID]func(){}
	release = func() {
		for id, unlock := range held {
			unlock()
			delete(held, id)
		}
	}
	over := time.NewTimer(wait)
	defer over.Stop()
	for {
		if busy = s.share(ids, held); len(busy) == 0 {
			return busy, release
		}
		select {
		case <-over.C:
			return busy, release
		case <-time.After(quietStep):
		}
	}
}

// share tries once for each lock that is not held yet.
func (s *Store) share(ids []gpu.ID, held map[gpu.ID]func()) (busy map[gpu.ID]string) {
	busy = map[gpu.ID]string{}
	for _, id := range ids {
		if held[id] != nil {
			continue
		}
		// Threat: whoever can open the file can lock it for ever: it is root's, 0600, in a folder of root's.
		unlock, err := safefile.Lock(s.ProbeLock(id), 0, false)
		switch {
		case err == nil:
			held[id] = unlock
		case errors.Is(err, ErrLocked):
			busy[id] = "a probe of Bookend was still at work on it"
		default:
			busy[id] = fmt.Sprintf("whether a probe of Bookend is at work on it could not be told: %v", err)
		}
	}
	return busy
}

// NoMPS returns an empty folder of this node's: a process that looks there for a multi-process service (MPS) finds
// none, and so never becomes anybody's client.
func (s *Store) NoMPS() (string, error) {
	path := filepath.Join(s.dir, noMPS)
	if err := makeFolder(path, 0o700, false); err != nil {
		return "", fmt.Errorf("make empty directory: %w", err)
	}
	// Threat: none from users, who cannot write here; whatever stands in it all the same might be taken for a service.
	entries, err := os.ReadDir(path)
	if err != nil {
		return "", fmt.Errorf("make empty directory: %w", err)
	}
	if len(entries) > 0 {
		return "", fmt.Errorf("make empty directory: %q is not empty", path)
	}
	return path, nil
}
