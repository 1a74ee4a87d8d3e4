package state

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"bookend/internal/catalog"
)

// DiskTask is something that hooks keep on disk.
type DiskTask string

const (
	DiskLog     DiskTask = "log"
	DiskMetrics DiskTask = "metrics"
	DiskHistory DiskTask = "history"
)

// DiskTrouble is why a task failed lately. It is kept in memory: the failing disk cannot keep it.
type DiskTrouble struct {
	Task   DiskTask     `json:"task"`
	Code   catalog.Code `json:"code"`
	Detail string       `json:"detail"`
	Since  time.Time    `json:"since"` // wall time, for display
	Last   time.Time    `json:"last"`
	Count  int          `json:"count"` // failed attempts
	// Dropped counts the ended runs that were removed from memory without being archived.
	Dropped int `json:"dropped,omitempty"`
}

const maxDiskDetail = 1 << 10 // bytes of Detail

// DiskTroubles are the troubles of each task whose last attempt failed.
var DiskTroubles = File[[]DiskTrouble]{name: "disk-troubles.json", most: maxShared}

// HasDiskTrouble reports whether there may be disk trouble, at the cost of one lstat in memory.
func HasDiskTrouble(run, node string) bool {
	// Threat: none from users, who cannot write here.
	_, err := os.Lstat(filepath.Join(run, "state", node, DiskTroubles.name))
	return err == nil
}

// NoteDisk records the outcome of tasks: the trouble of each, or nil if it succeeded.
func (s *Store) NoteDisk(outcomes map[DiskTask]*DiskTrouble, at time.Time) error {
	return DiskTroubles.Update(s, func(all *[]DiskTrouble) error {
		for task, trouble := range outcomes {
			var before DiskTrouble
			*all = slices.DeleteFunc(*all, func(t DiskTrouble) bool {
				if t.Task == task {
					before = t
				}
				return t.Task == task
			})
			if trouble != nil {
				*all = append(*all, trouble.after(before, at))
			}
		}
		if len(*all) == 0 {
			return errNone
		}
		slices.SortFunc(*all, func(a, b DiskTrouble) int { return cmp.Compare(a.Task, b.Task) })
		return nil
	})
}

// after returns t as the continuation of the trouble before, which is zero if there was none.
func (t DiskTrouble) after(before DiskTrouble, at time.Time) DiskTrouble {
	t.Since, t.Last, t.Count, t.Dropped = before.Since, at, before.Count+1, before.Dropped+t.Dropped
	if before.Count == 0 {
		t.Since = at
	}
	t.Detail = t.Detail[:min(len(t.Detail), maxDiskDetail)]
	return t
}

// Words describes the trouble in one line.
func (t DiskTrouble) Words() string {
	words := fmt.Sprintf("%s: %s (%d times since %s)", t.Task, t.Detail, t.Count, t.Since.Format(time.DateTime))
	if t.Dropped > 0 {
		words += fmt.Sprintf("; %d ended jobs are in no history", t.Dropped)
	}
	return words
}
