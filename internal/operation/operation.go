// Package operation runs operations in a child: this very binary, started again as "--child OP". What may sleep in the
// kernel, be slow without end, or work among a user's files is an operation, so that a hook waits for it no longer than
// it can afford. The child reads one JSON request and writes one JSON reply.
package operation

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"bookend/internal/child"
	"bookend/internal/config"
	"bookend/internal/routine"
	"bookend/internal/state"
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
	Clock   routine.Clock
	Exit    func(int) // ends the process at once: for the watchdog and children
	Version string
}

// Operation is something that a child can do. Its name is on the child's command line, and in records of stuck ones.
type Operation[Req, Rep any] struct{ Name string }

var served = map[string]func(request []byte) (any, error){}

// New makes an operation; every program that imports its package can serve it.
func New[Req, Rep any](name string, serve func(Req) (Rep, error)) Operation[Req, Rep] {
	served[name] = func(request []byte) (any, error) {
		var req Req
		if err := json.Unmarshal(request, &req); err != nil {
			return nil, fmt.Errorf("decode request: %w", err)
		}
		return serve(req)
	}
	return Operation[Req, Rep]{name}
}

// maxReply bounds a request to our own child, and its reply: 950 processes on each of 16 GPUs, some 200 bytes each.
const maxReply = 4 << 20

// serve runs one operation in the child. The end of stdin means that the parent no longer waits for the reply.
func serve(env Env, op string) (exit int) {
	do := served[op]
	if do == nil {
		fmt.Fprintf(env.Stderr, "bookend: no such child operation: %q\n", op)
		return 1
	}
	var request json.RawMessage
	if err := json.NewDecoder(io.LimitReader(env.Stdin, maxReply)).Decode(&request); err != nil {
		fmt.Fprintf(env.Stderr, "bookend: read request: %v\n", err)
		return 1
	}
	routine.Go(func(*routine.Panic) { env.Exit(1) }, func() {
		_, _ = io.Copy(io.Discard, env.Stdin)
		if op == Cleanup.Name { // the processes that it was asked to end are still ended
			time.Sleep(config.MaxGrace + 2*config.KillWait)
		}
		time.Sleep(time.Second) // so that what is being written is complete
		env.Exit(1)
	})
	reply, err := do(request)
	if err == nil {
		err = json.NewEncoder(env.Stdout).Encode(reply)
	}
	if err != nil {
		fmt.Fprintln(env.Stderr, err)
		return 1
	}
	return 0
}

// Error says how a child of our own failed, and in Result whether it is still there.
type Error struct {
	Op       string
	Result   child.Result
	Err      error
	Answered bool // it did its work, but did not end
}

func (e *Error) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("child %q: %s: %v", e.Op, e.Result.Outcome, e.Err)
	}
	r := e.Result
	return fmt.Sprintf("child %q: %s (exit %d): %.200q", e.Op, r.Outcome, r.ExitCode, r.Stderr)
}

func (e *Error) Unwrap() error { return e.Err }

// stuck returns the child that a failure left behind, or nil.
func stuck(op string, failure error, now time.Duration) *state.Stuck {
	var failed *Error
	if !errors.As(failure, &failed) || failed.Result.Outcome != child.Abandoned {
		return nil
	}
	return &state.Stuck{PID: failed.Result.PID, StartTicks: failed.Result.StartTicks, Since: now, Op: op}
}

// Why no child was started.
var (
	ErrNoTime = errors.New("no time left")
	ErrStuck  = errors.New("an earlier such child is stuck")
)

// Ask runs the operation in a child and waits for its reply: at most timeout and the short grace of child.Run.
func (o Operation[Req, Rep]) Ask(req Req, timeout time.Duration) (reply Rep, err error) {
	if timeout <= 0 {
		return reply, &Error{Op: o.Name, Err: ErrNoTime}
	}
	spec := child.Self(o.Name)
	if spec.Stdin, err = json.Marshal(req); err != nil {
		return reply, &Error{Op: o.Name, Err: err}
	}
	spec.HoldStdin, spec.OneLine, spec.MaxOutput, spec.Timeout = true, true, maxReply, timeout
	res := child.Run(spec)
	stays := res.Outcome == child.Hung || res.Outcome == child.Abandoned
	answered := stays && bytes.HasSuffix(res.Stdout, []byte("\n"))
	if !answered && (res.Outcome != child.Exited || res.ExitCode != 0) {
		return reply, &Error{Op: o.Name, Result: res, Err: res.Err}
	}
	if err := json.Unmarshal(res.Stdout, &reply); err != nil {
		return reply, &Error{Op: o.Name, Result: res, Err: err}
	}
	if res.Outcome == child.Abandoned {
		return reply, &Error{Op: o.Name, Result: res, Err: res.Err, Answered: true}
	}
	return reply, nil
}

// Beside runs the operation concurrently; call the returned function to wait for its reply.
func (o Operation[Req, Rep]) Beside(req Req, timeout time.Duration) (collect func() (Rep, error)) {
	return Aside(func() (Rep, error) { return o.Ask(req, timeout) })
}

// Aside runs f, which must end by itself, concurrently; call the returned function to wait for its result.
func Aside[Rep any](f func() (Rep, error)) (collect func() (Rep, error)) {
	type answered struct {
		reply Rep
		err   error
	}
	done := make(chan answered, 1)
	routine.Go(func(p *routine.Panic) { done <- answered{err: p} }, func() {
		reply, err := f()
		done <- answered{reply, err}
	})
	return func() (Rep, error) {
		a := <-done
		return a.reply, a.err
	}
}

// ServeChild runs an operation if the program was started as its own child, and reports whether it was.
func ServeChild(env Env) (exit int, done bool) {
	if len(env.Args) == 3 && env.Args[1] == "--child" {
		Confine(env)
		return serve(env, env.Args[2]), true
	}
	return 0, false
}

// Confine makes a root process give up what it does not need. If that fails, it prints why, and the work goes on: this
// is a second line of defence. A user's own hook has nothing to hide from that user.
func Confine(env Env) {
	if env.EUID != 0 {
		return
	}
	if err := child.Confine(); err != nil {
		fmt.Fprintf(env.Stderr, "bookend: %v\n", err)
	}
}
