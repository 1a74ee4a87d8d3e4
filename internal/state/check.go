package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	"bookend/internal/drain"
	"bookend/internal/gpu"
	"bookend/internal/ledger"
	"bookend/internal/safefile"
	"bookend/internal/slurmconf"
)

const checkLock = "lock-check"

// Files of one value. 256 GPUs and 64 files of Slurm some 40 KiB.
var (
	checkFile     = versionedFile[ledger.Check]("check.json", 512<<10)
	numberingFile = versionedFile[slurmconf.Kept]("numbering.json", 128<<10)
	inventoryFile = versionedFile[Inventory]("inventory.json", 128<<10)
)

// BeOnlyCheck makes the caller the node's one health check at work, until release or the process's end. It gives
// ErrLocked where there is another.
func (s *Store) BeOnlyCheck() (release func(), err error) {
	release, err = safefile.Lock(filepath.Join(s.dir, checkLock), 0, true)
	if err != nil {
		return nil, fmt.Errorf("begin health check: %w", err)
	}
	return release, nil
}

// LastCheck is what the node's last health check saw, nil where there was none. An unusable file is a Damage, set
// aside; so it is with all that follows.
func (s *Store) LastCheck() (*ledger.Check, error) { return valueOf(checkFile.get(s)) }

// PutLastCheck keeps what a health check saw, for the next one and for the command line. The caller is the only check.
// Of too much it keeps the verdict rather than nothing.
func (s *Store) PutLastCheck(c ledger.Check) (err error) {
	c.Wall = c.Wall.UTC().Round(0)
	for level := 0; level <= ledger.Bare; level++ {
		err = checkFile.put(s, versioned[ledger.Check]{fileVersion, c.Bounded(level)})
		if !errors.Is(err, safefile.ErrTooLarge) {
			break
		}
	}
	return err
}

// Numbering is what Slurm's GPU numbers mean on the node, nil where nothing is kept.
func (s *Store) Numbering() (*slurmconf.Kept, error) { return valueOf(numberingFile.get(s)) }

// PeekNumbering is Numbering for readers that change nothing: nil too where nothing can be read.
func PeekNumbering(run, node string) *slurmconf.Kept {
	k, _ := valueOf(peek(run, node, numberingFile), nil)
	return k
}

// PutNumbering keeps an answer in the place of the one before. Hooks that ask at once get the same answer.
func (s *Store) PutNumbering(k slurmconf.Kept) error {
	return numberingFile.put(s, versioned[slurmconf.Kept]{fileVersion, k})
}

// Inventory is which GPUs the last hook that asked found on the node. It may be out of date at any time.
type Inventory struct {
	From  string     `json:"from"` // the directory that lists them
	Epoch gpu.Epoch  `json:"epoch"`
	Cards []gpu.Card `json:"cards"`
}

// Inventory is empty where nothing can be read: what is lost costs nothing.
func (s *Store) Inventory() Inventory { return orNone(inventoryFile.peek(s)).Value }

// PutInventory keeps it for the next hook.
func (s *Store) PutInventory(i Inventory) error {
	return inventoryFile.put(s, versioned[Inventory]{fileVersion, i})
}

const (
	maxDrain     = 64 << 10 // 512 exits of 50 bytes and 64 causes of 100
	maxDrainText = 4 << 10  // PATH_MAX
)

var drainFile = file[drainContent]{name: "drain.json", most: maxDrain, wrong: wrongDrain}

// ErrChanged: another program has changed what is remembered of the node's drain since it was read.
var ErrChanged = errors.New("the memory of the node's drain has changed meanwhile")

// drainContent is the file's content.
type drainContent struct {
	Version int `json:"version"`
	drain.Memory
}

// Drain returns what the node remembers of its drain, nothing where nothing is. An unusable file is a Damage, set
// aside: then nothing is remembered, and no reason that stands is ours.
func (s *Store) Drain() (drain.Memory, error) {
	c, err := drainFile.get(s)
	return orNone(c).Memory, err
}

// SwapDrain replaces what is remembered, and gives ErrChanged where that is not what seen says any more.
func (s *Store) SwapDrain(seen, next drain.Memory) error {
	return drainFile.change(s, func(now *drainContent) (*drainContent, error) {
		if !equalDrain(orNone(now).Memory, seen) {
			return nil, ErrChanged
		}
		return &drainContent{fileVersion, next}, nil
	})
}

// equalDrain compares what would be written.
func equalDrain(a, b drain.Memory) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// wrongDrain says why this cannot be what was written, empty where it can: what is not surely ours must never make a
// reason ours.
func wrongDrain(c drainContent) string {
	if why := otherVersion(c.Version); why != "" {
		return why
	}
	m := c.Memory
	if len(m.Settled) > drain.MaxSettled {
		return fmt.Sprintf("%d settled exits", len(m.Settled))
	}
	w := m.Written
	if w == nil {
		return ""
	}
	switch {
	case !drain.Recorded(w.Reason):
		return fmt.Sprintf("the reason %.200q is none of ours", w.Reason)
	case len(w.Causes) == 0 || len(w.Causes) > drain.MaxCauses:
		return fmt.Sprintf("%d causes", len(w.Causes))
	case w.Clean < 0:
		return fmt.Sprintf("clean %d times", w.Clean)
	case w.Wall.IsZero():
		return "a reason without a time"
	case len(w.Conf) > maxDrainText:
		return "the path of slurm.conf is too long"
	}
	return ""
}
