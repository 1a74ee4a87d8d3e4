// Package metrics counts what the hooks of a host do and find, for the textfile collector of Prometheus' node_exporter.
// It works on disk, so it belongs in a child. The counts survive a reboot and a lost or full tmpfs:
//
//	VAR/metrics/     0700
//	  counters.json  the counts, and each trouble with its first and last time: book.go
//	  lock           one writer at a time
//	TEXTFILE         0644  what node_exporter reads: text.go
//	JOB_MAP/*        0644  what exporters of GPU metrics read: jobmap.go
//
// Nothing is synced: a power cut may lose the last counts, and a file that it cuts counts as damaged.
package metrics

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/record"
	"bookend/internal/safefile"
)

const (
	folderName = "metrics"
	bookName   = "counters.json"
	lockName   = "lock"
	// lockWait is enough: writers hold the lock for about a millisecond, and wait for the disk before they take it.
	lockWait = 100 * time.Millisecond
)

type Files struct {
	Var      string `json:"var"`      // paths.var; created if missing
	Textfile string `json:"textfile"` // metrics.textfile; empty: none
}

type JobRun struct {
	Version string         `json:"version"` // of the hook
	Hook    Hook           `json:"hook"`
	Job     uint32         `json:"job"`
	At      time.Time      `json:"at"` // wall time
	Action  catalog.Action `json:"action"`
	Held    bool           `json:"held,omitempty"` // a drain was due and not carried out: observe mode, or a guard
	// Again is set if the node was drained before, or the last health check held its drain back too: it is no new one.
	Again    bool      `json:"again,omitempty"`
	Findings []Finding `json:"findings,omitempty"`
	Mode     string    `json:"mode,omitempty"` // the configured mode; if empty, that of an earlier run stays
	// Took is how long a job's hook ran until it was counted. Settled is how long each GPU's memory took to settle.
	Took    time.Duration   `json:"took_ns,omitempty"`
	Settled []time.Duration `json:"settled_ns,omitempty"`
	// Recorded is what the recorder saw of a job that ended, nil if it was not to record.
	Recorded *Recorded `json:"recorded,omitempty"`
	// OutOfMemory are the causes found of a job whose memory ran out; empty for others.
	OutOfMemory []record.CauseName `json:"out_of_memory,omitempty"`
	// Check is what a health check saw, valid until the next; nil for a job's hooks. Unknown figures are not shown.
	Check *record.Check `json:"check,omitempty"`
	// Running are the jobs that have GPUs when the run is recorded, if the textfile is to show them.
	Running     []GPUJob `json:"-"`
	Quarantined []GPUJob `json:"-"` // the jobs of root's that keep a GPU from others then
}

// Recorded is what was seen of a job while it ran.
type Recorded struct {
	Partition string    `json:"partition"`
	Seen      string    `json:"seen"`
	Peaks     []float64 `json:"peaks,omitempty"` // peak memory of each GPU that the job used, as a fraction
	Busy      []float64 `json:"busy,omitempty"`  // fraction of its time, for each GPU where it is known
	Unused    int       `json:"unused,omitempty"`
}

// How much of a job's time was seen.
const (
	Whole   = "whole"
	Part    = "part"
	Nothing = "nothing"
)

// Hook names a root hook.
type Hook string

const (
	Prolog Hook = "prolog"
	Epilog Hook = "epilog"
	// HealthCheck runs for no job.
	HealthCheck Hook = "health_check"
)

type Finding struct {
	Code catalog.Code `json:"code"`
	// Own is set for a trouble of Bookend itself or of the driver as a whole that the policy does not hide.
	Own    bool   `json:"own,omitempty"`
	Detail string `json:"detail,omitempty"` // what was seen, if Own; may hold text from outside
}

// Record adds a run to the counts and rewrites the textfile. The error joins what failed, which is counted as a
// finding. It matches ErrDamaged if the counts could not be used; then counting starts again.
func Record(f Files, r JobRun) error { return change(f, r, func(b *book) { b.add(r) }) }

// Add counts one more finding of a run that is already recorded.
func Add(f Files, r JobRun, more Finding) error {
	return change(f, r, func(b *book) { b.find(r, more) })
}

func change(f Files, r JobRun, edit func(*book)) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("count for metrics: %w", err)
		}
	}()
	folder, err := makeDir(f.Var)
	if err != nil {
		return err
	}
	release, err := safefile.Lock(filepath.Join(folder, lockName), lockWait, true)
	if err != nil {
		return err
	}
	defer release()
	sweep(folder)
	b, damage := read(folder)
	if damage != nil && !errors.Is(damage, ErrDamaged) {
		return damage
	}
	edit(&b)
	if damage != nil {
		b.find(r, Finding{Code: catalog.StateDamage, Own: true, Detail: damage.Error()})
	}
	shown := show(f.Textfile, b, r.Version)
	if shown != nil {
		b.find(r, Finding{Code: catalog.StateWrite, Own: true, Detail: shown.Error()})
	}
	return errors.Join(damage, shown, b.save(folder))
}

func makeDir(varDir string) (string, error) {
	// Threat: none yet: MakeDir checks owner and mode of the open directory before it creates anything in it.
	if _, err := os.Lstat(varDir); errors.Is(err, fs.ErrNotExist) {
		if err := safefile.MakeDir(filepath.Dir(varDir), filepath.Base(varDir), 0o755); err != nil {
			return "", err
		}
	}
	return filepath.Join(varDir, folderName), safefile.MakeDir(varDir, folderName, 0o700)
}

// show writes the textfile: node_exporter reads the old file or the new one, never a part.
func show(textfile string, b book, version string) error {
	if textfile == "" {
		return nil
	}
	dir, name := filepath.Split(textfile)
	dir = filepath.Clean(dir)
	// Threat: in or below a directory that others can write to, a link could send root's file anywhere.
	err := safefile.Trusted(dir)
	if err == nil {
		sweep(dir)
		err = safefile.Replace(dir, name, text(b, version), 0o644)
	}
	if err != nil {
		return fmt.Errorf("write metrics: %w", err)
	}
	return nil
}

// sweep removes what killed writers left in a directory. The lock is held, so no writer is active. Best effort.
func sweep(dir string) {
	// Threat: none from users, who cannot write here; names that are not of this program's form are left alone.
	left, _ := filepath.Glob(filepath.Join(dir, safefile.TempPrefix+strings.Repeat("[0-9a-f]", 16)))
	for _, path := range left {
		_ = os.Remove(path)
	}
}

// State is what the counts show, for the command line.
type State struct {
	Last     map[Hook]time.Time // wall time of each hook's last run; none before its first
	Troubles []Trouble          // the latest seen first
}

// Read reads the counts and changes nothing. Without counts the answer is empty; an unusable file is ErrDamaged.
func Read(varDir string) (State, error) {
	b, err := read(filepath.Join(varDir, folderName))
	if err != nil {
		return State{}, fmt.Errorf("read metrics: %w", err)
	}
	s := State{Last: map[Hook]time.Time{}, Troubles: b.Troubles}
	for _, hook := range []Hook{Prolog, Epilog, HealthCheck} {
		if at := *b.at(lastRun, string(hook)); at > 0 {
			s.Last[hook] = time.UnixMilli(int64(at * 1000))
		}
	}
	slices.SortStableFunc(s.Troubles,
		func(a, b Trouble) int { return cmp.Or(b.Last.Compare(a.Last), cmp.Compare(a.Code, b.Code)) })
	return s, nil
}
