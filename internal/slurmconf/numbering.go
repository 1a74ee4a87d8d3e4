package slurmconf

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/record"
)

// FileID is a file as stat describes it. Inode is 0 if the file does not exist.
type FileID struct {
	Path    string `json:"path"`
	Dev     uint64 `json:"dev,omitempty"`
	Inode   uint64 `json:"inode,omitempty"`
	Changed int64  `json:"ctime_ns,omitempty"` // any change of the file changes it
}

// Daemon is the running slurmd that hooks belong to. PID is 0 if it is unknown.
type Daemon struct {
	PID   int    `json:"pid,omitempty"`
	Ticks uint64 `json:"start_ticks,omitempty"` // since boot, in hundredths of a second
	Exe   string `json:"-"`
}

func (d Daemon) is(o Daemon) bool { return d.PID == o.PID && d.Ticks == o.Ticks }

// tick is the unit of start times in /proc: 1/100 s on every Linux (USER_HZ).
const tick = 10 * time.Millisecond

// Began returns when the daemon started, on CLOCK_BOOTTIME, rounded down to a tick.
func (d Daemon) Began() time.Duration { return time.Duration(d.Ticks) * tick }

// Key is everything that an answer depends on. While it stays the same, so does the answer.
type Key struct {
	Boot   string   `json:"boot"`
	Node   string   `json:"node"`
	Conf   string   `json:"conf"` // slurm.conf
	Daemon Daemon   `json:"daemon,omitzero"`
	Slurmd FileID   `json:"slurmd"`
	Files  []FileID `json:"files"` // slurm.conf, gres.conf, and what they include
}

// ValidFor reports whether an answer for one key is valid for the other. An unknown boot is not the same as any other.
func (k Key) ValidFor(o Key) bool { return k.Boot != "" && k.Equal(o) }

func (k Key) Equal(o Key) bool {
	return k.Boot == o.Boot && k.Node == o.Node && k.Conf == o.Conf && k.Daemon.is(o.Daemon) && k.sameFiles(o)
}

func (k Key) sameFiles(o Key) bool { return k.Slurmd == o.Slurmd && slices.Equal(k.Files, o.Files) }

// changed returns the file that was changed last. A daemon that runs on after an upgrade may count as its old program.
func (k Key) changed() (newest FileID) {
	for _, f := range append(slices.Clone(k.Files), k.Slurmd) {
		if f.Changed > newest.Changed {
			newest = f
		}
	}
	return newest
}

// List is the meaning of each index of SLURM_JOB_GPUS.
type List struct {
	Source record.Source `json:"source"`
	GPUs   []GPU         `json:"gpus,omitempty"`
	Types  []string      `json:"types,omitempty"` // of each GPU, empty for one without; none in an older state
	Why    string        `json:"why,omitempty"`   // why nothing is known if Source is Ambiguous
}

func Unclear(format string, args ...any) List {
	return List{Source: record.Ambiguous, Why: fmt.Sprintf(format, args...)}
}

func (l List) equal(o List) bool {
	return slices.EqualFunc(l.GPUs, o.GPUs, slices.Equal) && slices.Equal(l.Types, o.Types)
}

// Perhaps returns the GPUs of a node that a job may have besides its own: those of other types, if all of its own are
// of one. With several types in a job, Slurm overwrites SLURM_JOB_GPUS with the GPUs of one after another (24.11; with
// types in the request, 22.05 too).
func (l List) Perhaps(own, all []record.Assigned) (others []gpu.ID) {
	kinds := map[string]bool{}
	for _, d := range own {
		kinds[l.typeOf(d)] = true
	}
	if len(kinds) != 1 { // Slurm told of several types: it told all
		return nil
	}
	for _, d := range all {
		if d.Index >= 0 && !kinds[l.typeOf(d)] {
			others = append(others, d.Device.ID)
		}
	}
	return others
}

func (l List) typeOf(d record.Assigned) string {
	if d.Index < 0 || d.Index >= len(l.Types) {
		return ""
	}
	return l.Types[d.Index]
}

// Equal reports whether both have the same content from the same source.
func (l List) Equal(o List) bool { return l.Source == o.Source && l.equal(o) }

// Holds reports whether the answer still holds for what was asked. One of an older program lacks the types.
func (k Kept) Holds(now Key) bool {
	return k.Key.ValidFor(now) && len(k.List.Types) == len(k.List.GPUs)
}

// Kept is an answer as stored in the state.
type Kept struct {
	Key  Key  `json:"key"`
	List List `json:"list"`
	// InForce is what the slurmd of Key was last known to count by. It outlives a List that is unknown. An unknown one
	// stays so until slurmd restarts: it may have read its files again at any moment since they changed.
	InForce *List `json:"in_force,omitempty"`
	// At is when the files of Key were first seen in this state, on CLOCK_BOOTTIME; 0 in files of earlier versions.
	At time.Duration `json:"at_ns,omitempty"`
	// Tried is the CLOCK_BOOTTIME at which slurmd -G failed, or 0: another try may succeed.
	Tried time.Duration `json:"tried_ns,omitempty"`
}

// retry is how long hooks wait after a failed slurmd -G before they try it again.
const retry = time.Minute

// Due reports whether slurmd -G failed and is to be tried again. A health check does that at once.
func (k Kept) Due(now time.Duration, check bool) bool {
	return k.Tried != 0 && (check || now < k.Tried || now-k.Tried >= retry)
}

// Asked is what slurmd -G and the configuration contained at one moment.
type Asked struct {
	Key    Key
	List   List
	Failed bool      // slurmd -G did not answer
	Began  time.Time // the wall time at which the slurmd of Key started, if known
	// Own means that the files are slurmd's own copies, which it writes when it reads its configuration (configless).
	Own bool
	At  time.Duration // CLOCK_BOOTTIME
}

// Settle decides what is in force: an answer other than the kept one is valid only if slurmd started after the change.
func (a Asked) Settle(kept *Kept) Kept {
	now, d := Kept{Key: a.Key, List: a.List, At: a.At}, a.Key.Daemon
	if kept == nil || kept.Key.Boot != a.Key.Boot || kept.Key.Conf != a.Key.Conf {
		kept = &Kept{}
	}
	if d.PID == 0 || d.is(kept.Key.Daemon) { // the same daemon as then, or unknown which one runs
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
		now.InForce = new(now.List)
	}
	return now
}

// outdated returns why slurmd may still count by files that have changed since, or nothing. It compares what an earlier
// hook saw of the files (kept) with the start of slurmd on CLOCK_BOOTTIME, which is never set. Only without that it
// uses the files' own times, which prove nothing if the clock was set forward since.
func (a Asked) outdated(kept Kept, inForce *List) string {
	const restart = "slurm.conf or gres.conf has changed since slurmd started: restart slurmd"
	newest, began, same := a.Key.changed(), a.Key.Daemon.Began(), a.Key.sameFiles(kept.Key)
	switch {
	case a.Own || inForce != nil && inForce.equal(a.List):
	case inForce != nil && a.Key.Daemon.PID == 0:
		return "slurm.conf or gres.conf has changed, and which slurmd is running is not known"
	case inForce != nil:
		// Their times may be older: those of a directory that was linked in, or from another host's clock.
		return restart
	case a.Key.Daemon.PID == 0: // nothing shows that the files were ever different
	case kept.At > 0 && same && kept.At < began:
	case kept.At > 0 && !same && kept.At >= began+tick:
		return restart
	case a.Began.Add(tick).UnixNano() < newest.Changed:
		return fmt.Sprintf("%q has changed since slurmd started: restart slurmd", newest.Path)
	}
	return ""
}

// refused are messages of slurmd that invalidate its list. If it lists a device file without counting it, its own
// numbers and slurmctld's differ from there on. Without the library that it was built with, or its driver, it lists the
// order of gres.conf, but the running daemon may have detected another. A slurmd built without the library ("when Slurm
// was configured") counts as the daemon does, which is the same program.
var refused = []string{
	"is not a valid character or block device", "duplicate device file name", "can't stat gres.conf file",
	"but that lib wasn't found", "Failed to initialize NVML", "System GPU detection failed",
	"Failed to get device count", "Failed to get minor number", "autodetected GPUs are being ignored",
}

// ParseListed parses the output of `slurmd -G`, whose order is that of SLURM_JOB_GPUS. The number after Index= is
// something else, and shards and MPS have lines of their own. Anything that could shift a position is an error.
func ParseListed(text string) (List, error) {
	all := List{Source: record.BySlurmd}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if slices.ContainsFunc(refused, func(words string) bool { return strings.Contains(line, words) }) {
			return List{}, fmt.Errorf("its list does not count: it says %.200q", line)
		}
		_, fields, found := strings.Cut(line, "Gres Name=gpu ") // after a prefix with or without the time
		if !found {
			continue
		}
		gpus, kind, err := parseRecord(" " + fields)
		if err != nil {
			return List{}, fmt.Errorf("parse %.200q: %w", line, err)
		}
		all.GPUs = append(all.GPUs, gpus...)
		all.Types = append(all.Types, slices.Repeat([]string{kind}, len(gpus))...)
	}
	return all, nil
}

// parseRecord assigns one device file of a record to each of its GPUs, or all of them to a single GPU.
func parseRecord(fields string) (all []GPU, kind string, err error) {
	field := func(name string) string {
		_, rest, _ := strings.Cut(fields, name)
		value, _, _ := strings.Cut(rest, " ")
		return value
	}
	kind = strings.TrimPrefix(field(" Type="), "(null)")
	n, err := strconv.ParseUint(field(" Count="), 10, 8)
	files := DeviceFiles(field(" File="))
	switch {
	case err != nil:
		return nil, "", errors.New("count is not a number of GPUs")
	case n == 1 && len(files) > 0:
		return []GPU{files}, kind, nil
	case int(n) != len(files) || n == 0:
		return nil, "", fmt.Errorf("%d device files for %d GPUs", len(files), n)
	}
	for _, f := range files {
		all = append(all, GPU{f})
	}
	return all, kind, nil
}
