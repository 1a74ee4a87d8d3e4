package state

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"bookend/internal/finding"
	"bookend/internal/gpu"
	"bookend/internal/safefile"
)

const (
	baselineFile    = "baseline.json"
	baselineVersion = 1
	// maxBaselines is more cards and MIG instances than a node has: 16 cards of 7 instances.
	maxBaselines = 128
	maxResidents = 64 // services on one card
	// maxBaselineBytes holds so many cards with a few services each: about 0.3 KiB a card and 0.1 KiB a service.
	maxBaselineBytes = 256 << 10
)

// ErrEpoch: the epoch of a baseline is not known in all its parts, so it would hold for no look.
var ErrEpoch = errors.New("the driver's epoch is unknown")

// baselines is the shared file.
type baselines struct {
	Version int                `json:"version"`
	Cards   []finding.Baseline `json:"cards"` // sorted by GPU
}

// Baselines returns what each card of the node carries without any job. It holds for the epoch that each names: what
// is of another counts for nothing. An unusable file is a Damage, set aside; then no baseline is known.
func (s *Store) Baselines() (map[gpu.ID]finding.Baseline, error) {
	b, err := s.readBaselines()
	if unusable(err) {
		b, err = s.rescueBaselines()
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	known := map[gpu.ID]finding.Baseline{}
	if err != nil {
		return known, fmt.Errorf("read baselines: %w", err)
	}
	for _, card := range b.Cards {
		known[card.GPU] = card
	}
	return known, nil
}

// PutBaseline records one card's baseline, in place of what was known of that card. Baselines of other epochs are
// void and go. One above finding.MaxBaseline is refused; one without a known epoch is ErrEpoch.
func (s *Store) PutBaseline(b finding.Baseline) error {
	switch {
	case !b.Epoch.Same(b.Epoch):
		return fmt.Errorf("put baseline of %q: %w", b.GPU, ErrEpoch)
	case b.GPU == "" || b.Bytes > finding.MaxBaseline || len(b.Residents) > maxResidents:
		return fmt.Errorf("put baseline of %q: %d bytes, %d processes: %w", b.GPU, b.Bytes, len(b.Residents), safefile.ErrTooLarge)
	}
	err := s.changeBaselines(func(cards []finding.Baseline) []finding.Baseline {
		cards = slices.DeleteFunc(cards, func(o finding.Baseline) bool { return o.GPU == b.GPU || !o.Epoch.Same(b.Epoch) })
		return append(cards, b)
	})
	if err != nil {
		return fmt.Errorf("put baseline of %q: %w", b.GPU, err)
	}
	return nil
}

// DropBaselines forgets what is known of these cards, accepted or learned. Of a card without a baseline there is
// nothing to forget.
func (s *Store) DropBaselines(ids ...gpu.ID) error {
	err := s.changeBaselines(func(cards []finding.Baseline) []finding.Baseline {
		return slices.DeleteFunc(cards, func(o finding.Baseline) bool { return slices.Contains(ids, o.GPU) })
	})
	if err != nil {
		return fmt.Errorf("drop baselines: %w", err)
	}
	return nil
}

// changeBaselines rewrites the shared file under its lock. A damaged one is set aside and begun anew: baselines are
// learned again, and what was accepted has to be accepted again.
func (s *Store) changeBaselines(change func([]finding.Baseline) []finding.Baseline) error {
	return s.locked(lockOther, func() error {
		b, err := s.readBaselines()
		switch {
		case unusable(err):
			s.moveAside(baselineFile, baselineFile)
			b = baselines{}
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return err
		}
		cards := change(b.Cards)
		slices.SortStableFunc(cards, func(a, b finding.Baseline) int { return cmp.Compare(b.At, a.At) })
		cards = cards[:min(len(cards), maxBaselines)]
		slices.SortStableFunc(cards, func(a, b finding.Baseline) int { return cmp.Compare(a.GPU, b.GPU) })
		data, err := json.Marshal(baselines{baselineVersion, cards})
		if err == nil && len(data) >= maxBaselineBytes {
			err = fmt.Errorf("%d bytes: %w", len(data), safefile.ErrTooLarge)
		}
		if err != nil {
			return err
		}
		return safefile.Replace(s.dir, baselineFile, append(data, '\n'), 0o600)
	})
}

// rescueBaselines sets the shared file aside. It looks again under the lock: whoever held that may have repaired it.
func (s *Store) rescueBaselines() (b baselines, err error) {
	lock := s.locked(lockOther, func() error {
		if b, err = s.readBaselines(); unusable(err) {
			s.moveAside(baselineFile, baselineFile)
			err = Damage{filepath.Join(s.dir, baselineFile), err.Error()}
		}
		return nil
	})
	return b, errors.Join(lock, err)
}

// readBaselines reads the shared file. Anything but a whole one of this version is errRecord: what is not surely a
// baseline must explain no memory.
func (s *Store) readBaselines() (baselines, error) {
	// Threat: none from users, who cannot write here; damage and mistakes are refused all the same.
	data, err := safefile.Read(s.dir, baselineFile, maxBaselineBytes)
	if err != nil {
		return baselines{}, err
	}
	var b baselines
	if err := json.Unmarshal(data, &b); err != nil {
		return baselines{}, fmt.Errorf("%w: %v", errRecord, err)
	}
	if b.Version != baselineVersion {
		return baselines{}, fmt.Errorf("%w: version %d, not %d", errRecord, b.Version, baselineVersion)
	}
	for i, card := range b.Cards {
		if card.GPU == "" || card.Bytes > finding.MaxBaseline || i > 0 && b.Cards[i-1].GPU >= card.GPU {
			return baselines{}, fmt.Errorf("%w: card %d is %q with %d bytes", errRecord, i, card.GPU, card.Bytes)
		}
	}
	return b, nil
}
