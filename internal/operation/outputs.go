package operation

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"bookend/internal/asuser"
	"bookend/internal/joblog"
	"bookend/internal/oom"
)

// AppendRequest is a text for the job's own output. The target is the user's claim.
type AppendRequest struct {
	UID    uint32        `json:"uid"`
	GID    uint32        `json:"gid"`
	User   string        `json:"user"`
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
var Append = Operation[AppendRequest, AppendReply]{"append", appendAsUser}

func appendAsUser(r AppendRequest) (AppendReply, error) {
	if err := asuser.Become(r.UID, r.GID, asuser.Groups(r.UID, r.GID, r.User)); err != nil {
		return AppendReply{}, err
	}
	if err := joblog.Append(r.Target, r.UID, []byte(r.Text)); err != nil {
		return AppendReply{Refused: joblog.Reason(err)}, nil
	}
	return AppendReply{}, nil
}

// TailRequest asks what a job's outputs say of memory. The targets are the user's claims.
type TailRequest struct {
	UID     uint32          `json:"uid"`
	GID     uint32          `json:"gid"`
	User    string          `json:"user"`
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
	Same    bool   `json:"same,omitempty"`    // it is an earlier target under another path
	Size    int64  `json:"size,omitempty"`
	Read    int64  `json:"read,omitempty"`
	Earlier bool   `json:"earlier,omitempty"` // as joblog.Search has it
}

// lookBack is how much is looked through before the last oom.MaxTail bytes, of all outputs of a job together: some 30
// ms.
const lookBack = 16 << 20

// Tail starts as root and gives that up, for good, before it opens anything of the user's. What the job wrote stays
// in this process: only what is understood of it goes back.
var Tail = Operation[TailRequest, TailReply]{"tail", readTails}

func readTails(r TailRequest) (TailReply, error) {
	if err := asuser.Become(r.UID, r.GID, asuser.Groups(r.UID, r.GID, r.User)); err != nil {
		return TailReply{}, err
	}
	inTime, cancel := context.WithTimeout(context.Background(), r.Within/2) // the rest is for the answer
	defer cancel()
	var all searchedFiles
	for _, target := range r.Targets[:min(len(r.Targets), oom.MaxFiles)] {
		f := all.open(target, r.UID)
		defer f.close()
		all = append(all, f)
	}
	cancelled := slices.ContainsFunc(all, func(f *searchedFile) bool { return f.search != nil && f.search.Cancelled })
	if (r.Back || cancelled) && !slices.ContainsFunc(all, (*searchedFile).recognised) {
		all.back(func() bool { return inTime.Err() == nil })
	}
	reply := all.reply()
	reply.Cancelled = cancelled
	return reply, nil
}

// searchedFile is a target while it is looked through. Its search is nil where it is not.
type searchedFile struct {
	*joblog.File
	search *joblog.Search
	same   bool
	err    error
}

type searchedFiles []*searchedFile

// open opens a target and looks through its end, unless it is the same file as one of the others.
func (all searchedFiles) open(t joblog.Target, uid uint32) *searchedFile {
	f := new(searchedFile)
	if f.File, f.err = joblog.Open(t, uid); f.err != nil {
		return f
	}
	f.same = slices.ContainsFunc(all, func(o *searchedFile) bool { return o.File != nil && f.Is(o.File) })
	if !f.same {
		f.search = joblog.NewSearch(f.File, f.Size)
		f.err = f.search.Tail()
	}
	return f
}

func (f *searchedFile) close() {
	if f.File != nil {
		f.Close()
	}
}

func (f *searchedFile) recognised() bool {
	return f.search != nil && f.search.Recognised()
}

// back looks through what stands before the ends, the shortest first: what they need not of their share of lookBack is
// the others'.
func (all searchedFiles) back(more func() bool) {
	unreadable := func(f *searchedFile) bool { return f.search == nil || f.err != nil }
	readable := slices.DeleteFunc(slices.Clone(all), unreadable)
	slices.SortStableFunc(readable, func(f, o *searchedFile) int { return cmp.Compare(f.Size, o.Size) })
	left := int64(lookBack)
	for i, f := range readable {
		before := f.search.Read
		f.err = f.search.Back(left/int64(len(readable)-i), more)
		left = max(0, left-(f.search.Read-before))
	}
}

// reply is what goes back. Of too many messages each file's last are kept.
func (all searchedFiles) reply() TailReply {
	var reply TailReply
	count, most := 0, oom.MaxMessages
	for _, f := range all {
		if f.search != nil {
			count += len(f.search.Messages)
		}
	}
	if count > most {
		most /= len(all)
	}
	for i, f := range all {
		one := Searched{Refused: joblog.Reason(f.err), Same: f.same}
		if f.search != nil && f.err == nil {
			one.Size, one.Read, one.Earlier = f.Size, f.search.Read, f.search.Earlier
			for _, m := range lastOf(f.search.Messages, most) {
				m.File = i
				reply.Messages = append(reply.Messages, m)
			}
		}
		reply.Files = append(reply.Files, one)
	}
	return reply
}

// lastOf are the last messages, at most so many: what says that memory ran out before anything else.
func lastOf(all []oom.Message, most int) []oom.Message {
	if len(all) > most {
		beside := func(m oom.Message) bool { return !joblog.AboutMemory(m) }
		if memory := slices.DeleteFunc(slices.Clone(all), beside); len(memory) > 0 {
			all = memory
		}
	}
	return all[max(0, len(all)-most):]
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
		if err := oom.Valid(m); err != nil {
			return err
		}
		if m.File >= targets || r.Files[m.File].Refused != "" || r.Files[m.File].Same {
			return fmt.Errorf("message of file %d of %d", m.File, targets)
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
