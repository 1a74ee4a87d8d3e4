package stage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"bookend/internal/asuser"
	"bookend/internal/child"
	"bookend/internal/joblog"
	"bookend/internal/ledger"
	"bookend/internal/oom"
)

// tailRequest crosses the pipe of opTail. The targets are the user's claims.
type tailRequest struct {
	UID     uint32          `json:"uid"`
	GID     uint32          `json:"gid"`
	User    string          `json:"user"`
	Targets []joblog.Target `json:"targets"`
	// Back: where the ends of the outputs say nothing of memory, what stands before them is looked through as well.
	Back bool `json:"back,omitempty"`
	// Within is how long the hook waits for all of it.
	Within time.Duration `json:"within_ns"`
}

// tailReply is untrusted: it was written by a process that the user may have got at.
type tailReply struct {
	Messages []oom.Message `json:"messages,omitempty"`
	Files    []searched    `json:"files,omitempty"` // one for each target
	// Cancelled is as joblog.Search has it, of any.
	Cancelled bool `json:"cancelled,omitempty"`
}

// searched is what became of one target.
type searched struct {
	Refused string `json:"refused,omitempty"` // why it was not looked through; "" for one that was
	Same    bool   `json:"same,omitempty"`    // it is an earlier target under another path
	Size    int64  `json:"size,omitempty"`
	Read    int64  `json:"read,omitempty"`
	Earlier bool   `json:"earlier,omitempty"` // as joblog.Search has it
}

// lookBack is how much is looked through before the last oom.MaxTail bytes, of all outputs of a job together: some 30 ms.
const lookBack = 16 << 20

// serveTail starts as root and gives that up, for good, before it opens anything of the user's. What the job wrote stays
// in this process: only what is understood of it goes back.
var serveTail = served(func(r tailRequest) (tailReply, error) {
	if err := asuser.Become(r.UID, r.GID, asuser.Groups(r.UID, r.GID, r.User)); err != nil {
		return tailReply{}, err
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
})

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

// back looks through what stands before the ends, the shortest first: what they need not of their share of lookBack is the others'.
func (all searchedFiles) back(more func() bool) {
	readable := slices.DeleteFunc(slices.Clone(all), func(f *searchedFile) bool { return f.search == nil || f.err != nil })
	slices.SortStableFunc(readable, func(f, o *searchedFile) int { return cmp.Compare(f.Size, o.Size) })
	left := int64(lookBack)
	for i, f := range readable {
		before := f.search.Read
		f.err = f.search.Back(left/int64(len(readable)-i), more)
		left = max(0, left-(f.search.Read-before))
	}
}

// reply is what goes back. Of too many messages each file's last are kept.
func (all searchedFiles) reply() tailReply {
	var reply tailReply
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
		one := searched{Refused: joblog.Reason(f.err), Same: f.same}
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
		if memory := slices.DeleteFunc(slices.Clone(all), func(m oom.Message) bool { return !joblog.AboutMemory(m) }); len(memory) > 0 {
			all = memory
		}
	}
	return all[max(0, len(all)-most):]
}

// check refuses a reply that serveTail could not have written.
func (r tailReply) check(targets int) error {
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

// said is what the job's outputs said of memory.
type said struct {
	messages []oom.Message
	outputs  []ledger.Output // Message.File counts these
	unknown  string          // why nobody looked
	part     string          // what was not looked through
	// cancelled: the job was cancelled or met its time limit, by Slurm's own line.
	cancelled bool
}

// startTail begins to look through the job's outputs for messages about memory, as the user, beside what the hook does
// meanwhile. The function that it returns waits for what was found, at most as long as an append and its turn may take,
// or says why nobody looked; it is called once.
func (h *hook) startTail() (listened func() said) {
	if why := h.notToBeRead(); why != "" {
		return func() said { return said{unknown: why} }
	}
	all := h.written()
	request := tailRequest{
		UID: h.job.UID, GID: h.job.GID, User: h.job.User, Back: !h.job.Exit.Known || h.job.Exit.Raw != 0 || h.job.Exit.Derived != 0,
		Within: time.Duration(h.times.Append),
	}
	for _, w := range all {
		if w.Path != "" {
			request.Targets = append(request.Targets, w.target)
		}
	}
	if len(request.Targets) == 0 {
		return func() said { return heard(all, tailReply{}) }
	}
	visit := h.newVisit(h.reserve())
	wait := aside(func() (tailReply, error) { return visited[tailReply](visit, opTail, request) })
	return func() said {
		reply, err := wait()
		h.collect(visit)
		if err == nil {
			err = reply.check(len(request.Targets))
		}
		if err != nil {
			return said{unknown: h.tailFault(err)}
		}
		if h.job.Restarts > 0 {
			reply.requeued()
		}
		return heard(all, reply)
	}
}

// requeued leaves out of account what stands before an end report: it is an earlier run's, and no part of this one's output.
func (r tailReply) requeued() {
	for i := range r.Files {
		if f := &r.Files[i]; f.Earlier {
			f.Size, f.Earlier = f.Read, false
		}
	}
}

// notToBeRead is why the job's outputs are not looked through.
func (h *hook) notToBeRead() string {
	switch {
	case !h.cfg.JobLog.Read:
		return "job_log.read is off"
	case h.again:
		return "its epilog has run before"
	case h.env.EUID != 0:
		return "the hook is not root's, and so cannot become the job's user"
	case h.job.UID == 0:
		return "the job is root's"
	}
	return ""
}

// heard joins what is known of the outputs with what was found in those that have a place, in the same order. A file that
// has two paths is one output.
func heard(all []written, r tailReply) said {
	s := said{messages: slices.Clone(r.Messages), cancelled: r.Cancelled}
	file := 0
	for _, w := range all {
		o := w.Output
		if o.Path != "" {
			f := r.Files[file]
			for i, m := range r.Messages {
				if m.File == file {
					s.messages[i].File = len(s.outputs)
				}
			}
			file++
			if f.Same {
				continue
			}
			o.Size, o.Read, o.Why = f.Size, f.Read, f.why()
		}
		s.outputs = append(s.outputs, o)
	}
	words, none := ledger.Unread(s.outputs)
	if none {
		s.unknown = words
	} else {
		s.part = words
	}
	return s
}

// why says why nothing of a file was looked through, or where that stopped.
func (f searched) why() string {
	switch {
	case f.Refused != "":
		return "refused: " + f.Refused
	case f.Earlier && f.Read < f.Size:
		return "another report of Bookend's stands in it"
	}
	return ""
}

// tailFault words why nothing came back. A child that hangs is not the driver's: it hangs where the user keeps files, and
// the append, which would meet the same, is spared.
func (h *hook) tailFault(err error) string {
	if h.defect(err) {
		return err.Error()
	}
	if errors.Is(err, errStuckVisit) {
		h.outputHangs = true
		return errStuckVisit.Error()
	}
	var failed *childError
	if errors.As(err, &failed) && (failed.Result.Outcome == child.Abandoned || failed.Result.Outcome == child.Hung) {
		h.outputHangs = true
		return "the file system that it lies on does not answer"
	}
	return err.Error()
}
