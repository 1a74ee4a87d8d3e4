// Package joblog reaches the file that holds a job's own output: it finds the file, carries its path from the job's
// start to its end, reads the end of the file, and appends a text to it.
//
// Paths, devices and inodes are the user's claims. Append and Begin are safe because their process has become that user
// before; their further checks only keep them from the wrong file.
package joblog

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"bookend/internal/oomlog"
	"bookend/internal/record"
	"bookend/internal/slurm"
)

const (
	// MaxText is the largest text Append writes: a start and an end report of 20 lines of 80 columns, with room.
	MaxText = 8 << 10
	maxPath = unix.PathMax - 1 // without its NUL
)

// Target is the file a job writes to.
type Target slurm.OutputFile

// Reasons why a text was not appended, or an output not read, short enough to count by.
const (
	missing    = "missing"     // no such file, as for srun, salloc and private temporary directories
	notRegular = "not-regular" // /dev/null, a pipe, a symbolic link
	notOwner   = "not-owner"
	links      = "links"   // more than one name
	changed    = "changed" // another file than the one the job wrote to
	readonly   = "readonly"
	full       = "full"
	permission = "permission"
	other      = "error"
)

// IsReason reports whether a text is one of the reasons, none of which is a fault of the node.
func IsReason(text string) bool {
	all := []string{missing, notRegular, notOwner, links, changed, readonly, full, permission, silent, other}
	return slices.Contains(all, text)
}

func reason(err error) string {
	if err == nil {
		return ""
	}
	var errno unix.Errno
	errors.As(err, &errno)
	return cmp.Or(reasons[errno], other)
}

// Append appends text to the target, which must be an existing regular file of uid's with one name, or returns why not.
// The process must have become that user (child.Become). If the reason is "full", a part may have been written.
func Append(t Target, uid uint32, text []byte) (refused string) {
	if len(text) > MaxText {
		return other
	}
	f, _, refused := t.open(uid, unix.O_WRONLY|unix.O_APPEND)
	if refused != "" {
		return refused
	}
	_, err := f.Write(text)
	return reason(errors.Join(err, f.Close())) // network file systems report a full disk on closing
}

func (t Target) open(uid uint32, access int) (f *os.File, st unix.Stat_t, refused string) {
	if t.check() != nil {
		return nil, st, other
	}
	// Threat: the user names any file, and swaps it for a link, a FIFO or a device meanwhile. Only files that the user
	// could read or write directly can be opened; none is created, followed, waited for, or becomes our terminal, and
	// only a file that the user owns, under no other name, is used.
	const flags = unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC
	fd, err := -1, error(unix.EINTR)
	for errors.Is(err, unix.EINTR) {
		fd, err = unix.Open(t.Path, access|flags, 0)
	}
	if err != nil {
		return nil, st, reason(err)
	}
	f = os.NewFile(uintptr(fd), t.Path)
	if refused = reason(unix.Fstat(fd, &st)); refused == "" {
		refused = t.differs(st, uid)
	}
	if refused != "" {
		f.Close()
	}
	return f, st, refused
}

func (t Target) differs(st unix.Stat_t, uid uint32) string {
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return notRegular
	case st.Uid != uid:
		return notOwner
	case st.Nlink != 1:
		return links
	case t.Ino != 0 && (t.Ino != st.Ino || t.Dev != st.Dev):
		return changed
	}
	return ""
}

func (t Target) check() error {
	switch {
	case !filepath.IsAbs(t.Path):
		return fmt.Errorf("path %.100q is not absolute", t.Path)
	case len(t.Path) > maxPath:
		return fmt.Errorf("path of %d bytes", len(t.Path))
	case strings.ContainsRune(t.Path, 0):
		return errors.New("path with a NUL")
	}
	return nil
}

var reasons = map[unix.Errno]string{
	unix.ENOENT: missing, unix.ENOTDIR: missing, unix.ESTALE: missing, unix.ENAMETOOLONG: missing,
	// ELOOP: a symbolic link. ENXIO: a FIFO without a reader, a socket, a missing device.
	unix.ELOOP: notRegular, unix.EISDIR: notRegular, unix.ENXIO: notRegular, unix.ENODEV: notRegular,
	unix.EROFS: readonly, unix.EACCES: permission, unix.EPERM: permission,
	unix.ENOSPC: full, unix.EDQUOT: full, unix.EFBIG: full,
}

// overlap is how much of a window is also in the next one: a message, or a report, is complete in one of them.
const overlap = MaxText

// Search is the search for messages in one output, from its end towards its beginning.
type Search struct {
	Messages []record.Message // in the order in which they were written
	Size     int64            // of the output when it was opened: later output is not searched
	Read     int64            // bytes searched, from the end
	Refused  string           // why it is not searched, as returned by Append
	// Earlier means that a report of another end, or of a start, was met: what is before it is not searched.
	Earlier bool
	// Cancelled: Slurm wrote at the end that the job was cancelled or met its time limit. The exit status hides it.
	Cancelled bool

	text io.ReaderAt
	file *os.File
}

func NewSearch(text io.ReaderAt, size int64) *Search { return &Search{text: text, Size: size} }

// Begin opens the target, a regular file of uid's with one name, as that user (child.Become), and reads its end.
func Begin(t Target, uid uint32) *Search {
	f, st, refused := t.open(uid, unix.O_RDONLY)
	if refused != "" {
		return &Search{Refused: refused}
	}
	s := NewSearch(io.NewSectionReader(f, 0, st.Size), st.Size)
	s.file = f
	s.Tail()
	return s
}

// Close closes the file. It was only read, so an error loses nothing.
func (s *Search) Close() { _ = s.file.Close() }

// Tail searches the last oom.MaxTail bytes.
func (s *Search) Tail() {
	s.Cancelled = cancelled(s.look(s.Size))
}

// cancelled reports whether Slurm's line about a cancelled job, or one that met its time limit, is in a text.
func cancelled(text []byte) bool {
	_, after, found := bytes.Cut(text, []byte(" error: *** JOB ")) // after slurmstepd's name, or in 26.05 a time
	return found && bytes.Contains(after, []byte(" CANCELLED AT "))
}

// Cancelled reports whether the end of the target, a regular file with one name of this process's user, has that line.
func Cancelled(t Target, uid uint32) bool {
	f, st, refused := t.open(uid, unix.O_RDONLY)
	if refused != "" {
		return false
	}
	defer f.Close()
	text := make([]byte, min(st.Size, oomlog.MaxTail))
	n, _ := f.ReadAt(text, st.Size-int64(len(text)))
	return cancelled(thisRun(text[:n]))
}

// Back searches further back, after Tail, at most limit bytes, until it finds a message about memory or more is false.
func (s *Search) Back(limit int64, more func() bool) {
	until := min(s.Size, s.Read+limit)
	for s.Refused == "" && s.Read < until && !s.Recognised() && !s.Earlier && more() {
		s.look(min(s.Size, s.Size-s.Read+overlap))
	}
}

// look searches the window of at most oom.MaxTail bytes that ends at an offset.
func (s *Search) look(end int64) []byte {
	window := make([]byte, min(end, oomlog.MaxTail))
	n, err := s.text.ReadAt(window, end-int64(len(window)))
	if err != nil && !errors.Is(err, io.EOF) { // cut meanwhile
		s.Refused = reason(err)
		return nil
	}
	run := thisRun(window[:n])
	found, earlier := oomlog.Find(run), int64(n-len(run))
	if end < s.Size { // other messages in it may be in the window after it as well
		found = slices.DeleteFunc(found, func(m record.Message) bool { return !AboutMemory(m) })
	}
	s.Messages = append(found, s.Messages...)
	s.Read, s.Earlier = s.Size-max(0, end-oomlog.MaxTail)-earlier, earlier > 0
	return window[:n]
}

// ours begins a report of Bookend's, after an empty line.
var ours = []byte("\n\n| bookend: ")

// beginning is in the line that the start of a step writes, in the middle of a run.
var beginning = []byte(" before your job started")

// scriptEnd is in the line that a TaskEpilog writes about processes, before the job's end.
var scriptEnd = []byte(" a GPU at the end of your script")

// thisRun returns what follows Bookend's last end report. That report is of an earlier run, or of another job with the
// same file: this run's is written later. Lines of the TaskEpilog about processes belong to this run.
func thisRun(text []byte) []byte {
	for end := len(text); ; {
		at := bytes.LastIndex(text[:end], ours)
		if at < 0 {
			return text
		}
		line, _, _ := bytes.Cut(text[at+len(ours):], []byte("\n"))
		if end = at; bytes.Contains(line, scriptEnd) || bytes.Contains(line, beginning) {
			continue
		}
		for text = text[at+2:]; bytes.HasPrefix(text, ours[2:]); {
			_, text, _ = bytes.Cut(text, []byte("\n"))
		}
		return text
	}
}

func (s *Search) Recognised() bool { return slices.ContainsFunc(s.Messages, AboutMemory) }

// AboutMemory reports whether a message means that memory ran out: a GPU's or the node's.
func AboutMemory(m record.Message) bool {
	return m.Kind == record.KindDevice || m.Kind == record.KindInit || m.Kind == record.KindHost
}

// Quote marks each line of a text as Bookend's, among a job's own.
func Quote(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString("| " + line)
	}
	return b.String()
}

// Unread describes what was not searched of a job's outputs, empty if all was. none means that nothing was.
func Unread(outputs []record.Output) (words string, none bool) {
	none = true
	var reasons []string
	for _, o := range outputs {
		none = none && o.Read == 0 && o.Why != ""
		if why := unread(o, len(outputs) == 1); why != "" && !slices.Contains(reasons, why) {
			reasons = append(reasons, why)
		}
	}
	return strings.Join(reasons, "; "), none
}

// unread describes what was not searched of one output. only is set if it is the job's only one.
func unread(o record.Output, only bool) string {
	text := o.Why
	switch {
	case o.Read == o.Size && o.Why == "":
		return ""
	case o.Read > 0:
		text = fmt.Sprintf("only its last %d KiB", (o.Read+1023)>>10)
	}
	if only {
		return text
	}
	return o.Kind.Name() + ": " + text
}
