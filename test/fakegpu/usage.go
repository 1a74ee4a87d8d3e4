package fakegpu

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Holding is memory that somebody holds on a card.
type Holding struct {
	PID     int    // of the process that took it; it may be gone
	Card    int    // in PCI order
	Context uint64 // bytes; 0: the driver lists no process for it
	Hidden  uint64 // bytes used that no process's figure shows
	Memory  uint64 // bytes allocated
	Mapped  uint64 // bytes of others' that it has mapped, in its figure as in theirs
}

// Used returns the bytes held on a card now, as the driver's bookkeeping has it: memory in teardown no longer
// counts, gpuN.extra_mib never does. It asks neither library.
func (w *World) Used(gpu int) (uint64, error) {
	var sum uint64
	all, err := w.Holdings()
	for _, h := range all {
		if h.Card == gpu {
			sum += h.Context + h.Hidden + h.Memory
		}
	}
	return sum, err
}

// Holdings lists what is held now.
func (w *World) Holdings() ([]Holding, error) {
	folder := filepath.Join(w.dir, "alloc")
	entries, err := os.ReadDir(folder)
	var all []Holding
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		h, held, bad := readHolding(filepath.Join(folder, e.Name()))
		if err = errors.Join(err, bad); held {
			all = append(all, h)
		}
	}
	return all, err
}

// readHolding reports false for a ledger nobody holds any more.
func readHolding(path string) (Holding, bool, error) {
	f, err := os.Open(path)
	if os.IsNotExist(err) {
		return Holding{}, false, nil
	}
	if err != nil {
		return Holding{}, false, err
	}
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock); err != nil {
		return Holding{}, false, &fs.PathError{Op: "ask for the lock of", Path: path, Err: err}
	}
	text, err := os.ReadFile(path)
	if os.IsNotExist(err) || lock.Type == unix.F_UNLCK {
		return Holding{}, false, nil
	}
	h, err := parseHolding(string(text))
	if err != nil {
		err = fmt.Errorf("read %q: %w", path, err)
	}
	return h, err == nil, err
}

func parseHolding(text string) (Holding, error) {
	var h Holding
	fields := map[string]any{"pid": &h.PID, "gpu": &h.Card, "context": &h.Context, "hidden": &h.Hidden,
		"memory": &h.Memory, "mapped": &h.Mapped}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if field, ok := fields[key]; ok {
			if _, err := fmt.Sscanf(value, "%d", field); err != nil {
				return h, fmt.Errorf("%q: %w", line, err)
			}
			delete(fields, key)
		}
	}
	if len(fields) > 0 {
		return h, fmt.Errorf("not a ledger: %q", text)
	}
	return h, nil
}

// Noted lists the PIDs of the processes that came to a rule "note", in no order.
func (w *World) Noted() (pids []int, err error) {
	entries, err := os.ReadDir(filepath.Join(w.dir, "noted"))
	for _, e := range entries {
		pid, bad := strconv.Atoi(e.Name())
		pids, err = append(pids, pid), errors.Join(err, bad)
	}
	return pids, err
}
