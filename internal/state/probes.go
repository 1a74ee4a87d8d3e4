package state

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"bookend/internal/gpu"
	"bookend/internal/probe"
	"bookend/internal/safefile"
)

const (
	probesFile    = "probes.json"
	probesVersion = 1
	maxProbes     = 128       // as maxBaselines
	maxProbeText  = 300       // bytes of each text that came from a backend
	maxProbeBytes = 512 << 10 // so many cards, each of them broken, with texts of that length: 2 KiB a card, and escapes
	noMPS         = "no-mps"
)

// probes is the shared file.
type probes struct {
	Version int            `json:"version"`
	Cards   []probe.Record `json:"cards"` // sorted by device
}

// Probes returns the last test of each card of the node, good for what probe.Record.Trusted makes of it. An unusable
// file is a Damage, set aside; then no test is known.
func (s *Store) Probes() (map[gpu.ID]probe.Record, error) {
	p, err := s.readProbes()
	if unusable(err) {
		p, err = s.rescueProbes()
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	known := map[gpu.ID]probe.Record{}
	if err != nil {
		return known, fmt.Errorf("read tests of cards: %w", err)
	}
	for _, r := range p.Cards {
		known[r.Probe.Device] = r
	}
	return known, nil
}

// PutProbes records tests, each in place of what was known of its card. Tests of other epochs than the first one's are
// void and go. A record without a known epoch is ErrEpoch: nobody could trust it.
func (s *Store) PutProbes(records ...probe.Record) error {
	fresh := make([]probe.Record, 0, len(records))
	for _, r := range records {
		switch {
		case !r.Epoch.Same(records[0].Epoch):
			return fmt.Errorf("put test of %q: %w", r.Probe.Device, ErrEpoch)
		case r.Probe.Device == "":
			return fmt.Errorf("put test of a card without id: %w", errRecord)
		}
		fresh = append(fresh, clipped(r))
	}
	if len(fresh) == 0 {
		return nil
	}
	if err := s.locked(lockOther, func() error { return s.changeProbes(fresh) }); err != nil {
		return fmt.Errorf("put tests of cards: %w", err)
	}
	return nil
}

// changeProbes rewrites the shared file. A damaged one is set aside and begun anew: cards are tested again.
func (s *Store) changeProbes(fresh []probe.Record) error {
	p, err := s.readProbes()
	switch {
	case unusable(err):
		s.moveAside(probesFile, probesFile)
		p = probes{}
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	cards := slices.DeleteFunc(p.Cards, func(o probe.Record) bool {
		same := func(r probe.Record) bool { return r.Probe.Device == o.Probe.Device }
		return !o.Epoch.Same(fresh[0].Epoch) || slices.ContainsFunc(fresh, same)
	})
	cards = append(cards, fresh...)
	slices.SortStableFunc(cards, func(a, b probe.Record) int { return cmp.Compare(b.Probe.At, a.Probe.At) })
	cards = cards[:min(len(cards), maxProbes)]
	slices.SortStableFunc(cards, func(a, b probe.Record) int { return cmp.Compare(a.Probe.Device, b.Probe.Device) })
	data, err := json.Marshal(probes{probesVersion, cards})
	if err == nil && len(data) >= maxProbeBytes {
		err = fmt.Errorf("%d bytes: %w", len(data), safefile.ErrTooLarge)
	}
	if err != nil {
		return err
	}
	return safefile.Replace(s.dir, probesFile, append(data, '\n'), 0o600)
}

// rescueProbes sets the shared file aside. It looks again under the lock: whoever held that may have repaired it.
func (s *Store) rescueProbes() (p probes, err error) {
	lock := s.locked(lockOther, func() error {
		if p, err = s.readProbes(); unusable(err) {
			s.moveAside(probesFile, probesFile)
			err = Damage{filepath.Join(s.dir, probesFile), err.Error()}
		}
		return nil
	})
	return p, errors.Join(lock, err)
}

// readProbes reads the shared file. Anything but a whole one of this version is errRecord: what is not surely a test
// must not stand for one.
func (s *Store) readProbes() (probes, error) {
	// Threat: none from users, who cannot write here; damage and mistakes are refused all the same.
	data, err := safefile.Read(s.dir, probesFile, maxProbeBytes)
	if err != nil {
		return probes{}, err
	}
	var p probes
	if err := json.Unmarshal(data, &p); err != nil {
		return probes{}, fmt.Errorf("%w: %v", errRecord, err)
	}
	if p.Version != probesVersion {
		return probes{}, fmt.Errorf("%w: version %d, not %d", errRecord, p.Version, probesVersion)
	}
	for i, r := range p.Cards {
		if r.Probe.Device == "" || i > 0 && p.Cards[i-1].Probe.Device >= r.Probe.Device {
			return probes{}, fmt.Errorf("%w: test %d is of %q", errRecord, i, r.Probe.Device)
		}
	}
	return p, nil
}

// clipped bounds the texts of a record, which came from a backend.
func clipped(r probe.Record) probe.Record {
	cut := func(s *string) { *s = (*s)[:min(len(*s), maxProbeText)] }
	r.Wall = r.Wall.UTC().Round(0)
	cut(&r.Probe.Why)
	if r.Probe.Error == nil {
		return r
	}
	e := *r.Probe.Error
	for _, text := range []*string{&e.Call, &e.Name, &e.Meaning, &e.Remedy} {
		cut(text)
	}
	r.Probe.Error = &e
	return r
}

// NoMPS returns an empty folder of this node's: a process that looks there for a multi-process service (MPS) finds none,
// and so never becomes anybody's client.
func (s *Store) NoMPS() (string, error) {
	path := filepath.Join(s.dir, noMPS)
	if err := makeFolder(path, 0o700, false); err != nil {
		return "", fmt.Errorf("make empty folder: %w", err)
	}
	// Threat: none from users, who cannot write here; whatever stands in it all the same might be taken for a service.
	entries, err := os.ReadDir(path)
	if err != nil {
		return "", fmt.Errorf("make empty folder: %w", err)
	}
	if len(entries) > 0 {
		return "", fmt.Errorf("make empty folder: %q is not empty", path)
	}
	return path, nil
}
