package wire

import (
	"encoding/json"
	"fmt"
	"io"
)

// Line returns the request as the one line to send, in this version of the protocol. It fails when the line
// is longer than MaxRequestBytes: it would not fit the pipe, and the hook would wait for the backend to read.
func (r Request) Line() ([]byte, error) {
	r.Bookend = Version
	line, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	if len(line) >= MaxRequestBytes {
		return nil, fmt.Errorf("encode request: %d bytes, at most %d", len(line)+1, MaxRequestBytes)
	}
	return append(line, '\n'), nil
}

// Writer writes reply lines and keeps them together below MaxReplyBytes, with room left for the last one.
type Writer struct {
	w    io.Writer
	left int
}

// endRoom is kept free for the done line, so that a long answer is short of looks but not cut off.
const endRoom = 64

// NewWriter returns a Writer on w, which gets one Write a line.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w, left: MaxReplyBytes} }

// Renew gives a recording's next look all the room again: its looks are read one by one.
func (w *Writer) Renew() { w.left = MaxReplyBytes }

// Write sends one reply, in this version of the protocol. A reply for which no room is left is not sent: the
// error is then an *Error with TooLong, and shorter ones may still be.
func (w *Writer) Write(r Reply) error {
	r.Bookend = Version
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode reply: %w", err)
	}
	line = append(line, '\n')
	room := w.left - endRoom
	if r.Kind == KindDone {
		room = w.left
	}
	if len(line) > room {
		return &Error{Problem: TooLong, Detail: fmt.Sprintf("%d bytes more than %d", len(line), room)}
	}
	w.left -= len(line)
	if _, err := w.w.Write(line); err != nil {
		return fmt.Errorf("write reply: %w", err)
	}
	return nil
}
