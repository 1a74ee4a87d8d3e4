package child

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Env is the outside world, as main passes it in.
type Env struct {
	Args    []string
	Getenv  func(string) string
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer
	EUID    int
	PID     int
	Clock   Clock
	Exit    func(int) // ends the process at once: for the watchdog and children
	Version string
}

// Confine makes a root process give up what it does not need. If that fails, it prints why, and the work goes on: this
// is a second line of defence. A user's own hook has nothing to hide from that user.
func (e Env) Confine() {
	if e.EUID != 0 {
		return
	}
	if err := Confine(); err != nil {
		fmt.Fprintf(e.Stderr, "bookend: %v\n", err)
	}
}

// Progress writes a line to standard error if that is a terminal and done is not called within a second.
func (e Env) Progress(text string) (done func() bool) {
	return time.AfterFunc(time.Second, func() {
		defer Recover(func(*Panic) {})
		if isTerminal(e.Stderr) {
			fmt.Fprintln(e.Stderr, text)
		}
	}).Stop
}

// Clear is what clears the screen, empty if standard output is no terminal.
func (e Env) Clear() string {
	if !isTerminal(e.Stdout) {
		return ""
	}
	return "\x1b[H\x1b[2J"
}

func isTerminal(w io.Writer) bool {
	file, isFile := w.(*os.File)
	if !isFile {
		return false
	}
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return err == nil
}

// Operation is work for a child: this very binary, started again as "--child NAME". What may sleep in the kernel, be
// slow without end, or work among a user's files is an operation, so that a hook waits for it no longer than it can
// afford. The child reads one JSON request and writes one JSON reply. Records of stuck children have its name.
type Operation[Req, Rep any] struct{ Name string }

// handlers has the operations of all packages that the program imports.
var handlers = map[string]handler{}

type handler struct {
	serve  func(request []byte) (any, error)
	finish time.Duration // how long the work may go on once the hook no longer waits for the reply
}

// NewOperation makes an operation; every program that imports its package can serve it.
func NewOperation[Req, Rep any](name string, serve func(Req) (Rep, error)) Operation[Req, Rep] {
	decode := func(request []byte) (any, error) {
		var req Req
		if err := json.Unmarshal(request, &req); err != nil {
			return nil, fmt.Errorf("decode request: %w", err)
		}
		return serve(req)
	}
	handlers[name] = handler{decode, time.Second} // so that what is being written is complete
	return Operation[Req, Rep]{name}
}

// Finish lets the child do its work to the end, for at most limit, although its hook no longer waits for the reply.
func (o Operation[Req, Rep]) Finish(limit time.Duration) Operation[Req, Rep] {
	handlers[o.Name] = handler{handlers[o.Name].serve, limit}
	return o
}

// MaxRequest bounds a request to our own child, and its reply: 950 processes on each of 16 GPUs, some 200 bytes each.
const MaxRequest = 4 << 20

// Serve runs an operation if the program was started as its own child, and reports whether it was.
func (e Env) Serve() (exit int, done bool) {
	if len(e.Args) != 3 || e.Args[1] != "--child" {
		return 0, false
	}
	e.Confine()
	if err := e.serve(e.Args[2]); err != nil {
		fmt.Fprintln(e.Stderr, err)
		return 1, true
	}
	return 0, true
}

func (e Env) serve(op string) error {
	h, known := handlers[op]
	if !known {
		return fmt.Errorf("bookend: no such child operation: %q", op)
	}
	var request json.RawMessage
	if err := json.NewDecoder(io.LimitReader(e.Stdin, MaxRequest)).Decode(&request); err != nil {
		return fmt.Errorf("bookend: read request: %w", err)
	}
	Go(func(*Panic) { e.Exit(1) }, func() {
		_, _ = io.Copy(io.Discard, e.Stdin) // its end means that the parent no longer waits for the reply
		time.Sleep(h.finish)
		e.Exit(1)
	})
	reply, err := h.serve(request)
	if err != nil {
		return err
	}
	return json.NewEncoder(e.Stdout).Encode(reply)
}

// Error says how a child of our own failed, and in Result whether it is still there.
type Error struct {
	Op       string
	Result   Result
	Err      error
	Answered bool // its reply is complete, but it cannot be killed
}

func (e *Error) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("child %q: %s: %v", e.Op, e.Result.Outcome, e.Err)
	}
	r := e.Result
	return fmt.Sprintf("child %q: %s (exit %d): %.200q", e.Op, r.Outcome, r.ExitCode, r.Stderr)
}

func (e *Error) Unwrap() error { return e.Err }

// Why no child was started.
var (
	ErrNoTime = errors.New("no time left")
	ErrStuck  = errors.New("an earlier such child is stuck")
)

// Ask runs the operation in a child and waits for its reply: at most timeout and the short grace of Run. Its errors are
// of type *Error. The reply is valid even so if the error says that the child has Answered.
func (o Operation[Req, Rep]) Ask(req Req, timeout time.Duration) (reply Rep, err error) {
	if timeout <= 0 {
		return reply, &Error{Op: o.Name, Err: ErrNoTime}
	}
	spec := Self(o.Name)
	spec.Stdin, err = json.Marshal(req)
	if err != nil {
		return reply, &Error{Op: o.Name, Err: err}
	}
	spec.HoldStdin, spec.OneLine, spec.MaxOutput, spec.Timeout = true, true, MaxRequest, timeout
	res := Run(spec)
	stays := res.Outcome == Hung || res.Outcome == Abandoned
	answered := stays && bytes.HasSuffix(res.Stdout, []byte("\n"))
	if !answered && (res.Outcome != Exited || res.ExitCode != 0) {
		return reply, &Error{Op: o.Name, Result: res, Err: res.Err}
	}
	if err := json.Unmarshal(res.Stdout, &reply); err != nil {
		return reply, &Error{Op: o.Name, Result: res, Err: err}
	}
	if res.Outcome == Abandoned {
		return reply, &Error{Op: o.Name, Result: res, Err: res.Err, Answered: true}
	}
	return reply, nil
}
