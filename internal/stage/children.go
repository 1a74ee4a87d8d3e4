package stage

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"time"

	"bookend/internal/attrib"
	"bookend/internal/child"
	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/internal/finding"
	"bookend/internal/routine"
)

// The operations of "--child OP": this binary, started again by itself, doing what may hang.
const (
	opInventory = "inventory" // the driver's /proc: cards and epoch
	opProcesses = "processes" // other processes' /proc
	opHolders   = "holders"   // all of /proc: who has a card open
	opKernel    = "kernel"    // the kernel's log
	opNumbering = "numbering" // Slurm's own files: have they changed since its GPU numbers were asked for?
	opSharing   = "sharing"   // Slurm's own files: are GPUs given out in parts?
	opPresent   = "present"   // is there a card on the bus?
	opCleanup   = "cleanup"   // ends processes that are proven to be the ended job's
	opDisk      = "disk"      // log file, archive of records, drop folders
	opAppend    = "append"    // the job's log, as the user
	opTail      = "tail"      // the end of the job's output, as the user
	opLocate    = "locate"    // where a task's output goes, as the user
	opLaunchers = "launchers" // what the job's srun processes write to, as the user
	opOpen      = "open"      // which of the job's processes have a GPU open, as the user
)

// maxChildReply bounds what a child of our own may answer: 950 processes a GPU of 16, some 200 bytes each.
const maxChildReply = 4 << 20

// orphaned is how long a child outlives its hook at most, so that what it is writing becomes whole. One that sleeps in the
// kernel cannot be helped.
const orphaned = time.Second

// orphanedCleanup is as long as clean-up may take: who was asked to end is then ended all the same.
const orphanedCleanup = config.MaxGrace + 2*config.KillWait

// childMain serves one operation: one JSON request on stdin, one JSON reply on stdout. The end of stdin says that nobody
// waits for that any more.
func childMain(env Env, op string, own Operations) int {
	serve := own[op]
	if built, ok := ofHooks()[op]; ok {
		serve = built
	}
	if serve == nil {
		fmt.Fprintf(env.Stderr, "bookend: no such child operation: %q\n", op)
		return 1
	}
	var request json.RawMessage
	if err := json.NewDecoder(io.LimitReader(env.Stdin, maxChildReply)).Decode(&request); err != nil {
		fmt.Fprintf(env.Stderr, "bookend: read request: %v\n", err)
		return 1
	}
	routine.Go(func(*routine.Panic) { env.Exit(1) }, func() {
		_, _ = io.Copy(io.Discard, env.Stdin)
		if op == opCleanup {
			time.Sleep(orphanedCleanup)
		}
		time.Sleep(orphaned)
		env.Exit(1)
	})
	reply, err := serve(request)
	if err != nil {
		fmt.Fprintln(env.Stderr, err)
		return 1
	}
	if err := json.NewEncoder(env.Stdout).Encode(reply); err != nil {
		return 1
	}
	return 0
}

// ofHooks are the operations of each hook's children.
func ofHooks() Operations {
	return Operations{
		opInventory: serveInventory,
		opProcesses: serveProcesses,
		opHolders:   serveHolders,
		opKernel:    serveKernel,
		opNumbering: serveNumbering,
		opSharing:   serveSharing,
		opPresent:   servePresent,
		opCleanup:   serveCleanup,
		opDisk:      serveDisk,
		opAppend:    serveAppend,
		opTail:      serveTail,
		opLocate:    serveLocate,
		opLaunchers: serveLaunchers,
		opOpen:      serveOpen,
	}
}

// Operations are what a program's children do beside the hooks' operations, by their names.
type Operations map[string]func(request []byte) (any, error)

// Served makes a typed function an operation.
func Served[Req, Rep any](f func(Req) (Rep, error)) func([]byte) (any, error) { return served(f) }

// Ask runs one of the program's own operations in a child and waits for its reply, at most the timeout and the short
// grace of child.Run.
func Ask[Rep any](op string, req any, timeout time.Duration) (Rep, error) {
	return ask[Rep](op, req, timeout)
}

// served makes a typed function an operation. A request that this very program cannot have written is refused before
// anything is looked at: one with more in it than the operation knows, and one that says nothing.
func served[Req, Rep any](f func(Req) (Rep, error)) func([]byte) (any, error) {
	return func(request []byte) (any, error) {
		var req Req
		decoder := json.NewDecoder(bytes.NewReader(request))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&req); err != nil {
			return nil, fmt.Errorf("decode request: %w", err)
		}
		if reflect.ValueOf(&req).Elem().IsZero() {
			return nil, errors.New("decode request: it asks for nothing")
		}
		return f(req)
	}
}

// childError says how a child of our own failed; Result tells whether it is still there.
type childError struct {
	op       string
	Result   child.Result
	err      error
	answered bool // it did what it was to do, and did not end
}

func (e *childError) Error() string {
	if e.err != nil {
		return fmt.Sprintf("child %q: %s: %v", e.op, e.Result.Outcome, e.err)
	}
	return fmt.Sprintf("child %q: %s (exit %d): %.200q", e.op, e.Result.Outcome, e.Result.ExitCode, e.Result.Stderr)
}

func (e *childError) Unwrap() error { return e.err }

var (
	errNoTime = errors.New("no time left")
	errStuck  = errors.New("an earlier such child is stuck")
)

// ask runs one operation in a child and waits for its reply.
func ask[Rep any](op string, req any, timeout time.Duration) (Rep, error) {
	return askTelling[Rep](nil, op, req, timeout)
}

// askTelling is ask, and tells of the child that it has started.
func askTelling[Rep any](started func(pid int, startTicks uint64), op string, req any, timeout time.Duration) (Rep, error) {
	var reply Rep
	if timeout <= 0 {
		return reply, &childError{op: op, err: errNoTime}
	}
	spec := child.Self(op)
	stdin, err := json.Marshal(req)
	if err != nil {
		return reply, &childError{op: op, err: err}
	}
	spec.Stdin, spec.HoldStdin, spec.MaxOutput, spec.Timeout, spec.Started = stdin, true, maxChildReply, timeout, started
	spec.OneLine = true
	res := child.Run(spec)
	answered := bytes.HasSuffix(res.Stdout, []byte("\n")) && (res.Outcome == child.Hung || res.Outcome == child.Abandoned)
	if !answered && (res.Outcome != child.Exited || res.ExitCode != 0) {
		return reply, &childError{op: op, Result: res, err: res.Err}
	}
	if err := json.Unmarshal(res.Stdout, &reply); err != nil {
		return reply, &childError{op: op, Result: res, err: err}
	}
	if res.Outcome == child.Abandoned {
		return reply, &childError{op: op, Result: res, err: res.Err, answered: true}
	}
	return reply, nil
}

// askReader asks a child that reads other processes' /proc. What it answered stands, also where it cannot end; then at says
// what it is stuck at. The error says that there is no answer.
func askReader[Rep any](h *hook, op string, timeout time.Duration, request func(skip []attrib.Instance) any, at func(Rep) []attrib.Instance) (Rep, error) {
	skip, blocked := h.hung(op)
	if blocked {
		var none Rep
		err := &childError{op: op, err: errStuck}
		h.childFault(op, err)
		return none, err
	}
	reply, err := ask[Rep](op, request(skip), timeout)
	var failed *childError
	if errors.As(err, &failed) && failed.answered {
		h.abandonedReader(op, err, at(reply))
		return reply, nil
	}
	if err != nil {
		h.childFault(op, err)
	}
	return reply, err
}

// childFault words the failure of a child of our own that looked at the driver or at processes.
func (h *hook) childFault(op string, err error) {
	if h.defect(err) {
		return
	}
	f := finding.Finding{Code: code.Hang, Observed: err.Error(), Expected: "an answer within the deadline"}
	var failed *childError
	if errors.As(err, &failed) {
		switch r := failed.Result; r.Outcome {
		case child.Abandoned:
			if op == opInventory {
				h.abandoned(op, r.PID, r.StartTicks)
			} else {
				h.abandonedReader(op, err, nil)
			}
			f.Code = unanswered(op)
		case child.Hung:
			f.Code = unanswered(op)
		default:
			f.Code = code.BackendCrash
		}
	}
	switch {
	case errors.Is(err, errNoTime):
		f.Code = code.Slow
	case errors.Is(err, errStuck):
		f.Code = code.Untraced
	}
	f.Unknown = err.Error()
	h.add(f)
}

// unanswered is what it means that a child does not answer: only the inventory asks the driver, the others read /proc.
func unanswered(op string) code.Code {
	if op == opInventory {
		return code.Hang
	}
	return code.Untraced
}
