package metrics

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"bookend/internal/code"
	"bookend/internal/report"
	"bookend/internal/safefile"
)

// bookVersion is the format of counters.json. What is added to it (families, codes, fields of the book) is no new
// format: an earlier release leaves that out. A family's labels and buckets never change under its name. A file of
// another format is a damaged one.
const bookVersion = 1

// Bounds of the file: some 200 samples and 30 troubles have 30 KiB.
const (
	maxBook   = 256 << 10
	maxDetail = 300 // bytes of a trouble's detail
)

// ErrDamaged: the counts could not be used, and begin anew.
var ErrDamaged = errors.New("counts are damaged")

// read reads the counts, or begins anew: where there are none, and, with ErrDamaged, where they cannot be used.
func read(folder string) (book, error) {
	// Threat: none from users, who cannot write here; damage and mistakes are refused all the same.
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

// decode returns ErrDamaged for anything but whole counts of this format. What this program does not know it drops: a
// later release counted it before a downgrade, and begins it anew.
func decode(data []byte) (book, error) {
	var b book
	err := json.Unmarshal(data, &b)
	if err == nil && b.Version != bookVersion {
		err = fmt.Errorf("version %d, not %d", b.Version, bookVersion)
	}
	b.Samples = slices.DeleteFunc(b.Samples, func(s sample) bool { _, known := families[s.Name]; return !known })
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
	b.Troubles = slices.DeleteFunc(b.Troubles, func(t Trouble) bool { _, known := code.Lookup(t.Code); return !known })
	for i := range b.Troubles {
		b.Troubles[i].Detail = report.Keep(string(b.Troubles[i].Detail), maxDetail)
	}
	return b, nil
}

// whole reports a sample that its family can have.
func (s sample) whole() bool {
	f := families[s.Name]
	counts := len(s.Counts) == 0 || f.bounds != nil && len(s.Counts) == len(f.bounds)+1
	return len(s.Labels) == len(f.labels) && counts && s.Value >= 0
}

// save writes the book.
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
