package joblog

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"bookend/internal/child"
	"bookend/internal/oomlog"
	"bookend/internal/record"
)

// AppendRequest is a text for the job's own output, and a file for the user's spool. The target is the user's claim.
type AppendRequest struct {
	UID    uint32        `json:"uid"`
	GID    uint32        `json:"gid"`
	Groups []uint32      `json:"groups"` // see Account
	Target Target        `json:"target"` // without a path nothing is appended
	Text   string        `json:"text"`
	Spool  *SpoolRequest `json:"spool,omitempty"`
}

// Account is what the system's name service has of a user. It takes as long as the rest of an append: ask early.
type Account struct {
	Groups []uint32
	Home   string // only if the spool is below it; empty if it is not known
}

// AskAccount asks as root, for at most a second.
func AskAccount(uid, gid uint32, spool string) (a Account) {
	a.Groups = child.Groups(uid, gid)
	if strings.HasPrefix(spool, inHome) {
		a.Home, _ = child.Home(uid) // without it the spool is missing
	}
	return a
}

// AppendReply is untrusted: the user may have tampered with the process that wrote it.
type AppendReply struct {
	Refused string `json:"refused,omitempty"`
	Spool   string `json:"spool,omitempty"` // why no file was written there
}

// Check refuses a reply that no child of ours sends.
func (r AppendReply) Check() error {
	for _, refused := range []string{r.Refused, r.Spool} {
		if refused != "" && !IsReason(refused) {
			return fmt.Errorf("refused for %.40q", refused)
		}
	}
	return nil
}

// AppendAsUser starts as root and gives that up permanently before it opens any of the user's files.
var AppendAsUser = child.NewOperation("append", func(r AppendRequest) (AppendReply, error) {
	if err := child.Become(r.UID, r.GID, r.Groups); err != nil {
		return AppendReply{}, err
	}
	var reply AppendReply
	if r.Target.Path != "" {
		reply.Refused = Append(r.Target, r.UID, []byte(r.Text))
	}
	if r.Spool != nil {
		reply.Spool = r.Spool.write(r.UID)
	}
	return reply, nil
})

// TailRequest asks what a job's outputs say about memory. The targets are the user's claims.
type TailRequest struct {
	UID     uint32   `json:"uid"`
	GID     uint32   `json:"gid"`
	Targets []Target `json:"targets"`
	// Back extends the search to what comes before the ends of the outputs, if these do not mention memory.
	Back   bool          `json:"back,omitempty"`
	Within time.Duration `json:"within_ns"` // how long the hook waits for the whole search
}

// TailReply is untrusted: the user may have tampered with the process that wrote it.
type TailReply struct {
	Messages  []record.Message `json:"messages,omitempty"`
	Files     []Searched       `json:"files,omitempty"`     // one for each target
	Cancelled bool             `json:"cancelled,omitempty"` // Search's, of any target
}

// Searched is the result for one target.
type Searched struct {
	Refused string `json:"refused,omitempty"` // why it was not searched; "" if it was
	Size    int64  `json:"size,omitempty"`
	Read    int64  `json:"read,omitempty"`
	Earlier bool   `json:"earlier,omitempty"` // as in Search
}

// Join returns the outputs with the search's results, one in the same order for each that has a path, and the messages
// with the numbers of their outputs. In a requeued job's output, what precedes an end report is an earlier run's.
func (r TailReply) Join(all []Stream, requeued bool) (outputs []record.Output, messages []record.Message) {
	messages = slices.Clone(r.Messages)
	file := 0
	for _, w := range all {
		o := w.Output
		if o.Path != "" {
			f := r.Files[file]
			for i, m := range r.Messages {
				if m.File == file {
					messages[i].File = len(outputs)
				}
			}
			file++
			if requeued && f.Earlier {
				f.Size, f.Earlier = f.Read, false
			}
			o.Size, o.Read, o.Why = f.Size, f.Read, f.Why()
		}
		outputs = append(outputs, o)
	}
	return outputs, messages
}

// lookBack is how many bytes of a job's outputs are searched before the last oom.MaxTail ones: 0.4 s of usual text.
const lookBack = 8 << 20

// SearchAsUser gives up root permanently before it opens any of the user's files. It returns only what it understood.
var SearchAsUser = child.NewOperation("tail", readTails)

func readTails(r TailRequest) (reply TailReply, err error) {
	if err := child.Become(r.UID, r.GID, child.Groups(r.UID, r.GID)); err != nil {
		return reply, err
	}
	inTime, cancel := context.WithTimeout(context.Background(), r.Within/2) // the rest is for the answer
	defer cancel()
	var all []*Search
	count, recognised := 0, false
	for _, target := range r.Targets[:min(len(r.Targets), oomlog.MaxFiles)] {
		s := Begin(target, r.UID)
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
	most := oomlog.MaxMessages
	if count > most { // then the last ones about memory or a GPU's error are kept of each file
		most /= len(all)
		other := func(m record.Message) bool { return !AboutMemory(m) && m.Kind != record.KindFault }
		for _, s := range all {
			s.Messages = slices.DeleteFunc(s.Messages, other)
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

// back searches what precedes the ends, the shortest file first: the others get what it leaves of its share.
func back(all []*Search, more func() bool) {
	bySize := func(s, o *Search) int { return cmp.Compare(s.Size, o.Size) }
	all = slices.SortedStableFunc(slices.Values(all), bySize)
	left := int64(lookBack)
	for i, s := range all {
		before := s.Read
		s.Back(left/int64(len(all)-i), more)
		left = max(0, left-(s.Read-before))
	}
}

// Check refuses a reply that SearchAsUser could not have written.
func (r TailReply) Check(targets int) error {
	if len(r.Files) != targets || len(r.Messages) > oomlog.MaxMessages {
		return fmt.Errorf("%d messages, %d answers for %d files", len(r.Messages), len(r.Files), targets)
	}
	for _, f := range r.Files {
		if f.Refused != "" && !IsReason(f.Refused) {
			return fmt.Errorf("refused for %.40q", f.Refused)
		}
		if f.Read < 0 || f.Read > f.Size {
			return fmt.Errorf("%d of %d bytes looked through", f.Read, f.Size)
		}
	}
	for _, m := range r.Messages {
		if !oomlog.Valid(m) || m.File >= targets || r.Files[m.File].Refused != "" {
			return fmt.Errorf("impossible message %.80q of file %d of %d", m.Line, m.File, targets)
		}
	}
	return nil
}

func (f Searched) Why() string {
	switch {
	case f.Refused != "":
		return "refused: " + f.Refused
	case f.Earlier && f.Read < f.Size:
		return "another Bookend report is in it"
	}
	return ""
}

// LocateRequest asks which file a descriptor of a process leads to.
type LocateRequest struct {
	Proc string `json:"proc"`
	PID  int    `json:"pid"`
	FD   int    `json:"fd"`
}

// Located is a task's output. Cancelled is set if Slurm wrote there that the job was cancelled or met its time limit.
type Located struct {
	Target    Target `json:"target"`
	Cancelled bool   `json:"cancelled,omitempty"`
}

// LocateOutput asks the file system of the job's output, which may hang. It runs as the job's user.
var LocateOutput = child.NewOperation("locate", func(r LocateRequest) (Located, error) {
	target, _, err := Locate(r.Proc, r.PID, r.FD)
	return Located{target, err == nil && Cancelled(target, uint32(os.Geteuid()))}, err
})
