// Package leftover has what a user keeps in a node's shared memory at the two ends of a job, the rule that decides what
// the job left there, and its words. It takes values and returns values.
package leftover

import (
	"cmp"
	"slices"
	"time"
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
	Device   uint64 // of /dev/shm: inode numbers mean nothing on another
	Files    []Item // Made is zero if the kernel does not show when a file was created
	Segments []Item // Made is to the second: when it was created, or its owner or mode was set
	Login    bool   // the user is logged in on the node, or has lingering services there
	Unknown  string // why something may be missing, empty if it is complete
}

// Mark is what a job's record keeps of the listing at its start.
type Mark struct {
	Wall     time.Time `json:"wall"`
	Device   uint64    `json:"device"`
	Files    []uint64  `json:"files,omitempty"` // sorted, as the segments
	Segments []uint64  `json:"segments,omitempty"`
	Login    bool      `json:"login,omitempty"`
	Unknown  string    `json:"unknown,omitempty"`
}

// maxMarked bounds the files, and the segments, in a record: 2,000 numbers take some 20 KiB.
const maxMarked = 2000

// Mark returns what a record keeps of the listing.
func (l Listing) Mark() *Mark {
	m := &Mark{Wall: l.Wall.UTC().Round(0), Device: l.Device, Login: l.Login, Unknown: l.Unknown}
	if max(len(l.Files), len(l.Segments)) > maxMarked {
		m.Unknown = "the user had too much in shared memory at the job's start to be kept"
		return m
	}
	m.Files, m.Segments = ids(l.Files), ids(l.Segments)
	return m
}

func ids(items []Item) (sorted []uint64) {
	for _, i := range items {
		sorted = append(sorted, i.ID)
	}
	slices.Sort(sorted)
	return sorted
}

// Remains are what appeared in shared memory while a job ran and is not in use, the largest first.
type Remains struct{ Files, Segments []Item }

// coarse is how much earlier than the clock a file's birth may seem: the kernel takes it from its last tick.
const coarse = 10 * time.Millisecond

// Since returns what appeared after the mark of a job's start; known is false if that cannot be told.
func (l Listing) Since(start *Mark) (r Remains, known bool) {
	if start == nil || start.Unknown != "" || l.Unknown != "" || start.Device != l.Device {
		return r, false
	}
	from := start.Wall.Add(-coarse)
	r.Files = appeared(l.Files, start.Files, from, l.Wall)
	r.Segments = appeared(l.Segments, start.Segments, from.Truncate(time.Second), l.Wall)
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

// Only returns the remains without the files that are not among these.
func (r Remains) Only(files []uint64) Remains { return r.without(files, false) }

// Without returns the remains without these files.
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
	for _, i := range slices.Concat(r.Files, r.Segments) {
		sum += i.Bytes
	}
	return sum
}

// Matter reports whether they are enough to be reported.
func (r Remains) Matter() bool {
	const minBytes, minEntries = 64 << 20, 100
	return r.Bytes() >= minBytes || len(r.Files)+len(r.Segments) >= minEntries
}
