package node

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/child"
	"bookend/internal/gpu"
	"bookend/internal/protocol"
	"bookend/internal/record"
	"bookend/internal/safefile"
	"bookend/internal/state"
)

// Params describe the backend and how to run it. The functions, if not nil, are called from another goroutine.
type Params struct {
	Path     string        // the program, absolute
	Root     bool          // this process is root: program and libraries must be trusted
	Grace    time.Duration // for the backend to die once its time is up, if that is more than package child's default
	Started  func(pid int, startTicks uint64)
	OnLook   func(gpu.Snapshot) // gets the samples of a recording one by one; the answer has none
	Answered func()             // called once, when the driver has answered or failed
	// OnAnswer gets a complete answer as soon as it is written, once; the backend has yet to release the driver and to
	// end. What Ask returns is the final answer.
	OnAnswer func(Answer)
	Stop     <-chan struct{} // if not nil, ends the backend when it is closed
}

// Answer is what a backend wrote, and what is wrong with it. A backend may be missing, untrusted, of another release,
// broken, or stuck in the driver: each is an answer with a code of its own, and what it wrote before it crashed or hung
// still counts. Strings of the driver and the backend are not cleaned.
type Answer struct {
	Hello     *protocol.Hello
	Snapshots []gpu.Snapshot // oldest first
	Faults    []gpu.Fault    // of the driver as a whole; those of a device are in the snapshots
	Complete  bool           // the backend wrote that it was done
	Health    []gpu.Health   // empty if not requested, or if this backend does not support it
	Probes    []gpu.Probe    // one for each device whose probe was finished
	Unasked   bool           // the driver was not queried: it does not answer another hook
	Abandoned *state.Stuck   // set if the backend could not be killed: no other may be started while it lives
	Took      time.Duration
	Troubles  []Trouble
	Panic     *child.Panic     // a defect of Bookend itself
	earlier   []record.Finding // of a backend that had to end before this one was started
}

// latest returns the last sample, an empty one if there is none.
func (a Answer) latest() (last gpu.Snapshot) {
	if n := len(a.Snapshots); n > 0 {
		last = a.Snapshots[n-1]
	}
	return last
}

// Trouble is one thing that went wrong with the backend itself.
type Trouble struct {
	Code   catalog.Code
	Detail string // may contain the first line of the backend's stderr
	Unsure bool   // neither the driver nor the backend need be the cause: it counts as unknown
}

func (t Trouble) String() string { return fmt.Sprintf("%s: %s", t.Code, t.Detail) }

// Silent returns what is wrong with a backend that sent no sample for so long.
func Silent(limit time.Duration) Trouble {
	return Trouble{Code: catalog.Slow, Detail: fmt.Sprintf("the backend said nothing for %v", limit)}
}

// Ask sends one request and waits for the answer, at most req.Deadline() and the grace period.
func Ask(p Params, req protocol.Request) Answer {
	if req.Deadline() <= 0 {
		return failed(catalog.Slow, "no time left to ask the backend")
	}
	if err := p.trust(req.Options); err != nil {
		return failed(catalog.BackendRefused, err.Error())
	}
	line, err := req.Line()
	if err != nil {
		return failed(catalog.BackendFlood, err.Error())
	}
	spec := child.Spec{
		Path:      p.Path,
		Env:       req.Environment(),
		Stdin:     line,
		HoldStdin: true, // its end tells the backend that the caller has gone
		MaxOutput: protocol.MaxReplyBytes,
		Timeout:   req.Deadline(),
		Grace:     p.Grace,
		Started:   p.Started,
		Stop:      p.Stop,
	}
	switch {
	case p.OnLook != nil:
		return p.record(spec, req)
	case p.OnAnswer != nil || p.Answered != nil:
		return p.announce(spec, req)
	}
	return answerOf(child.Run(spec), req)
}

// announce runs the backend, and calls Answered at the first line after its greeting and OnAnswer at the last.
func (p Params) announce(spec child.Spec, req protocol.Request) Answer {
	var all []byte
	spec.OnLine = func(line []byte) (more bool) {
		all = append(append(all, line...), '\n')
		if p.Answered != nil && !bytes.Contains(line, []byte(`"kind":"hello"`)) {
			p.Answered()
			p.Answered = nil
		}
		if p.OnAnswer != nil && bytes.Contains(line, []byte(`"kind":"done"`)) {
			if early := answerOf(child.Result{Outcome: child.Exited, Stdout: all}, req); len(early.Troubles) == 0 {
				p.OnAnswer(early)
			}
		}
		return len(all) <= protocol.MaxReplyBytes
	}
	res := child.Run(spec)
	res.Stdout = append(all, res.Stdout...) // and what does not end with a newline
	return answerOf(res, req)
}

// joined merges several backends' answers. The last sample of one that had seen enough is repeated.
func joined(answers ...Answer) (all Answer) {
	if len(answers) == 1 {
		return answers[0]
	}
	all.Complete = len(answers) > 0
	most := 0
	for _, a := range answers {
		most = max(most, len(a.Snapshots))
		all.Faults, all.Health = append(all.Faults, a.Faults...), append(all.Health, a.Health...)
		all.Probes, all.Troubles = append(all.Probes, a.Probes...), append(all.Troubles, a.Troubles...)
		all.Hello, all.Panic = cmp.Or(all.Hello, a.Hello), cmp.Or(all.Panic, a.Panic)
		all.Abandoned, all.Unasked = cmp.Or(all.Abandoned, a.Abandoned), all.Unasked || a.Unasked
		all.Complete, all.Took = all.Complete && a.Complete, all.Took+a.Took
	}
	for i := range most {
		var look gpu.Snapshot
		for _, a := range answers {
			if n := len(a.Snapshots); n > i || n > 0 && a.Complete {
				s := a.Snapshots[min(i, n-1)]
				look.At, look.Driver = max(look.At, s.At), cmp.Or(look.Driver, s.Driver)
				look.Readings, look.Faults = append(look.Readings, s.Readings...), append(look.Faults, s.Faults...)
			}
		}
		all.Snapshots = append(all.Snapshots, look)
	}
	return all
}

func (p Params) record(spec child.Spec, req protocol.Request) Answer {
	var bad error
	spec.Timeout = 10 * 365 * 24 * time.Hour // the backend sets an alarm for each sample
	spec.OnLine = func(line []byte) (more bool) {
		var look *gpu.Snapshot
		if look, bad = protocol.DecodeLook(line); look != nil {
			p.OnLook(*look)
		}
		return bad == nil
	}
	a := answerOf(child.Run(spec), req)
	a.Troubles = slices.DeleteFunc(a.Troubles, func(t Trouble) bool { return t.Code == catalog.BackendGarbage })
	if bad != nil {
		a.Troubles = []Trouble{{Code: catalog.BackendGarbage, Detail: bad.Error()}}
	}
	return a
}

// CheckBackend returns what would keep root from starting a backend with these options, nil if nothing would.
func CheckBackend(path string, o protocol.Options) *Trouble {
	if err := (Params{Path: path, Root: true}).trust(o); err != nil {
		return &Trouble{Code: catalog.BackendRefused, Detail: err.Error()}
	}
	st, err := os.Stat(path)
	if err == nil && (!st.Mode().IsRegular() || st.Mode().Perm()&0o111 == 0) {
		err = fmt.Errorf("%s: not an executable file", path)
	}
	if err != nil {
		return &Trouble{Code: catalog.BackendMissing, Detail: err.Error()}
	}
	return nil
}

// trust checks what will run as root.
// Threat: a configuration that points into a user's directory, or a directory on the way that others may write to.
func (p Params) trust(o protocol.Options) error {
	if !p.Root {
		return nil
	}
	for _, path := range append([]string{p.Path}, slices.Sorted(maps.Values(o))...) {
		// A file that does not exist is harmless: it is reported as missing when it is started or loaded.
		if err := safefile.Trusted(path); err != nil && !errors.Is(err, syscall.ENOENT) {
			return err
		}
	}
	return nil
}

func failed(c catalog.Code, detail string) Answer {
	return Answer{Troubles: []Trouble{{Code: c, Detail: detail}}}
}

// answerOf judges a backend that ran. After a line that breaks the protocol, or a flood, the rest is not trusted.
func answerOf(res child.Result, req protocol.Request) Answer {
	a := Answer{Took: res.Took}
	switch defect := errors.As(res.Err, &a.Panic); {
	case defect && res.Outcome == child.NotStarted:
		return a
	case errors.Is(res.Err, child.ErrNoExec): // a busy node, or a disk that hangs: the backend need not be missing
		a.Troubles = []Trouble{{Code: catalog.Slow, Detail: fmt.Sprint(res.Err), Unsure: true}}
		return a
	case res.Outcome == child.NotStarted:
		return failed(catalog.BackendMissing, fmt.Sprint(res.Err))
	case res.Outcome == child.Abandoned:
		a.Abandoned = &state.Stuck{PID: res.PID, StartTicks: res.StartTicks, Op: "backend"}
	}
	replies, err := protocol.DecodeReplies(res.Stdout)
	a.take(replies)
	ending := ended(res, req)
	// A thread that waits for CUDA's start keeps a process alive for a while after it has reported all tests.
	if req.Op == protocol.Probe && a.Complete && a.Abandoned == nil && ending.Code == catalog.Hang {
		ending = Trouble{}
	}
	breach := breached(err, ending.Code != "")
	switch {
	case breach.Code == catalog.BackendVersion:
		ending = Trouble{} // a backend of another release refuses the request: that is no crash
	case ending.Code == catalog.BackendFlood:
		breach = Trouble{} // the answer is cut where the backend was stopped
	}
	if breach.Code != "" || ending.Code == catalog.BackendFlood {
		a.Snapshots, a.Faults, a.Health, a.Probes = nil, nil, nil, nil
	}
	for _, t := range []Trouble{ending, breach} {
		if t.Code != "" {
			a.Troubles = append(a.Troubles, t)
		}
	}
	return a
}

func (a *Answer) take(replies []protocol.Reply) {
	for _, r := range replies {
		switch r.Kind {
		case protocol.KindHello:
			a.Hello = r.Hello
		case protocol.KindSnapshot:
			a.Snapshots = append(a.Snapshots, *r.Snapshot)
		case protocol.KindFault:
			a.Faults = append(a.Faults, *r.Fault)
		case protocol.KindHealth:
			a.Health = r.Health
		case protocol.KindProbe:
			earlier := func(p gpu.Probe) bool { return p.Device == r.Probe.Device }
			a.Probes = append(slices.DeleteFunc(a.Probes, earlier), *r.Probe)
		case protocol.KindDone:
			a.Complete = true
		}
	}
}

// ended returns what is wrong with the way in which the backend ended, without a code if nothing is.
func ended(res child.Result, req protocol.Request) Trouble {
	is, how := catalog.BackendCrash, fmt.Sprintf("exit code %d", res.ExitCode)
	switch {
	case res.Outcome == child.Stopped:
		return Trouble{}
	case res.Outcome == child.Hung:
		return Trouble{Code: catalog.Hang, Detail: fmt.Sprintf("killed after %v", req.Deadline())}
	case res.Outcome == child.Abandoned:
		how = fmt.Sprintf("not answering after %v and cannot be killed: process %d", req.Deadline(), res.PID)
		return Trouble{Code: catalog.Hang, Detail: how}
	case res.Outcome == child.Flooded:
		how = fmt.Sprintf("wrote more than %d bytes", protocol.MaxReplyBytes)
		return Trouble{Code: catalog.BackendFlood, Detail: how}
	case res.Signal == syscall.SIGALRM: // set by the backend for this deadline
		how = fmt.Sprintf("ended by its own alarm after %v", res.Took.Round(time.Millisecond))
		return Trouble{Code: catalog.Hang, Detail: how}
	case res.Outcome == child.Crashed:
		how = "ended by signal " + res.Signal.String()
	case res.ExitCode == 0:
		return Trouble{}
	case res.ExitCode == 127 && strings.Contains(string(res.Stderr), "undefined symbol"):
		is = catalog.Old // the dynamic linker ends a program that calls what the driver's library lacks
	}
	return Trouble{Code: is, Detail: how + res.LastWords()}
}

// breached returns how the answer breaks the protocol. An answer that a crash or hang has cut off does not.
func breached(err error, cut bool) Trouble {
	var problem *protocol.Error
	if !errors.As(err, &problem) || cut && problem.Problem == protocol.CutOff {
		return Trouble{}
	}
	codes := map[protocol.Problem]catalog.Code{
		protocol.WrongVersion: catalog.BackendVersion, protocol.TooLong: catalog.BackendFlood,
	}
	return Trouble{Code: cmp.Or(codes[problem.Problem], catalog.BackendGarbage), Detail: problem.Error()}
}
