package state

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"bookend/internal/gpu"
)

// maxCards is more cards and MIG instances than a node has: 16 cards of 7 instances.
const maxCards = 128

// ErrEpoch: the epoch of what is to be recorded is not known in all its parts, so it would hold for no sample.
var ErrEpoch = errors.New("the driver's epoch is unknown")

// perCard is a file with one entry of a kind for each card of the node.
type perCard[T any] struct {
	file[cards[T]]
	id func(T) gpu.ID        // the card's
	at func(T) time.Duration // CLOCK_BOOTTIME: of too many the oldest go
}

// cards is its content.
type cards[T any] struct {
	Version int `json:"version"`
	Cards   []T `json:"cards"` // sorted by card
}

// cardFile makes one; wrong says why an entry cannot be true, empty if it can.
func cardFile[T any](
	name string, most int64, id func(T) gpu.ID, at func(T) time.Duration, wrong func(T) string,
) perCard[T] {
	sound := func(all cards[T]) string {
		for i, c := range all.Cards {
			if why := wrong(c); id(c) == "" || why != "" || i > 0 && id(all.Cards[i-1]) >= id(c) {
				return fmt.Sprintf("GPU %d is %q%s", i, id(c), why)
			}
		}
		return otherVersion(all.Version)
	}
	return perCard[T]{file[cards[T]]{name, most, sound}, id, at}
}

// all returns every entry by its card. An unusable file is a Damage, set aside; then nothing is known.
func (f perCard[T]) all(s *Store) (map[gpu.ID]T, error) {
	content, err := f.get(s)
	known := map[gpu.ID]T{}
	for _, c := range orNone(content).Cards {
		known[f.id(c)] = c
	}
	return known, err
}

// edit changes the entries. A damaged file is set aside and begun anew.
func (f perCard[T]) edit(s *Store, edit func([]T) []T) error {
	return f.change(s, func(now *cards[T]) (*cards[T], error) {
		list := edit(orNone(now).Cards)
		slices.SortStableFunc(list, func(a, b T) int { return cmp.Compare(f.at(b), f.at(a)) })
		list = list[:min(len(list), maxCards)]
		slices.SortStableFunc(list, func(a, b T) int { return cmp.Compare(f.id(a), f.id(b)) })
		return &cards[T]{fileVersion, list}, nil
	})
}
