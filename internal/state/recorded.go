package state

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	"bookend/internal/ledger"
	"bookend/internal/safefile"
)

const (
	recorderLock = "lock-recorder"
	maxRecorded  = 4 << 20 // bytes; 16 GPUs with a course each take some 150 KiB
)

// Recorded is what the node's recorder has seen so far.
type Recorded struct {
	PID   int           `json:"pid"`
	Since time.Duration `json:"since_ns"` // CLOCK_BOOTTIME of its beginning
	At    time.Duration `json:"at_ns"`    // of its last word
	// Problem is why it sees nothing now, empty where it does.
	Problem string            `json:"problem,omitempty"`
	Runs    ledger.Recordings `json:"runs,omitempty"`
}

// recordedFile lies in a folder of its own, so that its changes do not look like those of the records.
var recordedFile = file[versioned[Recorded]]{
	name: "recorded/runs.json", most: maxRecorded, lock: "lock-recorded",
	wrong:  func(v versioned[Recorded]) string { return otherVersion(v.Version) },
	encode: encodeRecorded,
}

// encodeRecorded leaves out courses, then processes, where they are too many for the file.
func encodeRecorded(v versioned[Recorded]) (data []byte, err error) {
	for level := 0; level <= ledger.Bare; level++ {
		less := v
		less.Value.Runs = ledger.Recordings{}
		for name, r := range v.Value.Runs {
			less.Value.Runs[name] = *r.Bounded(level)
		}
		if data, err = json.Marshal(less); err != nil || len(data) < maxRecorded {
			return data, err
		}
	}
	return data, err
}

// BeRecorder makes the caller the node's one recorder, until release or the process's end. It gives ErrLocked where
// there is one.
func (s *Store) BeRecorder() (release func(), err error) {
	return safefile.Lock(filepath.Join(s.dir, recorderLock), lockWait, true)
}

// HasRecorder reports whether a recorder is at work.
func (s *Store) HasRecorder() bool {
	release, err := safefile.Lock(filepath.Join(s.dir, recorderLock), 0, false)
	if err == nil {
		release()
	}
	return errors.Is(err, ErrLocked)
}

// PutRecorded replaces what was recorded.
func (s *Store) PutRecorded(r Recorded) error {
	return recordedFile.put(s, versioned[Recorded]{Version: fileVersion, Value: r})
}

// Recorded is what was recorded of the runs that have not ended; nothing where there is none.
func (s *Store) Recorded() Recorded { return orNone(recordedFile.peek(s)).Value }

// Openings follows the runs of a node that have begun and not ended. It reads the records again where one has changed.
type Openings struct {
	store *Store
	seen  map[string]time.Time // folders, by when they changed
	runs  []ledger.Run
}

// Openings returns a follower.
func (s *Store) Openings() *Openings { return &Openings{store: s} }

// Runs are the open runs as of now.
func (o *Openings) Runs(now time.Time) []ledger.Run {
	if !o.changed(now) {
		return o.runs
	}
	o.seen = map[string]time.Time{o.store.dir: modified(o.store.dir)}
	all, _ := o.store.Runs()
	o.runs = nil
	for _, r := range all {
		if r.Start != nil && r.Running(all) {
			o.runs = append(o.runs, r)
			folder := filepath.Join(o.store.dir, folderName(r.Job.ID))
			o.seen[folder] = modified(folder)
		}
	}
	return o.runs
}

// changed reports whether a folder has changed since it was read, or so lately that the clock of files may not tell.
func (o *Openings) changed(now time.Time) bool {
	const lately = time.Second
	for folder, was := range o.seen {
		if is := modified(folder); !is.Equal(was) || now.Sub(is).Abs() < lately {
			return true
		}
	}
	return o.seen == nil
}

// modified is when a folder of root's changed, zero where that cannot be told.
func modified(folder string) time.Time {
	info, err := os.Lstat(folder)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}
