package protocol

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"bookend/internal/gpu"
)

// Problem is what is wrong with bytes that came through the pipe.
type Problem string

const (
	Garbage      Problem = "garbage"       // not JSON, of the wrong shape, or an impossible value
	WrongVersion Problem = "wrong version" // the other side speaks another protocol version
	CutOff       Problem = "cut off"       // the last line is incomplete or not a done
	TooLong      Problem = "too long"
)

// Error is a violation of the protocol. Detail may contain strings from the other side.
type Error struct {
	Problem Problem
	Line    int // counted from 1; 0 if the error is not in one line
	Detail  string
}

func (e *Error) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("line %d: %s: %s", e.Line, e.Problem, e.Detail)
	}
	return fmt.Sprintf("%s: %s", e.Problem, e.Detail)
}

func garbage(format string, args ...any) *Error {
	return &Error{Problem: Garbage, Detail: fmt.Sprintf(format, args...)}
}

// ReadRequest reads a request up to its newline. Nothing may follow but the end of the pipe, for which the caller still
// has to wait. Errors are *Error, except those of r.
func ReadRequest(r io.Reader) (Request, error) {
	line, err := readLine(r)
	if err != nil {
		return Request{}, err
	}
	if problem := checkVersion(line); problem != nil {
		return Request{}, problem
	}
	var req Request
	if err := json.Unmarshal(line, &req); err != nil {
		return Request{}, garbage("%v", err)
	}
	if problem := validateRequest(req); problem != nil {
		return Request{}, problem
	}
	return req, nil
}

// readLine reads up to a newline, which must be the last byte that has arrived.
func readLine(r io.Reader) (line []byte, err error) {
	for some := make([]byte, 4<<10); len(line) <= MaxRequestBytes; {
		n, err := r.Read(some)
		line = append(line, some[:n]...)
		end := bytes.IndexByte(line, '\n')
		switch {
		case end >= 0 && end < len(line)-1:
			return nil, garbage("more than one line")
		case end >= 0 && end < MaxRequestBytes:
			return line[:end], nil
		case end >= 0:
		case err == io.EOF:
			return nil, &Error{Problem: CutOff,
				Detail: fmt.Sprintf("request ends after %d bytes without a newline", len(line))}
		case err != nil:
			return nil, fmt.Errorf("read request: %w", err)
		}
	}
	return nil, &Error{Problem: TooLong, Detail: fmt.Sprintf("request has more than %d bytes", MaxRequestBytes)}
}

// DecodeReplies decodes all that a backend wrote. If it fails it still returns the replies before the first bad line:
// what was read before a crash is still true. Fields and kinds of reply unknown to this version are ignored; a figure
// that is left out is unknown. The error is an *Error.
func DecodeReplies(out []byte) ([]Reply, error) {
	if len(out) > MaxReplyBytes {
		return nil, &Error{Problem: TooLong,
			Detail: fmt.Sprintf("answer has %d bytes, at most %d", len(out), MaxReplyBytes)}
	}
	var replies []Reply
	for n := 1; len(out) > 0; n++ {
		line, rest, whole := bytes.Cut(out, []byte{'\n'})
		if !whole {
			return replies, &Error{Problem: CutOff, Line: n,
				Detail: fmt.Sprintf("no newline after %d bytes", len(line))}
		}
		reply, problem := decodeReply(line)
		if problem != nil {
			problem.Line = n
			return replies, problem
		}
		if reply.Kind != kindOther {
			replies = append(replies, reply)
		}
		if reply.Kind == KindDone && len(rest) > 0 {
			return replies, &Error{Problem: Garbage, Line: n + 1, Detail: "more after the last line"}
		}
		out = rest
	}
	if len(replies) == 0 || replies[len(replies)-1].Kind != KindDone {
		return replies, &Error{Problem: CutOff, Detail: fmt.Sprintf("no done after %d replies", len(replies))}
	}
	return replies, nil
}

// DecodeLook decodes one line of a recording: a snapshot, or nil for any other valid line. The error is an *Error.
func DecodeLook(line []byte) (*gpu.Snapshot, error) {
	reply, problem := decodeReply(line)
	if problem != nil {
		return nil, problem
	}
	return reply.Snapshot, nil
}

func decodeReply(line []byte) (Reply, *Error) {
	if problem := checkVersion(line); problem != nil {
		return Reply{}, problem
	}
	var reply Reply
	var sent shape
	if err := errors.Join(json.Unmarshal(line, &reply), json.Unmarshal(line, &sent)); err != nil {
		return Reply{}, garbage("%v", err)
	}
	sent.mark(reply.Snapshot)
	problem := validateReply(&reply)
	return reply, problem
}

// checkVersion runs before the rest is decoded: another version may have another shape.
func checkVersion(line []byte) *Error {
	var head struct {
		Bookend *int `json:"bookend"`
	}
	if err := json.Unmarshal(line, &head); err != nil {
		return garbage("%v", err)
	}
	if head.Bookend == nil {
		return garbage("no protocol version")
	}
	if *head.Bookend != Version {
		return &Error{Problem: WrongVersion, Detail: fmt.Sprintf("version %d, not %d", *head.Bookend, Version)}
	}
	return nil
}

const leftOut = "not reported by the backend"

// shape distinguishes a figure that was left out from a 0, and a process list left out (or null) from an empty one.
type shape struct {
	Snapshot *struct {
		Readings []struct {
			Memory struct {
				Total    figure `json:"total"`
				Reserved figure `json:"reserved"`
				Used     figure `json:"used"`
				Free     figure `json:"free"`
			} `json:"memory"`
			Processes *[]struct {
				Memory figure `json:"memory"`
			} `json:"processes"`
		} `json:"readings"`
	} `json:"snapshot"`
}

type figure struct {
	Bytes   *uint64 `json:"bytes"`
	Unknown string  `json:"unknown"`
}

// mark makes a figure unknown if it has a reason, whatever number comes with it, or if it was left out.
func (f figure) mark(of *gpu.Figure) {
	if f.Unknown != "" {
		*of = gpu.Unknown(f.Unknown)
	} else if f.Bytes == nil {
		*of = gpu.Unknown(leftOut)
	}
}

func (s shape) mark(snapshot *gpu.Snapshot) {
	if s.Snapshot == nil || snapshot == nil {
		return
	}
	for i, sent := range s.Snapshot.Readings {
		r := &snapshot.Readings[i]
		sent.Memory.Total.mark(&r.Memory.Total)
		sent.Memory.Reserved.mark(&r.Memory.Reserved)
		sent.Memory.Used.mark(&r.Memory.Used)
		sent.Memory.Free.mark(&r.Memory.Free)
		if sent.Processes == nil {
			r.ProcessesUnknown = cmp.Or(r.ProcessesUnknown, leftOut)
			continue
		}
		for j, p := range *sent.Processes {
			p.Memory.mark(&r.Processes[j].Memory)
		}
	}
}
