package joblog

import (
	"bytes"
	"errors"
	"io"
	"slices"

	"bookend/internal/oom"
)

// overlap is how much of a window belongs to the one after it as well: a message, and a report of Bookend's, is whole in
// one of them.
const overlap = MaxText

// needles are in lower case; each message about memory has at least one of them, but for errors that have no more than a
// number. The blank keeps "zoom", "room" and "bloom" out.
var needles = [][]byte{
	[]byte("memory"), []byte("alloc"), []byte(" oom"), []byte("dev/shm"), []byte("dst tensor"), []byte("buffer_size"), []byte("out_of_re"),
	[]byte("</torch_"), []byte("mmap"), []byte("could not reserve"), []byte("storefull"), []byte("no_mem"), []byte("pool size"), []byte("array size"),
	[]byte("error: killed"), []byte("signal 9"), []byte("total-vm"), []byte("exhausted"), []byte("kv cache"),
}

// Search is the search for messages in one output, from its end towards its beginning.
type Search struct {
	Messages []oom.Message // in the order in which they were said
	Read     int64         // bytes before the end that were looked through
	// Earlier: what stands before that is not looked through because a report of Bookend's stands between, most likely
	// that of an earlier run of the job.
	Earlier bool
	// Cancelled: Slurm says at the end that the job was cancelled or met its time limit. Its exit status does not tell.
	Cancelled bool

	text   io.ReaderAt
	size   int64
	window []byte
	lower  []byte
}

// NewSearch readies the search of a text of so many bytes.
func NewSearch(text io.ReaderAt, size int64) *Search { return &Search{text: text, size: size} }

// Tail looks through the last oom.MaxTail bytes.
func (s *Search) Tail() error {
	text, err := s.before(s.size)
	if err != nil {
		return err
	}
	s.Messages, s.Read, s.Earlier = oom.Find(text), int64(len(text)), divided(text)
	_, after, found := bytes.Cut(text, []byte(": error: *** JOB "))
	s.Cancelled = found && bytes.Contains(after, []byte(" CANCELLED AT "))
	return nil
}

// Back looks further back, after Tail, until a message about memory is recognised, for at most so many bytes, and while
// there is more time. Only windows with a needle are looked at in earnest. What it finds stands before what Tail found.
func (s *Search) Back(limit int64, more func() bool) error {
	for from := s.Read; s.Read < s.size && s.Read-from < limit && !s.Recognised() && !s.Earlier && more(); {
		text, err := s.before(min(s.size, s.size-s.Read+overlap))
		if err != nil {
			return err
		}
		s.Read = min(s.size, s.Read+oom.MaxTail-overlap)
		s.Earlier = divided(text)
		if s.promising(text) { // what else is said there may stand in the window after it as well
			said := slices.DeleteFunc(oom.Find(text), func(m oom.Message) bool { return !AboutMemory(m) })
			s.Messages = append(said, s.Messages...)
		}
	}
	return nil
}

// before reads what stands before an offset, at most oom.MaxTail bytes; it is valid until the next call.
func (s *Search) before(end int64) ([]byte, error) {
	if s.window == nil {
		s.window = make([]byte, oom.MaxTail)
	}
	begin := max(0, end-oom.MaxTail)
	n, err := s.text.ReadAt(s.window[:end-begin], begin)
	if errors.Is(err, io.EOF) { // it has been cut meanwhile
		err = nil
	}
	return s.window[:n], err
}

// promising reports whether a text has a needle, in whatever case.
func (s *Search) promising(text []byte) bool {
	s.lower = s.lower[:0]
	for _, c := range text {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		s.lower = append(s.lower, c)
	}
	return slices.ContainsFunc(needles, func(n []byte) bool { return bytes.Contains(s.lower, n) })
}

// divided reports whether a report of Bookend's stands in a text, after an empty line as an end report does. What the
// TaskEpilog says of processes is this run's own.
func divided(text []byte) bool {
	sign, own := []byte("\n\n| bookend: "), []byte("process ")
	for {
		_, after, found := bytes.Cut(text, sign)
		if !found {
			return false
		}
		if !bytes.HasPrefix(after, own) {
			return true
		}
		text = after
	}
}

// Recognised reports whether a message was found that memory ran out.
func (s *Search) Recognised() bool { return slices.ContainsFunc(s.Messages, AboutMemory) }

// AboutMemory reports a message that memory ran out: a GPU's or the node's.
func AboutMemory(m oom.Message) bool {
	return m.Kind == oom.Device || m.Kind == oom.Init || m.Kind == oom.Host
}
