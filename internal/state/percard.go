package state

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"bookend/internal/gpu"
)

// maxCards is more cards and MIG instances than a node has: 16 cards of 7 instances.
const maxCards = 128

// ErrEpoch: the epoch of what is to be recorded is not known in all its parts, so it would hold for no look.
var ErrEpoch = errors.New("the driver's epoch is unknown")

// perCard is a shared file with one entry of a kind for each card of the node.
type perCard[T any] struct {
	file    string
	version int
	most    int64                    // bytes of the file
	id      func(T) gpu.ID           // the card's
	at      func(T) time.Duration    // CLOCK_BOOTTIME: of too many the oldest go
	wrong   func(T) (problem string) // why an entry cannot be true, empty where it can
}

// cardFile is the file's content.
type cardFile[T any] struct {
	Version int `json:"version"`
	Cards   []T `json:"cards"` // sorted by card
}

// all returns every entry by its card. An unusable file is a Damage, set aside; then nothing is known.
func (f perCard[T]) all(s *Store) (map[gpu.ID]T, error) {
	cards, err := salvaged(s, f.file, func() ([]T, error) { return f.read(s) })
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	known := map[gpu.ID]T{}
	if err != nil {
		return known, err
	}
	for _, c := range cards {
		known[f.id(c)] = c
	}
	return known, nil
}

// change rewrites the file under its lock. A damaged one is set aside and begun anew.
func (f perCard[T]) change(s *Store, change func([]T) []T) error {
	return s.locked(lockOther, func() error {
		cards, err := f.read(s)
		switch {
		case unusable(err):
			s.moveAside(f.file, f.file)
			cards = nil
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return err
		}
		return f.write(s, change(cards))
	})
}

func (f perCard[T]) write(s *Store, cards []T) error {
	slices.SortStableFunc(cards, func(a, b T) int { return cmp.Compare(f.at(b), f.at(a)) })
	cards = cards[:min(len(cards), maxCards)]
	slices.SortStableFunc(cards, func(a, b T) int { return cmp.Compare(f.id(a), f.id(b)) })
	return s.writeJSON(f.file, f.most, cardFile[T]{f.version, cards})
}

// read reads the file. Anything but a whole one of this version is errRecord: what is not surely an entry must not stand
// for one.
func (f perCard[T]) read(s *Store) ([]T, error) {
	var content cardFile[T]
	if err := s.readJSON(f.file, f.most, &content); err != nil {
		return nil, err
	}
	if err := ofVersion(content.Version, f.version); err != nil {
		return nil, err
	}
	for i, c := range content.Cards {
		if f.id(c) == "" || f.wrong(c) != "" || i > 0 && f.id(content.Cards[i-1]) >= f.id(c) {
			return nil, fmt.Errorf("%w: card %d is %q%s", errRecord, i, f.id(c), f.wrong(c))
		}
	}
	return content.Cards, nil
}
