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
	fileVersion = 1        // of every file that names one
	maxShared   = 64 << 10 // bytes of a small file
)

// file is one JSON file below the node's directory: bounded, replaced as a whole, set aside if it cannot be used.
type file[T any] struct {
	name   string
	most   int64                   // it has less than so many bytes
	wrong  func(T) string          // why this program cannot have written it, empty if it can; nil: it always can
	lock   string                  // of its writers; empty: lockOther
	encode func(T) ([]byte, error) // nil: all of it, as JSON
}

func (f file[T]) place(s *Store) (folder, name string) {
	path := filepath.Join(s.dir, f.name)
	return filepath.Dir(path), filepath.Base(path)
}

// read returns the content, nil if there is none. Anything else than a whole file is errRecord.
func (f file[T]) read(s *Store) (*T, error) {
	// Threat: none from users, who cannot write here; damage and mistakes are refused all the same.
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

// fitted is a content at the first of ledger's levels at which it has less than so many bytes, else at the last.
func fitted(most int, at func(level int) any) (data []byte, err error) {
	for level := 0; level <= ledger.Bare && err == nil && (level == 0 || len(data) >= most); level++ {
		data, err = json.Marshal(at(level))
	}
	return data, err
}

var errRecord = errors.New("not a whole record")

// decode reads a content. It refuses what this program cannot have written.
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

// peek is that for who has no store, of any node.
func peek[T any](run, node string, f file[T]) *T {
	s, err := storeAt(run, node)
	if err != nil {
		return nil
	}
	return f.peek(s)
}

// get is read for hooks: an unusable file, read again under the lock, is set aside, and a Damage.
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

// change replaces the content by what edit makes of it, under the lock. For edit, nil is no file; the pointer that it
// got means no write. An unusable file is set aside and counts as none; one that cannot be read now stays.
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

// write is put without the lock, which keeps the file in work from being swept away.
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

// Damage is a file that cannot be used; as a record it has been set aside where that was possible.
type Damage struct {
	Path string
	Why  string
	// Unread: it stands for records that were not read and are not among the Damaged. The others may lack a job that
	// has a GPU.
	Unread bool
}

func (d Damage) Error() string { return fmt.Sprintf("damaged state %q: %s", d.Path, d.Why) }

// unusable reports that a file is there and will never be a record.
func unusable(err error) bool {
	return errors.Is(err, errRecord) || errors.Is(err, safefile.ErrNotOurs) || errors.Is(err, safefile.ErrTooLarge) ||
		errors.Is(err, unix.ELOOP)
}

// byAge lists a folder of root's, oldest first.
func byAge(folder string) []fs.FileInfo {
	entries, _ := os.ReadDir(folder)
	return sortedByAge(entries)
}

// sortedByAge leaves out what is gone meanwhile.
func sortedByAge(entries []fs.DirEntry) (files []fs.FileInfo) {
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil {
			files = append(files, info)
		}
	}
	slices.SortStableFunc(files, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	return files
}
