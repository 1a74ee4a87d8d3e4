package joblog

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"

	"bookend/internal/oom"
)

// overlap is how much of a window belongs to the one after it as well: a message, and a report of Bookend's, is whole
// in one of them.
const overlap = MaxText

// Search is the search for messages in one output, from its end towards its beginning.
type Search struct {
	Messages []oom.Message // in the order in which they were said
	Read     int64         // bytes before the end that were looked through
	// Earlier: what stands before that is not looked through because a report of Bookend's stands between, of another
	// end or of a start.
	Earlier bool
	// Cancelled: Slurm says at the end that the job was cancelled or met its time limit. Its exit status does not tell.
	Cancelled bool

	text io.ReaderAt
	size int64
}

// NewSearch readies the search of a text of so many bytes.
func NewSearch(text io.ReaderAt, size int64) *Search { return &Search{text: text, size: size} }

// Tail looks through the last oom.MaxTail bytes.
func (s *Search) Tail() error {
	text, err := s.look(s.size)
	if err != nil {
		return err
	}
	_, after, found := bytes.Cut(text, []byte(": error: *** JOB "))
	s.Cancelled = found && bytes.Contains(after, []byte(" CANCELLED AT "))
	return nil
}

// Back looks further back, after Tail, until a message about memory is recognised, for at most so many bytes, and while
// there is more time. What it finds stands before what Tail found.
func (s *Search) Back(limit int64, more func() bool) error {
	for from := s.Read; s.Read < s.size && s.Read-from < limit && !s.Recognised() && !s.Earlier && more(); {
		if _, err := s.look(min(s.size, s.size-s.Read+overlap)); err != nil {
			return err
		}
	}
	return nil
}

// look looks through the window that ends at an offset.
func (s *Search) look(end int64) (text []byte, err error) {
	if text, err = s.before(end); err != nil {
		return nil, err
	}
	run := thisRun(text)
	found, earlier := oom.Find(run), int64(len(text)-len(run))
	if end < s.size { // what else is said there may stand in the window after it as well
		found = slices.DeleteFunc(found, func(m oom.Message) bool { return !AboutMemory(m) })
	}
	s.Messages = append(found, s.Messages...)
	s.Read, s.Earlier = s.size-max(0, end-oom.MaxTail)-earlier, earlier > 0 || divided(run)
	return text, nil
}

// before reads what stands before an offset, at most oom.MaxTail bytes.
func (s *Search) before(end int64) ([]byte, error) {
	window := make([]byte, min(end, oom.MaxTail))
	n, err := s.text.ReadAt(window, end-int64(len(window)))
	if errors.Is(err, io.EOF) { // it has been cut meanwhile
		err = nil
	}
	return window[:n], err
}

// ours begins a line of Bookend's.
var ours = []byte("| bookend: ")

// reports are blocks of lines of Bookend's.
var reports = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)(?:^\| bookend: .*(?:\n|\z))+`) })

// thisRun is what stands after the last end report of Bookend's: that belongs to an earlier run of the job, or to
// another job that writes to the same file, for this run's own is written later.
func thisRun(text []byte) []byte {
	if !bytes.Contains(text, ours) {
		return text
	}
	for _, at := range slices.Backward(reports().FindAllIndex(text, -1)) {
		if isEnd(text[at[0]:at[1]]) {
			return text[at[1]:]
		}
	}
	return text
}

// divided reports whether a report of Bookend's stands in a text, after an empty line, and may be an end's. What the
// TaskEpilog says of processes is this run's own.
func divided(text []byte) bool {
	for found := true; found; {
		if _, text, found = bytes.Cut(text, []byte("\n\n| bookend: ")); found &&
			!bytes.HasPrefix(text, []byte("process ")) {
			return true
		}
	}
	return false
}

// isEnd tells an end report from a start report, and from what task hooks say.
func isEnd(block []byte) bool {
	said := strings.Join(strings.Fields(strings.ReplaceAll(string(block), "| bookend:", "")), " ")
	return slices.ContainsFunc(endWords, func(words string) bool { return strings.Contains(said, words) })
}

// endWords are those of end reports, of this release and of earlier ones: no start report has them.
var endWords = []string{" clean: ", "OUT OF MEMORY on ", "CUDA DID NOT START on ", "WARNING: your job ",
	"after your job",
	"during your job", "as your job found it", "and was ended (SIG", "left clean by your job", "clean now",
	"More: for your admin:"}

// Recognised reports whether a message was found that memory ran out.
func (s *Search) Recognised() bool { return slices.ContainsFunc(s.Messages, AboutMemory) }

// AboutMemory reports a message that memory ran out: a GPU's or the node's.
func AboutMemory(m oom.Message) bool {
	return m.Kind == oom.Device || m.Kind == oom.Init || m.Kind == oom.Host
}
