package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"bookend/internal/safefile"
)

const (
	fileVersion = 1        // of every file that names one
	maxShared   = 64 << 10 // bytes of a small file
)

// file is one JSON file in the node's directory. Its size is bounded, it is replaced as a whole, and it is set aside
// when it cannot be used: what this program has not surely written must not be acted on.
type file[T any] struct {
	name  string
	most  int64          // it has less than so many bytes
	wrong func(T) string // why this program cannot have written it, empty if it can; nil: it always can
}

// read returns the content, nil if there is none. Anything else than a whole file is errRecord.
func (f file[T]) read(s *Store) (content *T, err error) {
	// Threat: none from users, who cannot write here; damage and mistakes are refused all the same.
	data, err := safefile.Read(s.dir, f.name, f.most)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, &content); err != nil {
		return nil, fmt.Errorf("%w: %v", errRecord, err)
	}
	if content == nil {
		return nil, fmt.Errorf("%w: null", errRecord)
	}
	if f.wrong != nil && f.wrong(*content) != "" {
		return nil, fmt.Errorf("%w: %s", errRecord, f.wrong(*content))
	}
	return content, nil
}

// peek is read for programs that change nothing, and for files whose loss costs nothing: what cannot be used is none.
func (f file[T]) peek(s *Store) *T {
	content, _ := f.read(s)
	return content
}

// get is read for hooks: a file that cannot be used is set aside, and a Damage. It is read again under the lock, whose
// holder may have repaired it.
func (f file[T]) get(s *Store) (content *T, err error) {
	defer func() { err = f.failed("read", err) }()
	if content, err = f.read(s); !unusable(err) {
		return content, err
	}
	lock := s.locked(lockOther, func() error {
		if content, err = f.read(s); unusable(err) {
			s.moveAside(f.name, f.name)
			err = Damage{Path: filepath.Join(s.dir, f.name), Why: err.Error()}
		}
		return nil
	})
	return content, errors.Join(lock, err)
}

// change replaces the content by what edit makes of it, under the lock. For edit, nil is no file; if it returns the
// pointer that it got, nothing is written. A file that cannot be used is set aside and counts as none; one that cannot
// be read now may be whole, and stays.
func (f file[T]) change(s *Store, edit func(now *T) (*T, error)) error {
	return f.failed("change", s.locked(lockOther, func() error {
		now, err := f.read(s)
		if unusable(err) {
			s.moveAside(f.name, f.name)
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

// failed names the file in an error.
func (f file[T]) failed(doing string, err error) error {
	if err != nil {
		err = fmt.Errorf("%s %s: %w", doing, f.name, err)
	}
	return err
}

// put replaces the content, whatever it is.
func (f file[T]) put(s *Store, content T) error {
	return f.failed("keep", s.locked(lockOther, func() error { return f.write(s, content) }))
}

// write is put without the lock, which keeps the file in work from being swept away.
func (f file[T]) write(s *Store, content T) error {
	data, err := json.Marshal(content)
	if err == nil && int64(len(data)) >= f.most {
		err = fmt.Errorf("%d bytes: %w", len(data), safefile.ErrTooLarge)
	}
	if err != nil {
		return fmt.Errorf("encode %s: %w", f.name, err)
	}
	return safefile.Replace(s.dir, f.name, append(data, '\n'), 0o600)
}

// versioned is the content of a file of one value.
type versioned[T any] struct {
	Version int `json:"version"`
	Value   T   `json:"value"`
}

func versionedFile[T any](name string, most int64) file[versioned[T]] {
	return file[versioned[T]]{name, most, func(v versioned[T]) string { return otherVersion(v.Version) }}
}

// valueOf is what a versioned file holds.
func valueOf[T any](v *versioned[T], err error) (*T, error) {
	if v == nil {
		return nil, err
	}
	return &v.Value, err
}

// orNone is the content, empty if there is none.
func orNone[T any](content *T) (is T) {
	if content != nil {
		is = *content
	}
	return is
}

// otherVersion says that a file has another format.
func otherVersion(version int) string {
	if version == fileVersion {
		return ""
	}
	return fmt.Sprintf("version %d, not %d", version, fileVersion)
}
