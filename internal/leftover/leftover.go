// Package leftover has what a user keeps in a node's shared memory at the two ends of a job, the rule that decides what
// the job left there, and its words. It takes values and returns values.
package leftover

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"bookend/internal/record"
)

// Item is a regular file in /dev/shm or a System V segment.
type Item struct {
	ID    uint64 // the file's inode, or the segment's id
	Bytes uint64 // of memory that it takes
	Made  time.Time
	InUse bool
	Name  string // of a file, raw: the user chose it
}

// Listing is what a user has in a node's shared memory at one moment.
type Listing struct {
	Wall     time.Time
	Device   uint64    // of /dev/shm: inode numbers mean nothing on another
	Files    []Item    // at a start only the numbers, of all users; Made is zero if the kernel does not show it
	Segments []Item    // Made is to the second: when it was created, or its owner or mode was set
	Others   []Listing // the files in the directories of Others, each with what it needs of this
	Login    bool      // the user is logged in on the node, or has lingering services there
	Unknown  string    // why something may be missing, empty if it is complete
}

// Others are the directories next to /dev/shm with memory of users', and what a file in them is called.
var Others = []struct{ Dir, File string }{{"mqueue", "POSIX message queue"}, {"hugepages", "huge page file"}}

// MaxMarked bounds the files, and the segments, in a record: 2,000 numbers take some 20 KiB.
const MaxMarked = 2000

func (l Listing) Mark() *record.SharedMark {
	m := &record.SharedMark{Wall: l.Wall.UTC().Round(0), Device: l.Device, Login: l.Login, Unknown: l.Unknown}
	if max(len(l.Files), len(l.Segments)) > MaxMarked {
		m.Unknown = "the user had too much in shared memory at the job's start to be kept"
		return m
	}
	m.Files, m.Segments = ids(l.Files), ids(l.Segments)
	for _, o := range l.Others {
		m.Others = append(m.Others, *o.Mark())
	}
	return m
}

func ids(items []Item) (sorted []uint64) {
	for _, i := range items {
		sorted = append(sorted, i.ID)
	}
	slices.Sort(sorted)
	return sorted
}

// Earlier are the files of a start's mark, which its end need not look at. It is nil at a start.
type Earlier [][]uint64

// FilesAt returns the files of a start, which left no mark if it is nil.
func FilesAt(start *record.SharedMark) Earlier {
	if start == nil {
		return Earlier{}
	}
	known := Earlier{start.Files}
	for _, o := range start.Others {
		known = append(known, o.Files)
	}
	return known
}

// In returns the numbers of the files that are known in /dev/shm (0) and each of the others, sorted; nil at a start.
func (k Earlier) In(place int) []uint64 {
	switch {
	case k == nil:
		return nil
	case place < len(k) && k[place] != nil:
		return k[place]
	}
	return []uint64{}
}

// Remains are what appeared in shared memory while a job ran and is not in use, the largest first.
type Remains struct {
	Files, Segments []Item
	Others          []Remains // by directory, as in Others
}

// coarse is how much earlier than the clock a file's birth may seem: the kernel takes it from its last tick.
const coarse = 10 * time.Millisecond

// Since returns what appeared after the mark of a job's start; known is false if that cannot be told.
func (l Listing) Since(start *record.SharedMark) (r Remains, known bool) {
	if start == nil || start.Unknown != "" || l.Unknown != "" || start.Device != l.Device {
		return r, false
	}
	from := start.Wall.Add(-coarse)
	r.Files = appeared(l.Files, start.Files, from, l.Wall)
	r.Segments = appeared(l.Segments, start.Segments, from.Truncate(time.Second), l.Wall)
	for i := range min(len(l.Others), len(start.Others)) {
		now, then := l.Others[i], start.Others[i]
		now.Wall, then.Wall = l.Wall, start.Wall
		o, _ := now.Since(&then) // where that cannot be told, nothing is left
		r.Others = append(r.Others, o)
	}
	return r, true
}

// appeared returns the items that were made in this time and are not among those of before. A file that is older was
// moved into the directory. Without a time the list of before alone decides.
func appeared(now []Item, before []uint64, from, to time.Time) (news []Item) {
	for _, i := range now {
		_, known := slices.BinarySearch(before, i.ID)
		if !known && !i.InUse && (i.Made.IsZero() || !i.Made.Before(from) && !i.Made.After(to)) {
			news = append(news, i)
		}
	}
	slices.SortFunc(news, func(a, b Item) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.ID, b.ID))
	})
	return slices.CompactFunc(news, func(a, b Item) bool { return a.ID == b.ID }) // a file of several names
}

// Inodes returns those of the files, sorted.
func (r Remains) Inodes() []uint64 { return ids(r.Files) }

// Only returns the remains without the files that are not among these: those in /dev/shm and in each of the others.
func (r Remains) Only(files ...[]uint64) Remains {
	files = append(files, make([][]uint64, 1+len(r.Others))...)
	left := r.without(files[0], false)
	left.Others = nil
	for i, o := range r.Others {
		left.Others = append(left.Others, o.without(files[1+i], false))
	}
	return left
}

func (r Remains) Without(files []uint64) Remains { return r.without(files, true) }

func (r Remains) without(files []uint64, these bool) Remains {
	slices.Sort(files)
	r.Files = slices.DeleteFunc(slices.Clone(r.Files), func(i Item) bool {
		_, is := slices.BinarySearch(files, i.ID)
		return is == these
	})
	return r
}

// Bytes returns how much memory they take.
func (r Remains) Bytes() (sum uint64) {
	for _, i := range r.all() {
		sum += i.Bytes
	}
	return sum
}

func (r Remains) all() []Item {
	all := slices.Concat(r.Files, r.Segments)
	for _, o := range r.Others {
		all = append(all, o.Files...)
	}
	return all
}

// Matter reports whether they are enough to be reported.
func (r Remains) Matter() bool {
	const minBytes, minEntries = 64 << 20, 100
	return r.Bytes() >= minBytes || len(r.all()) >= minEntries
}

// Witness is what an ended job's node shows of others of its user who may have left something.
type Witness struct {
	Exclusive bool   // Slurm gave the job the whole node
	Login     bool   // the user was logged in, or had lingering services
	PID       int    // of a process of the user's that is not the job's, 0 for none
	Unread    string // why not all of it could be read
}

// Unseen returns why the user may have had something without a record: a job without GPUs or a login.
func (w Witness) Unseen() string {
	switch {
	case !w.Exclusive:
		return "a job without GPUs may have run on the node, of which there is no record"
	case w.Login:
		return "the user was logged in on the node"
	case w.PID != 0:
		return fmt.Sprintf("process %d of the user is on the node", w.PID)
	}
	return w.Unread
}

// ParseSegments returns the segments in the text of /proc/sysvipc/shm that the user owns. Its first line names the
// columns, whose order and number differ between kernels. A segment that a process has mapped is in use. One that
// another user created counts as in use too: it may have been given to this user to be blamed on their job.
func ParseSegments(text string, uid uint32) (all []Item, err error) {
	head, rest, _ := strings.Cut(text, "\n")
	columns := strings.Fields(head)
	for line := range strings.Lines(rest) {
		fields := strings.Fields(line)
		number := func(column string) (n uint64) {
			at := slices.Index(columns, column)
			if at < 0 || len(fields) != len(columns) {
				err = fmt.Errorf("parse segments: no column %q in %d fields", column, len(fields))
				return 0
			}
			n, wrong := strconv.ParseUint(fields[at], 10, 63)
			if wrong != nil {
				err = fmt.Errorf("parse segments: %q: %w", column, wrong)
			}
			return n
		}
		owner, s := number("uid"), Item{ID: number("shmid"), Bytes: min(number("rss"), number("size")),
			Made: time.Unix(int64(number("ctime")), 0), InUse: number("nattch") > 0 || number("cuid") != uint64(uid)}
		if err != nil {
			return nil, err
		}
		if owner == uint64(uid) {
			all = append(all, s)
		}
	}
	return all, nil
}
