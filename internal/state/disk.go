package state

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"bookend/internal/code"
)

// DiskTask is one of the things that hooks keep on disk.
type DiskTask string

const (
	DiskLog     DiskTask = "log"
	DiskMetrics DiskTask = "metrics"
	DiskHistory DiskTask = "history"
)

// DiskTrouble is why a task could not be done lately. It is kept in memory: the disk that fails cannot keep it.
type DiskTrouble struct {
	Task   DiskTask  `json:"task"`
	Code   code.Code `json:"code"`
	Detail string    `json:"detail"`
	Since  time.Time `json:"since"` // wall time, for display
	Last   time.Time `json:"last"`
	Count  int       `json:"count"` // of the tries that failed
	// Dropped counts the ended runs that had to leave memory without being archived.
	Dropped int `json:"dropped,omitempty"`
}

const (
	diskName      = "disk-troubles.json"
	maxDiskDetail = 1 << 10 // bytes of the detail
)

var diskFile = file[[]DiskTrouble]{name: diskName, most: maxShared}

// HasDiskTrouble reports whether there may be any, at the price of one look at a name in memory.
func HasDiskTrouble(run, node string) bool {
	// Threat: none from users, who cannot write here.
	_, err := os.Lstat(filepath.Join(run, "state", node, diskName))
	return err == nil
}

// DiskTroubles are those of the last try of each task.
func (s *Store) DiskTroubles() ([]DiskTrouble, error) {
	all, err := diskFile.get(s)
	return orNone(all), err
}

// NoteDisk keeps what became of tasks: the trouble of each, or nil if it was done.
func (s *Store) NoteDisk(outcomes map[DiskTask]*DiskTrouble, at time.Time) error {
	return diskFile.change(s, func(now *[]DiskTrouble) (*[]DiskTrouble, error) {
		kept := map[DiskTask]DiskTrouble{}
		for _, t := range orNone(now) {
			kept[t.Task] = t
		}
		for task, t := range outcomes {
			if t == nil {
				delete(kept, task)
				continue
			}
			kept[task] = t.after(kept[task], at)
		}
		if len(kept) == 0 {
			return nil, nil
		}
		next := slices.SortedFunc(maps.Values(kept), func(a, b DiskTrouble) int {
			return strings.Compare(string(a.Task), string(b.Task))
		})
		return &next, nil
	})
}

// after is a trouble that goes on from the one before, if there was one.
func (t DiskTrouble) after(before DiskTrouble, at time.Time) DiskTrouble {
	t.Since, t.Last, t.Count, t.Dropped = before.Since, at, before.Count+1, before.Dropped+t.Dropped
	if before.Count == 0 {
		t.Since = at
	}
	t.Detail = t.Detail[:min(len(t.Detail), maxDiskDetail)]
	return t
}

// Words are the trouble in one line.
func (t DiskTrouble) Words() string {
	words := fmt.Sprintf("%s: %s (%d times since %s)", t.Task, t.Detail, t.Count, t.Since.Format(time.DateTime))
	if t.Dropped > 0 {
		words += fmt.Sprintf("; %d ended jobs are in no history", t.Dropped)
	}
	return words
}
