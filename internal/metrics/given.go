package metrics

import (
	"cmp"
	"slices"
	"time"

	"bookend/internal/gpu"
)

// GivenCard is what a hook says of one card or MIG instance that its job was given. What is nil was not seen, and leaves the
// earlier figure.
type GivenCard struct {
	GPU  int    `json:"gpu"` // Slurm's number
	UUID gpu.ID `json:"uuid"`
	// Settled is how long its memory took to come to rest; nil where it did not.
	Settled *time.Duration `json:"settled_ns,omitempty"`
	Left    uint64         `json:"left,omitempty"` // what the job left that has ended, in bytes
	// Probe is what this run's test allocation came to, empty where it made none.
	Probe gpu.ProbeResult `json:"probe,omitempty"`
	// Gap is how much of the free memory could not be had in one block, in bytes.
	Gap *uint64 `json:"gap,omitempty"`
}

// A card that no job was given for so long is forgotten, and so are the oldest beyond so many: MIG instances come and go,
// and what is counted stays bounded.
const (
	cardAge  = 30 * 24 * time.Hour
	mostCard = 256
)

// given counts what a run says of a card.
func (b *book) given(r Run, c GivenCard) {
	if c.UUID == "" {
		return
	}
	labels := []string{index(c.GPU), string(c.UUID)}
	if c.Settled != nil {
		b.observe(settleTime, c.Settled.Seconds(), string(r.Hook))
	}
	if c.Probe != "" {
		*b.at(probes, string(c.Probe))++
	}
	if c.Gap != nil {
		*b.at(probeGap, labels...) = float64(*c.Gap)
	}
	*b.at(leftByJobs, labels...) += float64(c.Left)
	*b.at(lastGiven, labels...) = seconds(r.At)
}

// forget drops what is said of cards that no job was given for long.
func (b *book) forget(now time.Time) {
	var seen []sample
	for _, s := range b.Samples {
		if s.Name == lastGiven {
			seen = append(seen, s)
		}
	}
	slices.SortFunc(seen, func(x, y sample) int { return cmp.Compare(y.Value, x.Value) })
	for i, card := range seen {
		if i < mostCard && card.Value >= seconds(now.Add(-cardAge)) {
			continue
		}
		b.Samples = slices.DeleteFunc(b.Samples, func(s sample) bool {
			return slices.Contains([]string{leftByJobs, probeGap, lastGiven}, s.Name) && slices.Equal(s.Labels, card.Labels)
		})
	}
}
