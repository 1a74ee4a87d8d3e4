package operation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"bookend/internal/child"
	"bookend/internal/holders"
	"bookend/internal/joblog"
	"bookend/internal/oom"
	"bookend/internal/slurm"
	"bookend/internal/state"
)

// AppendRequest is a text for the job's own output. The target is the user's claim.
type AppendRequest struct {
	UID    uint32        `json:"uid"`
	GID    uint32        `json:"gid"`
	Target joblog.Target `json:"target"`
	Text   string        `json:"text"`
}

// AppendReply is untrusted: it was written by a process that the user may have got at.
type AppendReply struct {
	Refused string `json:"refused,omitempty"`
}

// Check refuses what no child of ours answers.
func (r AppendReply) Check() error {
	if r.Refused != "" && !joblog.IsReason(r.Refused) {
		return fmt.Errorf("refused for %.40q", r.Refused)
	}
	return nil
}

// Append starts as root and gives that up, for good, before it opens anything of the user's.
var Append = New("append", func(r AppendRequest) (AppendReply, error) {
	if err := child.Become(r.UID, r.GID, child.Groups(r.UID, r.GID)); err != nil {
		return AppendReply{}, err
	}
	return AppendReply{Refused: joblog.Append(r.Target, r.UID, []byte(r.Text))}, nil
})

// TailRequest asks what a job's outputs say of memory. The targets are the user's claims.
type TailRequest struct {
	UID     uint32          `json:"uid"`
	GID     uint32          `json:"gid"`
	Targets []joblog.Target `json:"targets"`
	// Back: where the ends of the outputs say nothing of memory, what stands before them is looked through as well.
	Back bool `json:"back,omitempty"`
	// Within is how long the hook waits for all of it.
	Within time.Duration `json:"within_ns"`
}

// TailReply is untrusted: it was written by a process that the user may have got at.
type TailReply struct {
	Messages []oom.Message `json:"messages,omitempty"`
	Files    []Searched    `json:"files,omitempty"` // one for each target
	// Cancelled is as joblog.Search has it, of any.
	Cancelled bool `json:"cancelled,omitempty"`
}

// Searched is what became of one target.
type Searched struct {
	Refused string `json:"refused,omitempty"` // why it was not looked through; "" for one that was
	Size    int64  `json:"size,omitempty"`
	Read    int64  `json:"read,omitempty"`
	Earlier bool   `json:"earlier,omitempty"` // as joblog.Search has it
}

// lookBack is how much of a job's outputs is looked through before the last oom.MaxTail bytes: 0.4 s of usual text.
const lookBack = 8 << 20

// Tail gives root up, for good, before it opens anything of the user's. Only what is understood goes back.
var Tail = New("tail", readTails)

func readTails(r TailRequest) (reply TailReply, err error) {
	if err := child.Become(r.UID, r.GID, child.Groups(r.UID, r.GID)); err != nil {
		return reply, err
	}
	inTime, cancel := context.WithTimeout(context.Background(), r.Within/2) // the rest is for the answer
	defer cancel()
	var all []*joblog.Search
	count, recognised := 0, false
	for _, target := range r.Targets[:min(len(r.Targets), oom.MaxFiles)] {
		s := joblog.Begin(target, r.UID)
		defer s.Close()
		all = append(all, s)
		recognised = recognised || s.Recognised()
		reply.Cancelled = reply.Cancelled || s.Cancelled
	}
	if (r.Back || reply.Cancelled) && !recognised {
		back(all, func() bool { return inTime.Err() == nil })
	}
	for _, s := range all {
		count += len(s.Messages)
	}
	most := oom.MaxMessages
	if count > most { // then each file's last that are about memory are kept
		most /= len(all)
		for _, s := range all {
			s.Messages = slices.DeleteFunc(s.Messages, func(m oom.Message) bool { return !joblog.AboutMemory(m) })
		}
	}
	for i, s := range all {
		if s.Refused != "" {
			reply.Files = append(reply.Files, Searched{Refused: s.Refused})
			continue
		}
		reply.Files = append(reply.Files, Searched{Size: s.Size, Read: s.Read, Earlier: s.Earlier})
		for _, m := range s.Messages[max(0, len(s.Messages)-most):] {
			m.File = i
			reply.Messages = append(reply.Messages, m)
		}
	}
	return reply, nil
}

// back searches what is before the ends, the shortest first: what one leaves of its share is the others'.
func back(all []*joblog.Search, more func() bool) {
	bySize := func(s, o *joblog.Search) int { return cmp.Compare(s.Size, o.Size) }
	all = slices.SortedStableFunc(slices.Values(all), bySize)
	left := int64(lookBack)
	for i, s := range all {
		before := s.Read
		s.Back(left/int64(len(all)-i), more)
		left = max(0, left-(s.Read-before))
	}
}

// Check refuses a reply that Tail could not have written.
func (r TailReply) Check(targets int) error {
	if len(r.Files) != targets || len(r.Messages) > oom.MaxMessages {
		return fmt.Errorf("%d messages, %d answers for %d files", len(r.Messages), len(r.Files), targets)
	}
	for _, f := range r.Files {
		if f.Refused != "" && !joblog.IsReason(f.Refused) {
			return fmt.Errorf("refused for %.40q", f.Refused)
		}
		if f.Read < 0 || f.Read > f.Size {
			return fmt.Errorf("%d of %d bytes looked through", f.Read, f.Size)
		}
	}
	for _, m := range r.Messages {
		if !oom.Valid(m) || m.File >= targets || r.Files[m.File].Refused != "" {
			return fmt.Errorf("impossible message %.80q of file %d of %d", m.Line, m.File, targets)
		}
	}
	return nil
}

// Why says why nothing of a file was looked through, or where that stopped.
func (f Searched) Why() string {
	switch {
	case f.Refused != "":
		return "refused: " + f.Refused
	case f.Earlier && f.Read < f.Size:
		return "another Bookend report is in it"
	}
	return ""
}

// Visit is one child among the job's user's files. It may run beside the hook, which collects its Trouble.
type Visit struct {
	Store   *state.Store
	UID     uint32
	Alive   func(state.Stuck) bool
	Now     func() time.Duration // CLOCK_BOOTTIME
	Left    func() time.Duration // for the next step
	Trouble error
}

// ErrStuckVisit keeps a hook from a visit.
var ErrStuckVisit = errors.New("an earlier job's output lies on a file system that does not answer")

// Visited has an operation done among the user's files: while one lives that cannot be killed there, no other is
// started for that user. It is remembered apart from what is stuck in the driver, which is no user's to stop.
func (o Operation[Req, Rep]) Visited(v *Visit, req Req) (reply Rep, err error) {
	earlier, err := v.Store.Stuck(&v.UID, v.Alive)
	v.Trouble = errors.Join(v.Trouble, err)
	if earlier != nil {
		return reply, fmt.Errorf("%w: PID %d (%s) cannot be killed", ErrStuckVisit, earlier.PID, earlier.Op)
	}
	reply, err = o.Ask(req, v.Left())
	if left := stuck(o.Name, err, v.Now()); left != nil {
		left.User = &v.UID
		v.Trouble = errors.Join(v.Trouble, v.Store.SetStuck(*left, v.Alive))
	}
	return reply, err
}

// LocateRequest asks where a descriptor of a process leads.
type LocateRequest struct {
	Proc string `json:"proc"`
	PID  int    `json:"pid"`
	FD   int    `json:"fd"`
}

// Locate asks the file system of the job's output, which may hang.
var Locate = New("locate", func(r LocateRequest) (joblog.Target, error) { return joblog.Locate(r.Proc, r.PID, r.FD) })

// JobRequest asks for processes of a job on this node.
type JobRequest struct {
	Proc  string      `json:"proc"`
	Dev   string      `json:"dev"`
	UID   uint32      `json:"uid"`
	Owner slurm.Owner `json:"owner"`
}

// OpenDevices finds, as the user, those that have a GPU open. What was found before an error is worth saying.
var OpenDevices = New("open", func(r JobRequest) ([]holders.OfJob, error) {
	open, err := holders.Using(r.Proc, r.Dev, r.UID, r.Owner)
	if len(open) > 0 {
		err = nil
	}
	return open, err
})

// Launchers finds what the job's srun processes on this node write to: Steps, or Elsewhere.
var Launchers = New("launchers", func(r JobRequest) (found joblog.Drop, err error) {
	all, err := holders.Named(r.Proc, "srun", r.UID, r.Owner)
	for _, p := range all {
		written, _ := joblog.Written(r.Proc, p.PID) // one that has ended writes nothing more
		found.Steps = append(found.Steps, written...)
		found.Elsewhere = found.Elsewhere || joblog.Apart(r.Proc, p.PID)
	}
	slices.SortFunc(found.Steps, func(a, b joblog.Target) int { return cmp.Compare(a.Path, b.Path) })
	found.Steps = slices.Compact(found.Steps)
	return found, err
})
