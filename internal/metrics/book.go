package metrics

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/record"
	"bookend/internal/safefile"
	"bookend/internal/safetext"
)

type book struct {
	Version  int       `json:"version"`
	Mode     string    `json:"mode"` // of the last run that named it
	Samples  []sample  `json:"samples"`
	Troubles []Trouble `json:"troubles"`
}

type sample struct {
	Name   string   `json:"name"`             // of its family
	Labels []string `json:"labels,omitempty"` // values, in the order of the family's labels
	Value  float64  `json:"value"`            // a histogram's sum
	// Counts are, for a histogram, the values in each bucket; the last bucket has no bound.
	Counts []uint64 `json:"counts,omitempty"`
}

// Trouble is a trouble of Bookend itself, or of the driver as a whole, as seen by hooks.
type Trouble struct {
	Code   catalog.Code  `json:"code"`
	Since  time.Time     `json:"since"` // when it began: since then no day was without it
	Last   time.Time     `json:"last"`
	Count  uint64        `json:"count"`            // runs that met it since Since
	Hook   Hook          `json:"hook"`             // the last that met it
	Job    uint32        `json:"job"`              // the job of that hook
	Clear  uint64        `json:"clear,omitempty"`  // runs of any hook after Last
	Detail safetext.Safe `json:"detail,omitempty"` // of the last run that met it
}

func (b *book) sample(name string, labels ...string) *sample {
	i := slices.IndexFunc(b.Samples, func(s sample) bool { return s.Name == name && slices.Equal(s.Labels, labels) })
	if i < 0 {
		i = len(b.Samples)
		b.Samples = append(b.Samples, sample{Name: name, Labels: labels})
	}
	return &b.Samples[i]
}

func (b *book) at(name string, labels ...string) *float64 { return &b.sample(name, labels...).Value }

func (b *book) observe(name string, value float64, label string) {
	bounds := families()[name].bounds
	value = max(0, value)
	s := b.sample(name, label)
	if s.Value += value; len(s.Counts) == 0 {
		s.Counts = make([]uint64, len(bounds)+1)
	}
	bucket, _ := slices.BinarySearch(bounds, value)
	s.Counts[bucket]++
}

func (b *book) add(r JobRun) {
	hook := string(r.Hook)
	*b.at(hookRuns, hook, string(r.Action))++
	if r.Action == catalog.ToDrain && !r.Again {
		*b.at(drains, hook)++
	}
	if r.Held && !r.Again {
		*b.at(heldDrains, hook)++
	}
	*b.at(lastRun, hook) = float64(r.At.UnixMilli()) / 1000
	*b.at(lastOwnErrors, hook) = 0
	if r.Mode != "" {
		b.Mode = r.Mode
	}
	b.jobs(r.Running, r.Quarantined)
	for i := range b.Troubles {
		b.Troubles[i].Clear++
	}
	for _, f := range r.Findings {
		b.find(r, f)
	}
	if r.Check != nil {
		b.check(*r.Check)
		return
	}
	b.observe(hookTime, r.Took.Seconds(), hook)
	for _, took := range r.Settled {
		b.observe(settleTime, took.Seconds(), hook)
	}
	for _, cause := range r.OutOfMemory {
		*b.at(outOfMemory, string(cause))++
	}
	b.record(r.Recorded)
}

func (b *book) record(r *Recorded) {
	if r == nil {
		return
	}
	*b.at(recorded, r.Seen)++
	for _, part := range r.Peaks {
		b.observe(peakShare, part, r.Partition)
	}
	for _, part := range r.Busy {
		b.observe(busyShare, part, r.Partition)
	}
	*b.at(unusedGPUs, r.Partition) += float64(r.Unused) // from 0: the first that is not used is an increase
}

// check replaces what the last health check saw by what this one did: a GPU that was not read has no figure.
func (b *book) check(c record.Check) {
	b.Samples = slices.DeleteFunc(b.Samples, func(s sample) bool {
		return s.Name == usedBytes || s.Name == unexplainedBytes || s.Name == leakedBytes
	})
	for _, card := range c.Cards {
		id := card.Device.ID
		reading, read := c.Snapshot.Reading(id)
		if !read {
			continue
		}
		show := func(name string, bytes uint64) { *b.at(name, number(card.Index), string(id)) = float64(bytes) }
		if reading.Memory.Used.Known() {
			show(usedBytes, reading.Memory.Used.Bytes)
		}
		if bytes, known := c.Unexplained[id]; known {
			show(unexplainedBytes, bytes)
		}
		show(leakedBytes, c.Leaked[id])
	}
}

const aDay = 24 * time.Hour

func (b *book) find(r JobRun, f Finding) {
	*b.at(findings, string(f.Code), string(r.Hook))++
	if !f.Own {
		return
	}
	*b.at(ownErrors, string(f.Code))++
	*b.at(lastOwnErrors, string(r.Hook))++
	i := slices.IndexFunc(b.Troubles, func(t Trouble) bool { return t.Code == f.Code })
	if i < 0 {
		i = len(b.Troubles)
		b.Troubles = append(b.Troubles, Trouble{Code: f.Code, Clear: 1})
	}
	t := &b.Troubles[i]
	if r.At.Sub(t.Last) > aDay {
		t.Since, t.Count = r.At, 0
	}
	if t.Clear > 0 { // else this run is already counted
		t.Count++
	}
	t.Last, t.Hook, t.Job, t.Clear = r.At, r.Hook, r.Job, 0
	t.Detail = safetext.Clean(f.Detail, maxDetail)
}

// bookVersion is the format version of counters.json; other versions are damaged. Additions do not change it: an
// earlier release drops them. A family's labels and buckets never change under its name.
const bookVersion = 1

// Bounds of the file: about 200 samples and 30 troubles take 30 KiB.
const (
	maxBook   = 256 << 10
	maxDetail = 300 // bytes of a trouble's detail
)

// ErrDamaged means that the counts could not be used, and that counting starts again.
var ErrDamaged = errors.New("counts are damaged")

// read reads the counts. It returns empty ones if there are none and, with ErrDamaged, if they cannot be used.
func read(folder string) (book, error) {
	// Threat: none from users, who cannot write here; damage and mistakes are refused nonetheless.
	data, err := safefile.Read(folder, bookName, maxBook)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return book{}, nil
	case errors.Is(err, safefile.ErrNotOurs) || errors.Is(err, safefile.ErrTooLarge):
		return book{}, fmt.Errorf("%w: %v", ErrDamaged, err)
	case err != nil:
		return book{}, err
	}
	return decode(data)
}

// decode returns ErrDamaged for anything but complete counts of this format. Unknown families are dropped.
func decode(data []byte) (book, error) {
	var b book
	err := json.Unmarshal(data, &b)
	if err == nil && b.Version != bookVersion {
		err = fmt.Errorf("version %d, not %d", b.Version, bookVersion)
	}
	b.Samples = slices.DeleteFunc(b.Samples, func(s sample) bool { _, known := families()[s.Name]; return !known })
	seen := map[string]bool{}
	for _, s := range b.Samples {
		key := fmt.Sprintf("%s%q", s.Name, s.Labels)
		if err == nil && (seen[key] || !s.whole()) {
			err = fmt.Errorf("sample %.200s", key)
		}
		seen[key] = true
	}
	if err != nil {
		return book{}, fmt.Errorf("%w: %v", ErrDamaged, err)
	}
	b.Troubles = slices.DeleteFunc(b.Troubles, func(t Trouble) bool {
		_, known := catalog.Lookup(t.Code)
		return !known
	})
	for i := range b.Troubles {
		b.Troubles[i].Detail = safetext.Keep(string(b.Troubles[i].Detail), maxDetail)
	}
	return b, nil
}

func (s sample) whole() bool {
	f := families()[s.Name]
	counts := len(s.Counts) == 0 || f.bounds != nil && len(s.Counts) == len(f.bounds)+1
	return len(s.Labels) == len(f.labels) && counts && s.Value >= 0
}

func (b *book) save(folder string) error {
	b.Version = bookVersion
	data, err := json.Marshal(b)
	if err == nil && len(data) >= maxBook {
		err = safefile.ErrTooLarge
	}
	if err == nil {
		err = safefile.Replace(folder, bookName, append(data, '\n'), 0o600)
	}
	return err
}
