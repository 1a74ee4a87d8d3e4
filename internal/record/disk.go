package record

import (
	"fmt"
	"time"

	"bookend/internal/catalog"
)

// DiskTask is something that hooks keep on disk.
type DiskTask string

const (
	DiskLog     DiskTask = "log"
	DiskMetrics DiskTask = "metrics"
	DiskHistory DiskTask = "history"
	DiskJobMap  DiskTask = "job_map"
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

// Words describes the trouble in one line.
func (t DiskTrouble) Words() string {
	words := fmt.Sprintf("%s: %s (%d times since %s)", t.Task, t.Detail, t.Count, t.Since.Format(time.DateTime))
	if t.Dropped > 0 {
		words += fmt.Sprintf("; %d ended jobs are in no history", t.Dropped)
	}
	return words
}
