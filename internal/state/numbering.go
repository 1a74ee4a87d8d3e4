package state

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"bookend/internal/numbering"
	"bookend/internal/slurm"
)

// numberingFile is what Slurm's GPU numbers mean on the node; 256 GPUs and 64 files are some 40 KiB.
const (
	numberingFile    = "numbering.json"
	numberingVersion = 1
	maxNumbering     = 128 << 10
)

// Numbering is the answer that is kept, nil where there is none. An unusable file is a Damage, set aside.
func (s *Store) Numbering() (*numbering.Kept, error) {
	k, err := readVersioned[numbering.Kept](s, numberingFile, numberingVersion, maxNumbering)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read GPU numbering: %w", err)
	}
	return &k, nil
}

// PeekNumbering is Numbering for readers that change nothing: nil too where nothing can be read.
func PeekNumbering(run, node string) *numbering.Kept {
	if !slurm.ValidNode(node) {
		return nil
	}
	s := &Store{run: run, node: node, dir: filepath.Join(run, "state", node)}
	var k versioned[numbering.Kept]
	if err := s.readJSON(numberingFile, maxNumbering, &k); err != nil || k.Version != numberingVersion {
		return nil
	}
	return &k.Value
}

// PutNumbering keeps an answer in the place of the one before. Hooks that ask at once get the same answer.
func (s *Store) PutNumbering(k numbering.Kept) error {
	value := versioned[numbering.Kept]{Version: numberingVersion, Value: k}
	if err := s.locked(lockOther, func() error { return s.writeJSON(numberingFile, maxNumbering, value) }); err != nil {
		return fmt.Errorf("keep GPU numbering: %w", err)
	}
	return nil
}
