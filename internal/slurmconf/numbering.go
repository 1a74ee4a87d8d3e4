package slurmconf

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Source says where the meaning of a job's GPU numbers came from.
type Source string

// The sources, most trusted first. An ambiguous numbering has none.
const (
	ByUUID    Source = "uuid"    // Slurm named the devices themselves
	ByMap     Source = "gpu_map" // the admin's nvidia.gpu_map
	BySlurmd  Source = "slurmd"  // slurmd -G
	Ambiguous Source = "ambiguous"
)

// Settled reports a source that leaves no doubt about what the numbers mean.
func (s Source) Settled() bool { return s != "" && s != Ambiguous }

// Origin is where the meaning of a job's GPU numbers came from, as records have it; Why says why an ambiguous one is.
type Origin struct {
	Source Source `json:"source"`
	Why    string `json:"why,omitempty"`
}

// FileID is a file as stat describes it; Inode 0 is one that is not there.
type FileID struct {
	Path    string `json:"path"`
	Dev     uint64 `json:"dev,omitempty"`
	Inode   uint64 `json:"inode,omitempty"`
	Changed int64  `json:"ctime_ns,omitempty"` // by whatever changes it
}

// Daemon is the running slurmd that hooks belong to; PID 0 where it is not known.
type Daemon struct {
	PID   int    `json:"pid,omitempty"`
	Ticks uint64 `json:"start_ticks,omitempty"` // since boot, in hundredths of a second
	Exe   string `json:"-"`
}

func (d Daemon) is(o Daemon) bool { return d.PID == o.PID && d.Ticks == o.Ticks }

// tick is that of start times in /proc: 1/100 s on every Linux (USER_HZ).
const tick = 10 * time.Millisecond

// Began is when it started, on CLOCK_BOOTTIME, or up to a tick later.
func (d Daemon) Began() time.Duration { return time.Duration(d.Ticks) * tick }

// Key is everything that an answer depends on. While it stays the same the answer does.
type Key struct {
	Boot   string   `json:"boot"`
	Node   string   `json:"node"`
	Conf   string   `json:"conf"` // slurm.conf
	Daemon Daemon   `json:"daemon,omitzero"`
	Slurmd FileID   `json:"slurmd"`
	Files  []FileID `json:"files"` // slurm.conf, gres.conf, and what they include
}

// Same reports whether an answer for one key holds for the other. A boot that is not known is the same as no other.
func (k Key) Same(o Key) bool { return k.Boot != "" && k.Equal(o) }

func (k Key) Equal(o Key) bool {
	return k.Boot == o.Boot && k.Node == o.Node && k.Conf == o.Conf && k.Daemon.is(o.Daemon) && k.sameFiles(o)
}

func (k Key) sameFiles(o Key) bool { return k.Slurmd == o.Slurmd && slices.Equal(k.Files, o.Files) }

// changed is the file that was changed last: a daemon that runs on after an upgrade may count by its older program.
func (k Key) changed() (newest FileID) {
	for _, f := range append(slices.Clone(k.Files), k.Slurmd) {
		if f.Changed > newest.Changed {
			newest = f
		}
	}
	return newest
}

// List is what each index of SLURM_JOB_GPUS means.
type List struct {
	Source Source `json:"source"`
	GPUs   []GPU  `json:"gpus,omitempty"`
	Why    string `json:"why,omitempty"` // why nothing is known where Source is Ambiguous
}

func Unclear(format string, args ...any) List {
	return List{Source: Ambiguous, Why: fmt.Sprintf(format, args...)}
}

func (l List) equal(o List) bool { return slices.EqualFunc(l.GPUs, o.GPUs, slices.Equal) }

// Equal reports that both say the same, and know it from the same.
func (l List) Equal(o List) bool { return l.Source == o.Source && l.equal(o) }

// Kept is an answer as it is kept in the state.
type Kept struct {
	Key  Key  `json:"key"`
	List List `json:"list"`
	// InForce is what the slurmd of Key was last known to count by, which outlives a List that is not known. One that
	// is not known stays so until slurmd restarts: it may have read its files again at any moment since they changed.
	InForce *List `json:"in_force,omitempty"`
	// At is when the files of Key were first seen as they are, on CLOCK_BOOTTIME; 0 in files of earlier versions.
	At time.Duration `json:"at_ns,omitempty"`
	// Tried is set, to CLOCK_BOOTTIME, where slurmd -G failed: another try may succeed.
	Tried time.Duration `json:"tried_ns,omitempty"`
}

// retry is how long after slurmd -G failed hooks do not try it again.
const retry = time.Minute

// Due reports whether slurmd -G failed and is to be tried again. A health check does so at once.
func (k Kept) Due(now time.Duration, check bool) bool {
	return k.Tried != 0 && (check || now < k.Tried || now-k.Tried >= retry)
}

// Asked is what slurmd -G and the configuration said at one moment.
type Asked struct {
	Key    Key
	List   List
	Failed bool      // slurmd -G did not answer
	Began  time.Time // the wall time at which the slurmd of Key started, if that is known
	// Own says that the files are slurmd's own copies, which it writes when it reads its configuration (configless).
	Own bool
	At  time.Duration // CLOCK_BOOTTIME
}

// Settle decides what is in force: an answer other than the one kept holds only if slurmd started after the change.
func (a Asked) Settle(kept *Kept) Kept {
	now, d := Kept{Key: a.Key, List: a.List, At: a.At}, a.Key.Daemon
	if kept == nil || kept.Key.Boot != a.Key.Boot || kept.Key.Conf != a.Key.Conf {
		kept = &Kept{}
	}
	if d.PID == 0 || d.is(kept.Key.Daemon) { // the same as then, or which one runs is not known
		now.InForce = kept.InForce
	}
	if kept.At > 0 && a.Key.sameFiles(kept.Key) {
		now.At = kept.At
	}
	if a.Failed {
		now.Tried = max(a.At, 1)
	}
	if a.List.Source.Settled() {
		if why := a.outdated(*kept, now.InForce); why != "" {
			now.List = Unclear("%s", why)
		}
		inForce := now.List
		now.InForce = &inForce
	}
	return now
}

// outdated says why slurmd may still count by files that are no longer there; empty where it does not. What an earlier
// hook saw of the files, kept, is compared with the start of slurmd on CLOCK_BOOTTIME, which is never set. Only without
// that do the files' own times count, which say nothing if the clock was set forward since.
func (a Asked) outdated(kept Kept, inForce *List) string {
	const restart = "slurm.conf or gres.conf has changed since slurmd started: restart slurmd"
	newest, began, same := a.Key.changed(), a.Key.Daemon.Began(), a.Key.sameFiles(kept.Key)
	switch {
	case a.Own || inForce != nil && inForce.equal(a.List):
	case inForce != nil && a.Key.Daemon.PID == 0:
		return "slurm.conf or gres.conf has changed, and which slurmd is running is not known"
	case inForce != nil:
		// Their times may be older: those of a directory that was linked in, or by another host's clock.
		return restart
	case a.Key.Daemon.PID == 0: // nothing says that the files have ever been others
	case kept.At > 0 && same && kept.At < began:
	case kept.At > 0 && !same && kept.At >= began+tick:
		return restart
	case a.Began.Add(tick).UnixNano() < newest.Changed:
		return fmt.Sprintf("%q has changed since slurmd started: restart slurmd", newest.Path)
	}
	return ""
}

// refused are messages of slurmd after which its list does not count. A device file that slurmd lists without counting
// it makes its own numbers and slurmctld's differ from there on. Without the library that it was built with, or its
// driver, it lists the order of gres.conf, but the running daemon may have detected another. A slurmd that was built
// without the library ("when Slurm was configured") counts as the daemon does, which is the same program.
var refused = []string{
	"is not a valid character or block device", "duplicate device file name", "can't stat gres.conf file",
	"but that lib wasn't found", "Failed to initialize NVML", "System GPU detection failed",
	"Failed to get device count", "Failed to get minor number", "autodetected GPUs are being ignored",
}

// ParseListed reads what `slurmd -G` prints, whose order is that of SLURM_JOB_GPUS. The number after Index= is
// something else, and shards and MPS have lines of their own. Anything that could shift a position is an error.
func ParseListed(text string) ([]GPU, error) {
	var all []GPU
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if slices.ContainsFunc(refused, func(words string) bool { return strings.Contains(line, words) }) {
			return nil, fmt.Errorf("its list does not count: it says %.200q", line)
		}
		_, fields, found := strings.Cut(line, "Gres Name=gpu ") // behind a prefix with or without the time
		if !found {
			continue
		}
		gpus, err := parseRecord(" " + fields)
		if err != nil {
			return nil, fmt.Errorf("parse %.200q: %w", line, err)
		}
		all = append(all, gpus...)
	}
	return all, nil
}

// parseRecord gives each device file of a record to one of its GPUs, or all of them to the one there is.
func parseRecord(fields string) (all []GPU, err error) {
	field := func(name string) string {
		_, rest, _ := strings.Cut(fields, name)
		value, _, _ := strings.Cut(rest, " ")
		return value
	}
	n, err := strconv.ParseUint(field(" Count="), 10, 8)
	files := DeviceFiles(field(" File="))
	switch {
	case err != nil:
		return nil, errors.New("count is not a number of GPUs")
	case n == 1 && len(files) > 0:
		return []GPU{files}, nil
	case int(n) != len(files) || n == 0:
		return nil, fmt.Errorf("%d device files for %d GPUs", len(files), n)
	}
	for _, f := range files {
		all = append(all, GPU{f})
	}
	return all, nil
}
