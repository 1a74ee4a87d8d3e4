package state

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/health"
)

const (
	maxProbeText = 300 // bytes of each text that came from a backend
	noMPS        = "no-mps"
)

// probesFile holds 128 cards, each of them broken, with texts of that length: 2 KiB a card, and escapes.
var probesFile = cardFile("probes.json", 512<<10,
	func(r health.TestRecord) gpu.ID { return r.Probe.Device },
	func(r health.TestRecord) time.Duration { return r.Probe.At },
	func(health.TestRecord) string { return "" })

// Probes returns the last test of each card of the node, good for what health.TestRecord.Trusted makes of it. An
// unusable
// file is a Damage, set aside; then no test is known.
func (s *Store) Probes() (map[gpu.ID]health.TestRecord, error) { return probesFile.all(s) }

// PutProbes records tests, each in place of what was known of its card. Tests of other epochs than the first one's are
// void and go. A record without a known epoch is ErrEpoch: nobody could trust it.
func (s *Store) PutProbes(records ...health.TestRecord) error {
	fresh := make([]health.TestRecord, 0, len(records))
	for _, r := range records {
		switch {
		case !r.Epoch.Same(records[0].Epoch):
			return fmt.Errorf("put test of %q: %w", r.Probe.Device, ErrEpoch)
		case r.Probe.Device == "":
			return fmt.Errorf("put test of a GPU without id: %w", errRecord)
		}
		fresh = append(fresh, clipped(r))
	}
	if len(fresh) == 0 {
		return nil
	}
	return probesFile.edit(s, func(cards []health.TestRecord) []health.TestRecord {
		cards = slices.DeleteFunc(cards, func(o health.TestRecord) bool {
			same := func(r health.TestRecord) bool { return r.Probe.Device == o.Probe.Device }
			return !o.Epoch.Same(fresh[0].Epoch) || slices.ContainsFunc(fresh, same)
		})
		return append(cards, fresh...)
	})
}

// clipped bounds the texts of a record, which came from a backend.
func clipped(r health.TestRecord) health.TestRecord {
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
