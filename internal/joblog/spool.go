package joblog

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/child"
	"bookend/internal/slurm"
)

// Spooled is what a user's spool has of one run of a job on one node: what the job's own log has, for the hosts where
// the user works. It is the user's own file: only that user may be shown it, and nothing is decided by it.
type Spooled struct {
	Version int              `json:"version"` // of the form, 1
	Node    string           `json:"node"`
	Job     string           `json:"job"` // as users write it: "42", "42_3", "42+1"
	User    string           `json:"user"`
	Cluster string           `json:"cluster"`
	ID      slurm.JobID      `json:"job_id"`
	SLUID   slurm.SLUID      `json:"sluid,omitempty"`
	Restart int              `json:"restart,omitempty"` // how often the job had been requeued
	Exit    slurm.ExitStatus `json:"exit"`
	At      time.Time        `json:"at"`    // of the end
	Clean   bool             `json:"clean"` // the GPUs were clean at the start
	Found   bool             `json:"found"` // the end has something to report
	Start   string           `json:"start,omitempty"`
	End     string           `json:"end,omitempty"`
	Used    Usage            `json:"used,omitzero"` // not in files of earlier releases
}

// Limits of a spool: files of one user, bytes of a file, and how long a file is kept.
const (
	mostSpooled = 500
	maxSpooled  = 16 << 10
	spoolTime   = 30 * 24 * time.Hour
)

// SpoolRequest asks the child that has become the user for a file in the user's spool.
type SpoolRequest struct {
	Dir    string        `json:"dir"` // as configured, without %u and %h: see spoolDir
	Name   string        `json:"name"`
	Text   string        `json:"text"`
	Sweep  time.Time     `json:"sweep,omitzero"` // if set, remove what is old at this time
	Within time.Duration `json:"within_ns"`      // then the reply does not wait for it any more
}

// NewSpoolRequest returns the request for a run, nil if its document would be too large or Slurm does not name the user
// that the directory needs: that is no fault of the node.
func NewSpoolRequest(dir, home string, s Spooled, within time.Duration) *SpoolRequest {
	s.Version = 1
	text, err := json.Marshal(s)
	if len(text) >= maxSpooled {
		s.Used.GPUs, s.Used.Unmeasured = nil, "its GPUs had no room in the file" // the report counts more
		text, err = json.Marshal(s)
	}
	// Threat: a name that leads out of the directory.
	user := filepath.Base(filepath.Clean("/" + s.User))
	if err != nil || len(text) >= maxSpooled || user == "/" && strings.Contains(dir, "%u") {
		return nil
	}
	name := fmt.Sprint(s.ID)
	if s.Restart > 0 {
		name += fmt.Sprintf(".%d", s.Restart)
	}
	r := &SpoolRequest{Dir: spoolDir(dir, user, home), Name: name + "." + s.Node + ".json",
		Text: string(text), Within: within}
	if s.ID%16 == 0 { // on a network file system the attributes of 500 files take time
		r.Sweep = s.At
	}
	return r
}

// isSpoolName reports whether Bookend gives a file of a spool such a name: no others are read or removed.
func isSpoolName(name string) bool {
	base, found := strings.CutSuffix(name, ".json")
	return found && base != "" && base[0] >= '0' && base[0] <= '9' && strings.Contains(base, ".") &&
		!strings.ContainsFunc(base, func(c rune) bool { return c <= ' ' || c > '~' || c == '/' })
}

// silent is why a spool file was not written in time.
const silent = "no-answer"

// write writes the file, or returns why not. The process must have become the user.
func (r SpoolRequest) write(uid uint32) (refused string) {
	done := make(chan string, 1)
	child.Go(func(*child.Panic) { done <- other }, func() { done <- r.put(uid) })
	select {
	case refused = <-done:
		return refused
	case <-time.After(r.Within): // the child cannot be killed, but its reply need not wait
		return silent
	}
}

func (r SpoolRequest) put(uid uint32) (refused string) {
	dir, refused := openSpool(r.Dir, uid)
	if refused != "" {
		return refused
	}
	defer dir.Close()
	temporary := fmt.Sprintf(".%s.%d", r.Name, os.Getpid())
	f, err := dir.OpenFile(temporary, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return reason(err)
	}
	_, err = f.WriteString(r.Text + "\n")
	if err = errors.Join(err, f.Close()); err == nil {
		err = dir.Rename(temporary, r.Name)
	}
	if err != nil {
		_ = dir.Remove(temporary)
	} else if !r.Sweep.IsZero() {
		sweepSpool(dir, r.Sweep)
	}
	return reason(err)
}

// openSpool opens the directory, which is never created. Threat: the user swaps it, or files in it, for others: this
// process has the rights of that user alone, and os.Root keeps it in the directory that was checked.
func openSpool(path string, uid uint32) (dir *os.Root, refused string) {
	dir, err := os.OpenRoot(path)
	if err != nil {
		return nil, reason(err)
	}
	st, err := dir.Stat(".")
	if err == nil && (st.Sys().(*syscall.Stat_t).Uid != uid || st.Mode().Perm()&0o022 != 0) {
		err, refused = unix.EACCES, notOwner
	}
	if err != nil {
		dir.Close()
		return nil, cmp.Or(refused, reason(err))
	}
	return dir, ""
}

// inHome begins a spool in each user's home.
const inHome = "%h/"

// spoolDir returns the directory that a configured spool names, empty if it is in a home that is not known.
func spoolDir(dir, user, home string) string {
	rest, below := strings.CutPrefix(strings.ReplaceAll(dir, "%u", user), inHome)
	switch {
	case !below:
		return rest
	case !strings.HasPrefix(home, "/"):
		return ""
	}
	return home + "/" + rest
}

// sweepSpool removes a user's oldest files if there are too many, and those that are too old.
func sweepSpool(dir *os.Root, now time.Time) {
	for i, f := range spoolFiles(dir) {
		if i < mostSpooled && now.Sub(f.ModTime()) <= spoolTime {
			continue
		}
		// The user may have files with such names: only those that have the form of a spool's are Bookend's.
		if _, ours := readSpooled(dir, f.Name()); ours {
			_ = dir.Remove(f.Name()) // a file that stays is tried again
		}
	}
}

func readSpooled(dir *os.Root, name string) (s Spooled, ours bool) {
	text, err := dir.ReadFile(name)
	return s, err == nil && json.Unmarshal(text, &s) == nil && s.Version == 1 && s.ID != 0
}

// spoolFiles returns the files of a spool that Bookend named, of a few thousand entries, the newest first.
func spoolFiles(dir *os.Root) (files []os.FileInfo) {
	d, err := dir.Open(".")
	if err != nil {
		return nil
	}
	defer d.Close()
	entries, _ := d.ReadDir(8 * mostSpooled)
	for _, e := range entries {
		f, err := dir.Lstat(e.Name())
		if err == nil && f.Mode().IsRegular() && isSpoolName(f.Name()) && f.Size() <= maxSpooled {
			files = append(files, f)
		}
	}
	slices.SortFunc(files, func(a, b os.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	return files
}

// OwnSpool returns what the calling user's spool has of runs that match, those with findings first, then the newest.
// Files that cannot be read are left out. Where there is no spool, dir is empty.
func OwnSpool(dir, user, home string, uid uint32, match func(Spooled) bool) (all []Spooled, err error) {
	if dir == "" {
		return nil, nil
	}
	return readSpool(spoolDir(dir, user, home), uid, match)
}

func readSpool(path string, uid uint32, match func(Spooled) bool) (all []Spooled, err error) {
	dir, refused := openSpool(path, uid)
	if refused != "" {
		return nil, fmt.Errorf("open spool %q: %s", path, refused)
	}
	defer dir.Close()
	for _, f := range spoolFiles(dir) {
		if s, ours := readSpooled(dir, f.Name()); ours && match(s) {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b Spooled) int {
		if a.Found != b.Found {
			return map[bool]int{true: -1, false: 1}[a.Found]
		}
		return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.Node, b.Node))
	})
	return all, nil
}

// Is reports whether a reference names the run: its id, its task or component, or the array or job that these are of.
func (s Spooled) Is(ref slurm.Ref) bool {
	whole, _, part := strings.Cut(strings.ReplaceAll(s.Job, "+", "_"), "_")
	return ref.SLUID != "" && ref.SLUID == s.SLUID || ref.Text == s.Job || ref.SLUID == "" && ref.Sign == "" &&
		(ref.ID == s.ID || part && whole == ref.Text)
}
