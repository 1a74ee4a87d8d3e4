package state

import (
	"fmt"
	"slices"
	"time"

	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/safefile"
)

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
