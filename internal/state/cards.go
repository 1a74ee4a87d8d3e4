package state

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/health"
	"bookend/internal/safefile"
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
	return perCard[T]{file[cards[T]]{name: name, most: most, wrong: sound}, id, at}
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

const maxResidents = 64 // services on one card

// baselineFile holds 128 cards with a few services each: about 0.3 KiB a card and 0.1 KiB a service.
var baselineFile = cardFile("baseline.json", 256<<10,
	func(b finding.Baseline) gpu.ID { return b.GPU },
	func(b finding.Baseline) time.Duration { return b.At },
	func(b finding.Baseline) string { // it must explain no memory
		if b.Bytes <= finding.MaxBaseline {
			return ""
		}
		return fmt.Sprintf(" with %d bytes", b.Bytes)
	})

// Baselines returns what each card of the node carries without any job. It holds for the epoch that each names: what
// is of another counts for nothing. An unusable file is a Damage, set aside; then no baseline is known.
func (s *Store) Baselines() (map[gpu.ID]finding.Baseline, error) { return baselineFile.all(s) }

// PutBaseline records one card's baseline, in place of what was known of that card. Baselines of other epochs are
// void and go. One above finding.MaxBaseline is refused; one without a known epoch is ErrEpoch.
func (s *Store) PutBaseline(b finding.Baseline) error {
	switch {
	case !b.Epoch.Same(b.Epoch):
		return fmt.Errorf("put baseline of %q: %w", b.GPU, ErrEpoch)
	case b.GPU == "" || b.Bytes > finding.MaxBaseline || len(b.Residents) > maxResidents:
		return fmt.Errorf("put baseline of %q: %d bytes, %d processes: %w",
			b.GPU, b.Bytes, len(b.Residents), safefile.ErrTooLarge)
	}
	return baselineFile.edit(s, func(cards []finding.Baseline) []finding.Baseline {
		void := func(o finding.Baseline) bool { return o.GPU == b.GPU || !o.Epoch.Same(b.Epoch) }
		return append(slices.DeleteFunc(cards, void), b)
	})
}

// DropBaselines forgets what is known of these cards, accepted or learned. Of a card without a baseline there is
// nothing to forget.
func (s *Store) DropBaselines(ids ...gpu.ID) error {
	return baselineFile.edit(s, func(cards []finding.Baseline) []finding.Baseline {
		return slices.DeleteFunc(cards, func(o finding.Baseline) bool { return slices.Contains(ids, o.GPU) })
	})
}

// probesFile holds 128 cards, each of them broken, with texts of a backend's length (serve.Bounded): 2 KiB a card.
var probesFile = cardFile("probes.json", 512<<10,
	func(r health.TestRecord) gpu.ID { return r.Probe.Device },
	func(r health.TestRecord) time.Duration { return r.Probe.At },
	func(health.TestRecord) string { return "" })

// Probes returns the last test of each card of the node, good for what health.TestRecord.Distrust makes of it. An
// unusable file is a Damage, set aside; then no test is known.
func (s *Store) Probes() (map[gpu.ID]health.TestRecord, error) { return probesFile.all(s) }

// PutProbes records tests, each in place of what was known of its card. Tests of other epochs than the first one's are
// void and go. A record without a GPU or a known epoch is ErrEpoch: nobody could trust it.
func (s *Store) PutProbes(records ...health.TestRecord) error {
	for _, r := range records {
		if !r.Epoch.Same(records[0].Epoch) || r.Probe.Device == "" {
			return fmt.Errorf("put test of %q: %w", r.Probe.Device, ErrEpoch)
		}
	}
	if len(records) == 0 {
		return nil
	}
	return probesFile.edit(s, func(cards []health.TestRecord) []health.TestRecord {
		for _, r := range records {
			r.Wall = r.Wall.UTC().Round(0)
			cards = append(slices.DeleteFunc(cards, func(o health.TestRecord) bool {
				return r.Probe.Device == o.Probe.Device || !o.Epoch.Same(r.Epoch)
			}), r)
		}
		return cards
	})
}
