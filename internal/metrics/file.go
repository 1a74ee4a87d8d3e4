package metrics

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"bookend/internal/code"
	"bookend/internal/report"
	"bookend/internal/safefile"
)

// bookVersion is the format of counters.json. What is added to it (families, codes, fields of the book) is no new format:
// an earlier release keeps that as it is (later.go), and a downgrade loses nothing. A file of another format is a damaged one.
const bookVersion = 1

// Bounds of the file: some 200 samples and 30 troubles have 30 KiB.
const (
	maxBook   = 256 << 10
	maxDetail = 300 // bytes of a trouble's detail
)

// ErrDamaged: the counts could not be used, were set aside, and begin anew.
var ErrDamaged = errors.New("counts are damaged")

// load reads the counts, or begins anew: where there are none, and, with ErrDamaged, where they cannot be used.
func load(folder string) (book, error) {
	b, err := read(folder)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return book{}, nil
	case !errors.Is(err, ErrDamaged):
		return b, err
	}
	// Threat: none, the folder is root's alone.
	aside := filepath.Join(folder, damagedName)
	if moved := errors.Join(os.RemoveAll(aside), os.Rename(filepath.Join(folder, bookName), aside)); moved != nil {
		err = fmt.Errorf("%w; not set aside: %v", err, moved)
	}
	return book{}, err
}

func read(folder string) (book, error) {
	// Threat: none from users, who cannot write here; damage and mistakes are refused all the same.
	data, err := safefile.Read(folder, bookName, maxBook)
	if errors.Is(err, safefile.ErrNotOurs) || errors.Is(err, safefile.ErrTooLarge) {
		return book{}, fmt.Errorf("%w: %v", ErrDamaged, err)
	}
	if err != nil {
		return book{}, err
	}
	return decode(data)
}

// decode returns ErrDamaged for anything but whole counts of this format.
func decode(data []byte) (book, error) {
	var version int
	var samples, troubles []json.RawMessage
	b := book{}
	fields, err := split(data, map[string]any{"version": &version, "mode": &b.Mode, "samples": &samples, "troubles": &troubles})
	if err == nil && version != bookVersion {
		err = fmt.Errorf("version %d, not %d", version, bookVersion)
	}
	if err == nil {
		b.later.fields, err = fields, b.readSamples(samples)
	}
	if err == nil {
		err = b.readTroubles(troubles)
	}
	if err != nil {
		return book{}, fmt.Errorf("%w: %v", ErrDamaged, err)
	}
	return b, nil
}

// split reads an object's fields of these names, and returns the others as they are.
func split(data []byte, known map[string]any) (others map[string]json.RawMessage, err error) {
	if err := json.Unmarshal(data, &others); err != nil {
		return nil, err
	}
	for name, value := range known {
		if raw, is := others[name]; is {
			if err := json.Unmarshal(raw, value); err != nil {
				return nil, fmt.Errorf("%s: %v", name, err)
			}
		}
		delete(others, name)
	}
	return others, nil
}

func (b *book) readSamples(list []json.RawMessage) error {
	seen := map[string]bool{}
	for _, raw := range list {
		var s sample
		if err := json.Unmarshal(raw, &s); err != nil {
			return fmt.Errorf("sample: %v", err)
		}
		key := fmt.Sprintf("%s%q", s.Name, s.Labels)
		if seen[key] || !s.whole() {
			return fmt.Errorf("sample %.200s", key)
		}
		seen[key] = true
		if _, known := familyOf(s.Name); known {
			b.Samples = append(b.Samples, s)
		} else {
			b.later.samples = append(b.later.samples, unknownSample{s.Labels, raw})
		}
	}
	return nil
}

func (b *book) readTroubles(list []json.RawMessage) error {
	for _, raw := range list {
		var t Trouble
		if err := json.Unmarshal(raw, &t); err != nil {
			return fmt.Errorf("trouble: %v", err)
		}
		_, known := code.Lookup(t.Code)
		switch {
		case known:
			t.Detail = report.Keep(string(t.Detail), maxDetail)
			b.Troubles = append(b.Troubles, t)
		case mayBeCode(string(t.Code)):
			b.later.troubles = append(b.later.troubles, raw)
		default:
			return fmt.Errorf("trouble %.40q", t.Code)
		}
	}
	return nil
}

// whole reports a sample that this program could have written, or of a family that it does not have a later one.
func (s sample) whole() bool {
	f, known := familyOf(s.Name)
	shape := mayBeFamily(s.Name)
	if known {
		shape = len(s.Labels) == len(f.labels) && (len(s.Counts) == 0 || f.bounds != nil && len(s.Counts) == len(f.bounds)+1)
	}
	return shape && s.Value >= 0 && !math.IsInf(s.Value, 0)
}

// encode writes the book as a whole: what is known, and what is not.
func (b *book) encode() ([]byte, error) {
	samples, troubles := []any{}, []any{}
	for _, s := range b.Samples {
		samples = append(samples, s)
	}
	for _, s := range b.later.samples {
		samples = append(samples, s.raw)
	}
	for _, t := range b.Troubles {
		troubles = append(troubles, t)
	}
	for _, t := range b.later.troubles {
		troubles = append(troubles, t)
	}
	whole := map[string]any{"version": bookVersion, "mode": b.Mode, "samples": samples, "troubles": troubles}
	for name, raw := range b.later.fields {
		whole[name] = raw
	}
	return json.Marshal(whole)
}

// save writes the book; what a later release counted beside is left out where both are too large.
func (b *book) save(folder string) error {
	data, err := b.encode()
	if err == nil && len(data) >= maxBook {
		b.later = later{}
		data, err = b.encode()
	}
	if err == nil && len(data) >= maxBook {
		err = fmt.Errorf("%d bytes: %w", len(data), safefile.ErrTooLarge)
	}
	if err == nil {
		err = safefile.Replace(folder, bookName, append(data, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("keep the counts of metrics: %w", err)
	}
	return nil
}
