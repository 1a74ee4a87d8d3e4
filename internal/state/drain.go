package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"bookend/internal/drain"
)

const (
	maxDrain     = 64 << 10 // 512 exits of 50 bytes and 64 causes of 100
	maxDrainText = 4 << 10  // PATH_MAX
)

var drainFile = file[drainContent]{"drain.json", maxDrain, wrongDrain}

// ErrChanged: another program has changed what is remembered of the node's drain since it was read.
var ErrChanged = errors.New("the memory of the node's drain has changed meanwhile")

// drainContent is the file's content.
type drainContent struct {
	Version int `json:"version"`
	drain.Memory
}

// Drain returns what the node remembers of its drain, nothing where nothing is. An unusable file is a Damage, set
// aside: then nothing is remembered, and no reason that stands is ours.
func (s *Store) Drain() (drain.Memory, error) {
	c, err := drainFile.get(s)
	return orNone(c).Memory, err
}

// SwapDrain replaces what is remembered, and gives ErrChanged where that is not what seen says any more.
func (s *Store) SwapDrain(seen, next drain.Memory) error {
	return drainFile.change(s, func(now *drainContent) (*drainContent, error) {
		if !equalDrain(orNone(now).Memory, seen) {
			return nil, ErrChanged
		}
		return &drainContent{fileVersion, next}, nil
	})
}

// equalDrain compares what would be written.
func equalDrain(a, b drain.Memory) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// wrongDrain says why this cannot be what was written, empty where it can: what is not surely ours must never make a
// reason ours.
func wrongDrain(c drainContent) string {
	if why := otherVersion(c.Version); why != "" {
		return why
	}
	m := c.Memory
	if len(m.Settled) > drain.MaxSettled {
		return fmt.Sprintf("%d settled exits", len(m.Settled))
	}
	w := m.Written
	if w == nil {
		return ""
	}
	switch {
	case !drain.Recorded(w.Reason):
		return fmt.Sprintf("the reason %.200q is none of ours", w.Reason)
	case len(w.Causes) == 0 || len(w.Causes) > drain.MaxCauses:
		return fmt.Sprintf("%d causes", len(w.Causes))
	case w.Clean < 0:
		return fmt.Sprintf("clean %d times", w.Clean)
	case w.Wall.IsZero():
		return "a reason without a time"
	case len(w.Conf) > maxDrainText:
		return "the path of slurm.conf is too long"
	}
	return ""
}
