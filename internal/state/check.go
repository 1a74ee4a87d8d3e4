package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"bookend/internal/ledger"
	"bookend/internal/safefile"
)

// Files of the health check, their formats, and what each may have: 512 looks and 512 processes are some 160 KiB.
const (
	checkLock      = "lock-check"
	checkFile      = "check.json"
	sightedFile    = "sighted.json"
	checkVersion   = 1
	sightedVersion = 1
	maxCheck       = 512 << 10
	maxSighted     = 512 << 10
)

// BeOnlyCheck makes the caller the node's one health check at work, until release or the process's end. It gives ErrLocked
// where there is another.
func (s *Store) BeOnlyCheck() (release func(), err error) {
	release, err = safefile.Lock(filepath.Join(s.dir, checkLock), 0, true)
	if err != nil {
		return nil, fmt.Errorf("begin health check: %w", err)
	}
	return release, nil
}

// versioned is a file of one value.
type versioned[T any] struct {
	Version int `json:"version"`
	Value   T   `json:"value"`
}

// LastCheck is what the node's last health check saw, nil where there was none. An unusable file is a Damage, set aside.
func (s *Store) LastCheck() (*ledger.Check, error) {
	c, err := readVersioned[ledger.Check](s, checkFile, checkVersion, maxCheck)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read last health check: %w", err)
	}
	return &c, nil
}

// PutLastCheck keeps what a health check saw, for the next one and for the command line. The caller is the only check. Of too
// much it keeps the verdict rather than nothing.
func (s *Store) PutLastCheck(c ledger.Check) error {
	c.Wall = c.Wall.UTC().Round(0)
	if err := writeVersioned(s, checkFile, checkVersion, maxCheck, c); err != nil {
		return fmt.Errorf("keep health check: %w", err)
	}
	return nil
}

// Sighted is what health checks have seen on the cards; nothing where there was none. An unusable file is a Damage, set
// aside.
func (s *Store) Sighted() (ledger.Sighted, error) {
	seen, err := readVersioned[ledger.Sighted](s, sightedFile, sightedVersion, maxSighted)
	if errors.Is(err, fs.ErrNotExist) {
		return ledger.Sighted{}, nil
	}
	if err != nil {
		return ledger.Sighted{}, fmt.Errorf("read sightings: %w", err)
	}
	return seen, nil
}

// PutSighted keeps what health checks have seen. The caller is the only check.
func (s *Store) PutSighted(seen ledger.Sighted) error {
	if err := writeVersioned(s, sightedFile, sightedVersion, maxSighted, seen); err != nil {
		return fmt.Errorf("keep sightings: %w", err)
	}
	return nil
}

func readVersioned[T any](s *Store, name string, version int, most int64) (T, error) {
	return salvaged(s, name, func() (T, error) {
		var v versioned[T]
		err := s.readJSON(name, most, &v)
		if err == nil {
			err = ofVersion(v.Version, version)
		}
		if err != nil {
			v = versioned[T]{} // not a part of it
		}
		return v.Value, err
	})
}

// writeVersioned writes as much of a value as there is room for.
func writeVersioned[T interface{ Bounded(level int) T }](s *Store, name string, version int, most int64, value T) error {
	data, err := fitting(func(level int) any { return versioned[T]{version, value.Bounded(level)} }, most)
	if err != nil {
		return err
	}
	return s.locked(lockOther, func() error { return s.writeJSON(name, most, json.RawMessage(data)) })
}
