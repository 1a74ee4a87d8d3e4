package joblog

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"bookend/internal/oom"
)

// overlap is how much of a window belongs to the one after it as well: a message, and a report of Bookend's, is whole
// in one of them.
const overlap = MaxText

// Search is the search for messages in one output, from its end towards its beginning.
type Search struct {
	Messages []oom.Message // in the order in which they were said
	Size     int64         // of the output when it was opened: what is written later is no part of it
	Read     int64         // bytes before the end that were looked through
	Refused  string        // why it is not looked through, as Append has it
	// Earlier: what stands before that is not looked through because a report of Bookend's stands between, of another
	// end or of a start.
	Earlier bool
	// Cancelled: Slurm says at the end that the job was cancelled or met its time limit. Its exit status does not tell.
	Cancelled bool

	text io.ReaderAt
	file *os.File
}

// NewSearch readies the search of a text of so many bytes.
func NewSearch(text io.ReaderAt, size int64) *Search { return &Search{text: text, Size: size} }

// Begin opens the target, which must be an existing regular file of uid's with one name, and looks through its end. The
// process must have become that user (child.Become).
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

// Close closes the file, which was only read: nothing can be lost.
func (s *Search) Close() { _ = s.file.Close() }

// Tail looks through the last oom.MaxTail bytes.
func (s *Search) Tail() {
	_, after, found := bytes.Cut(s.look(s.Size), []byte(": error: *** JOB "))
	s.Cancelled = found && bytes.Contains(after, []byte(" CANCELLED AT "))
}

// Back looks further back, after Tail, until a message about memory is recognised, for at most so many bytes, and while
// there is more time. What it finds stands before what Tail found.
func (s *Search) Back(limit int64, more func() bool) {
	for from := s.Read; s.Refused == "" && s.Read < s.Size && s.Read-from < limit && !s.Recognised() && !s.Earlier && more(); {
		s.look(min(s.Size, s.Size-s.Read+overlap))
	}
}

// look looks through the window that ends at an offset, of at most oom.MaxTail bytes.
func (s *Search) look(end int64) []byte {
	window := make([]byte, min(end, oom.MaxTail))
	n, err := s.text.ReadAt(window, end-int64(len(window)))
	if err != nil && !errors.Is(err, io.EOF) { // then it has been cut meanwhile
		s.Refused = reason(err)
		return nil
	}
	run := thisRun(window[:n])
	found, earlier := oom.Find(run), int64(n-len(run))
	if end < s.Size { // what else is said there may stand in the window after it as well
		found = slices.DeleteFunc(found, func(m oom.Message) bool { return !AboutMemory(m) })
	}
	s.Messages = append(found, s.Messages...)
	s.Read, s.Earlier = s.Size-max(0, end-oom.MaxTail)-earlier, earlier > 0
	return window[:n]
}

// ours begins a report of Bookend's, after an empty line.
var ours = []byte("\n\n| bookend: ")

// thisRun is what stands after the last end report of Bookend's: that belongs to an earlier run of the job, or to
// another job that writes to the same file, for this run's own is written later. What the TaskEpilog says of processes
// is this run's own.
func thisRun(text []byte) []byte {
	for end := len(text); ; {
		at := bytes.LastIndex(text[:end], ours)
		if at < 0 {
			return text
		}
		if end = at; bytes.HasPrefix(text[at+len(ours):], []byte("process ")) {
			continue
		}
		for text = text[at+2:]; bytes.HasPrefix(text, ours[2:]); {
			_, text, _ = bytes.Cut(text, []byte("\n"))
		}
		return text
	}
}

// Recognised reports whether a message was found that memory ran out.
func (s *Search) Recognised() bool { return slices.ContainsFunc(s.Messages, AboutMemory) }

// AboutMemory reports a message that memory ran out: a GPU's or the node's.
func AboutMemory(m oom.Message) bool {
	return m.Kind == oom.Device || m.Kind == oom.Init || m.Kind == oom.Host
}
