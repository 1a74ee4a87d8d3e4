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

	"bookend/internal/ledger"
	"bookend/internal/safefile"
)

const (
	fileVersion = 1        // of every file that has a version
	maxShared   = 64 << 10 // bytes of a small file
)

// file is a JSON file below the node's directory: bounded, replaced as a whole, and set aside if it cannot be used.
type file[T any] struct {
	name   string
	most   int64                   // its size in bytes is less than this
	wrong  func(T) string          // why this program cannot have written it, empty if it can; nil: no check
	lock   string                  // lock file of its writers; empty: lockOther
	encode func(T) ([]byte, error) // nil: plain JSON
}

func (f file[T]) place(s *Store) (folder, name string) {
	path := filepath.Join(s.dir, f.name)
	return filepath.Dir(path), filepath.Base(path)
}

// read returns the content, or nil if there is no file. Content that is not a complete record is errRecord.
func (f file[T]) read(s *Store) (*T, error) {
	// Threat: none from users, who cannot write here; damage and mistakes are refused nonetheless.
	folder, name := f.place(s)
	data, err := safefile.Read(folder, name, f.most)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return decode(data, f.wrong)
}

// fitted returns the content at the first of ledger's levels where it is shorter than most bytes, else at the last.
func fitted(most int, at func(level int) any) (data []byte, err error) {
	for level := 0; level <= ledger.Bare && err == nil && (level == 0 || len(data) >= most); level++ {
		data, err = json.Marshal(at(level))
	}
	return data, err
}

var errRecord = errors.New("not a whole record")

// decode parses the content and refuses what this program cannot have written.
func decode[T any](data []byte, wrong func(T) string) (content *T, err error) {
	if err := json.Unmarshal(data, &content); err != nil {
		return nil, fmt.Errorf("%w: %v", errRecord, err)
	}
	if content == nil {
		return nil, fmt.Errorf("%w: null", errRecord)
	}
	if wrong != nil && wrong(*content) != "" {
		return nil, fmt.Errorf("%w: %s", errRecord, wrong(*content))
	}
	return content, nil
}

func (f file[T]) peek(s *Store) *T {
	content, _ := f.read(s)
	return content
}

// peek reads a file of any node without opening its store; nil if the file cannot be used.
func peek[T any](run, node string, f file[T]) *T {
	s, err := storeAt(run, node)
	if err != nil {
		return nil
	}
	return f.peek(s)
}

// get is read for hooks: it reads an unusable file again under the lock, sets it aside and returns a Damage.
func (f file[T]) get(s *Store) (content *T, err error) {
	defer func() { err = f.failed("read", err) }()
	if content, err = f.read(s); !unusable(err) {
		return content, err
	}
	lock := s.locked(f.lock, func() error {
		if content, err = f.read(s); unusable(err) {
			aside := s.setAside(f.name)
			err = Damage{Path: filepath.Join(s.dir, f.name), Why: err.Error(), Unread: !aside}
		}
		return nil
	})
	return content, errors.Join(lock, err)
}

// change replaces the content with the result of edit, under the lock. For edit, nil means no file; returning the
// pointer it got skips the write. An unusable file is set aside and counts as none; one that cannot be read now stays.
func (f file[T]) change(s *Store, edit func(now *T) (*T, error)) error {
	return f.failed("change", s.locked(f.lock, func() error {
		now, err := f.read(s)
		if unusable(err) {
			s.setAside(f.name)
			err = nil
		}
		if err != nil {
			return err
		}
		next, err := edit(now)
		switch {
		case err != nil || next == now:
			return err
		case next == nil:
			return removeOwn(s.dir, f.name)
		}
		return f.write(s, *next)
	}))
}

func (f file[T]) failed(doing string, err error) error {
	if err != nil {
		err = fmt.Errorf("%s %s: %w", doing, f.name, err)
	}
	return err
}

func (f file[T]) put(s *Store, content T) error {
	return f.failed("keep", s.locked(f.lock, func() error { return f.write(s, content) }))
}

// write is put without the lock, which keeps a job's directory from being removed before the file is in it.
func (f file[T]) write(s *Store, content T) error {
	encode := f.encode
	if encode == nil {
		encode = func(content T) ([]byte, error) { return json.Marshal(content) }
	}
	data, err := encode(content)
	if err == nil && int64(len(data)) >= f.most {
		err = fmt.Errorf("%d bytes: %w", len(data), safefile.ErrTooLarge)
	}
	if err != nil {
		return fmt.Errorf("encode %s: %w", f.name, err)
	}
	folder, name := f.place(s)
	if folder != s.dir {
		if err := makeFolders(made{folder, 0o700, false}); err != nil {
			return err
		}
	}
	return safefile.Replace(folder, name, append(data, '\n'), 0o600)
}

type versioned[T any] struct {
	Version int `json:"version"`
	Value   T   `json:"value"`
}

func versionedFile[T any](name string, most int64, encode func(versioned[T]) ([]byte, error)) file[versioned[T]] {
	wrong := func(v versioned[T]) string { return otherVersion(v.Version) }
	return file[versioned[T]]{name: name, most: most, wrong: wrong, encode: encode}
}

func valueOf[T any](v *versioned[T], err error) (*T, error) {
	if v == nil {
		return nil, err
	}
	return &v.Value, err
}

func orNone[T any](content *T) (is T) {
	if content != nil {
		is = *content
	}
	return is
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

// byAge lists a directory of root's, oldest first.
func byAge(folder string) []fs.FileInfo {
	entries, _ := os.ReadDir(folder)
	return sortedByAge(entries)
}

// sortedByAge returns the files oldest first, without those removed meanwhile.
func sortedByAge(entries []fs.DirEntry) (files []fs.FileInfo) {
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil {
			files = append(files, info)
		}
	}
	slices.SortStableFunc(files, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	return files
}
