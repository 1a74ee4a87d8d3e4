package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"bookend/internal/safefile"
)

const (
	fileVersion = 1        // of every file that has a version
	maxShared   = 64 << 10 // bytes of a small file
)

// File is a JSON file of the node's: bounded, replaced as a whole, set aside if it cannot be used, zero if missing.
type File[T any] struct {
	name    string
	most    int            // its size in bytes is less than this
	lock    string         // lock file of its writers; empty: lockOther
	isValue bool           // the content is the value of a versioned
	tidy    func(T) T      // the content as it is written; nil: as it is
	bare    func(T) T      // what is kept of content that takes up more than half of most; nil: all
	wrong   func(T) string // why this program cannot have written it, empty if it can; nil: no check
}

type versioned[T any] struct {
	Version int `json:"version"`
	Value   T   `json:"value"`
}

var (
	errRecord = errors.New("not a whole record")
	// ErrUnchanged and ErrNone are what a function that edits a file returns if nothing is to be written, or kept.
	ErrUnchanged = errors.New("nothing to be written")
	ErrNone      = errors.New("nothing to be kept")
)

// read returns the content and changes nothing. Content that is not a complete record is errRecord.
func (f File[T]) read(s *Store) (none T, err error) {
	// Threat: none from users, who cannot write here; damage and mistakes are refused nonetheless.
	path := filepath.Join(s.dir, f.name)
	data, err := safefile.Read(filepath.Dir(path), filepath.Base(path), int64(f.most))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return none, nil
	case err != nil:
		return none, err
	case f.isValue:
		v, err := decode(data, func(v versioned[T]) string { return otherVersion(v.Version) })
		return v.Value, err
	}
	return decode(data, f.wrong)
}

// Peek returns content whose loss does no harm, or for readers that change nothing: zero if the file cannot be used.
func (f File[T]) Peek(s *Store) T {
	content, _ := f.read(s)
	return content
}

func (f File[T]) PeekNode(run, node string) (none T) {
	s, err := storeAt(run, node)
	if err != nil {
		return none
	}
	return f.Peek(s)
}

// decode parses the content and refuses what this program cannot have written.
func decode[T any](data []byte, wrong func(T) string) (none T, err error) {
	var content *T
	err = json.Unmarshal(data, &content)
	switch {
	case err != nil:
		return none, fmt.Errorf("%w: %v", errRecord, err)
	case content == nil:
		return none, fmt.Errorf("%w: null", errRecord)
	case wrong != nil && wrong(*content) != "":
		return none, fmt.Errorf("%w: %s", errRecord, wrong(*content))
	}
	return *content, nil
}

// Load returns the content for a hook: an unusable file is read again under the lock, set aside and returned as Damage.
func (f File[T]) Load(s *Store) (T, error) {
	content, err := f.read(s)
	if unusable(err) {
		err = locked(s.dir, f.lock, func() error {
			content, err = f.read(s)
			if unusable(err) {
				aside := s.setAside(f.name)
				err = Damage{Path: filepath.Join(s.dir, f.name), Why: err.Error(), Unread: !aside}
			}
			return err
		})
	}
	return content, f.failed("read", err)
}

// Save replaces the content.
func (f File[T]) Save(s *Store, content T) error {
	return f.failed("keep", locked(s.dir, f.lock, func() error { return f.Write(s, content) }))
}

// Update lets edit change the content, under the lock, and writes it, unless edit returns ErrUnchanged; with ErrNone it
// removes the file. An unusable file is set aside and counts as none; one that cannot be read now stays.
func (f File[T]) Update(s *Store, edit func(*T) error) error {
	return f.failed("change", locked(s.dir, f.lock, func() error {
		content, err := f.read(s)
		if unusable(err) {
			s.setAside(f.name)
		} else if err != nil {
			return err
		}
		err = edit(&content)
		switch {
		case errors.Is(err, ErrUnchanged):
			return nil
		case errors.Is(err, ErrNone):
			return removeOwn(s.dir, f.name)
		case err != nil:
			return err
		}
		return f.Write(s, content)
	}))
}

func (f File[T]) failed(doing string, err error) error {
	if err != nil {
		err = fmt.Errorf("%s %s: %w", doing, f.name, err)
	}
	return err
}

// Write is Save without the lock, for a file with a single writer.
func (f File[T]) Write(s *Store, content T) error {
	if f.tidy != nil {
		content = f.tidy(content)
	}
	data, err := f.encode(content)
	if len(data) > f.most/2 && f.bare != nil {
		data, err = f.encode(f.bare(content))
	}
	if err == nil && len(data) >= f.most {
		err = fmt.Errorf("%d bytes: %w", len(data), safefile.ErrTooLarge)
	}
	if err != nil {
		return fmt.Errorf("encode %s: %w", f.name, err)
	}
	path := filepath.Join(s.dir, f.name)
	if filepath.Dir(path) != s.dir {
		if err := makeDirs(made{filepath.Dir(path), 0o700, false}); err != nil {
			return err
		}
	}
	return safefile.Replace(filepath.Dir(path), filepath.Base(path), append(data, '\n'), 0o600)
}

func (f File[T]) encode(content T) ([]byte, error) {
	if f.isValue {
		return json.Marshal(versioned[T]{fileVersion, content})
	}
	return json.Marshal(content)
}

func otherVersion(version int) string {
	if version == fileVersion {
		return ""
	}
	return fmt.Sprintf("version %d, not %d", version, fileVersion)
}

// Damage is a file that cannot be used. A damaged record has been set aside if that was possible.
type Damage struct {
	Path string
	Why  string
	// Unread is set if the damage stands for records that were not read and are not among the Damaged. Then a job that
	// has a GPU may be missing from the others.
	Unread bool
}

func (d Damage) Error() string { return fmt.Sprintf("damaged state %q: %s", d.Path, d.Why) }

// unusable reports whether an error means that a file exists and will never be a record.
func unusable(err error) bool {
	return errors.Is(err, errRecord) || errors.Is(err, safefile.ErrNotOurs) || errors.Is(err, safefile.ErrTooLarge) ||
		errors.Is(err, unix.ELOOP)
}

// byAge lists a directory of root's, oldest first, without files removed meanwhile.
func byAge(dir string) (files []fs.FileInfo, err error) {
	// Threat: none from users, who cannot write here.
	entries, err := os.ReadDir(dir)
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil {
			files = append(files, info)
		}
	}
	slices.SortStableFunc(files, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	return files, err
}
