package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"bookend/internal/drain"
)

const (
	drainFile    = "drain.json"
	drainVersion = 1
	maxDrain     = 64 << 10 // 512 exits of 50 bytes and 64 causes of 100
	maxDrainText = 4 << 10  // PATH_MAX
)

// ErrChanged: another program has changed what is remembered of the node's drain since it was read.
var ErrChanged = errors.New("the memory of the node's drain has changed meanwhile")

// drainContent is the file's content.
type drainContent struct {
	Version int `json:"version"`
	drain.Memory
}

// Drain returns what the node remembers of its drain, nothing where nothing is. An unusable file is a Damage, set aside: then
// nothing is remembered, and no reason that stands is ours.
func (s *Store) Drain() (drain.Memory, error) {
	m, err := salvaged(s, drainFile, s.readDrain)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return drain.Memory{}, nil
	case err != nil:
		return drain.Memory{}, fmt.Errorf("read drain: %w", err)
	}
	return m, nil
}

// SwapDrain replaces what is remembered, and gives ErrChanged where that is not what seen says any more.
func (s *Store) SwapDrain(seen, next drain.Memory) error {
	err := s.locked(lockOther, func() error {
		now, err := s.readDrain()
		switch {
		case unusable(err):
			s.moveAside(drainFile, drainFile)
			now = drain.Memory{}
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return err
		}
		if !equalDrain(now, seen) {
			return ErrChanged
		}
		return s.writeJSON(drainFile, maxDrain, drainContent{drainVersion, next})
	})
	if err != nil {
		return fmt.Errorf("remember drain: %w", err)
	}
	return nil
}

// equalDrain compares what would be written.
func equalDrain(a, b drain.Memory) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// readDrain reads the file. Anything but a whole one of this version is errRecord: what is not surely what we wrote must
// never make a reason ours.
func (s *Store) readDrain() (drain.Memory, error) {
	var c drainContent
	if err := s.readJSON(drainFile, maxDrain, &c); err != nil {
		return drain.Memory{}, err
	}
	if err := ofVersion(c.Version, drainVersion); err != nil {
		return drain.Memory{}, err
	}
	if why := wrongDrain(c.Memory); why != "" {
		return drain.Memory{}, fmt.Errorf("%w: %s", errRecord, why)
	}
	return c.Memory, nil
}

// wrongDrain says why this cannot be what was written, empty where it can.
func wrongDrain(m drain.Memory) string {
	if len(m.Settled) > drain.MaxSettled {
		return fmt.Sprintf("%d settled exits", len(m.Settled))
	}
	if m.Over != nil && !m.Over.Valid() {
		return fmt.Sprintf("%.200q of a drain that is over is neither ours nor Slurm's", m.Over.Reason)
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
