package stage

import (
	"errors"
	"fmt"
	"strings"

	"bookend/internal/asuser"
	"bookend/internal/child"
	"bookend/internal/joblog"
	"bookend/internal/oom"
)

// tailRequest crosses the pipe of opTail. The targets are the user's claims.
type tailRequest struct {
	UID     uint32          `json:"uid"`
	GID     uint32          `json:"gid"`
	User    string          `json:"user"`
	Targets []joblog.Target `json:"targets"`
}

// tailReply is untrusted: it was written by a process that the user may have got at.
type tailReply struct {
	Messages []oom.Message `json:"messages,omitempty"`
	Refused  []string      `json:"refused,omitempty"` // why not, one for each target; "" for one that was read
}

// serveTail starts as root and gives that up, for good, before it opens anything of the user's. What the job wrote stays
// in this process: only what is understood of it goes back.
var serveTail = served(func(r tailRequest) (tailReply, error) {
	if err := asuser.Become(r.UID, r.GID, asuser.Groups(r.UID, r.GID, r.User)); err != nil {
		return tailReply{}, err
	}
	var reply tailReply
	for file, target := range r.Targets[:min(len(r.Targets), oom.MaxFiles)] {
		tail, err := joblog.Tail(target, r.UID, oom.MaxTail)
		reply.Refused = append(reply.Refused, joblog.Reason(err))
		for _, m := range oom.Find(tail) {
			m.File = file
			reply.Messages = append(reply.Messages, m)
		}
	}
	reply.Messages = reply.Messages[max(0, len(reply.Messages)-oom.MaxMessages):]
	return reply, nil
})

// check refuses a reply that serveTail could not have written.
func (r tailReply) check(targets int) error {
	if len(r.Refused) != targets || len(r.Messages) > oom.MaxMessages {
		return fmt.Errorf("%d messages, %d answers for %d files", len(r.Messages), len(r.Refused), targets)
	}
	for _, why := range r.Refused {
		if why != "" && !joblog.IsReason(why) {
			return fmt.Errorf("refused for %.40q", why)
		}
	}
	for _, m := range r.Messages {
		if err := oom.Valid(m); err != nil {
			return err
		}
		if m.File >= targets {
			return fmt.Errorf("message of file %d of %d", m.File, targets)
		}
	}
	return nil
}

// startTail begins to look through the end of the job's output for messages about memory, as the user, beside what the
// hook does meanwhile. The function that it returns waits for what was found, at most as long as an append and its
// turn may take, or says why nobody looked; it is called once.
func (h *hook) startTail() (messages func() ([]oom.Message, string)) {
	targets, why := h.outputTargets()
	if why != "" {
		return func() ([]oom.Message, string) { return nil, why }
	}
	request := tailRequest{UID: h.job.UID, GID: h.job.GID, User: h.job.User, Targets: targets}
	visit := h.newVisit(h.reserve())
	wait := aside(func() (tailReply, error) { return visited[tailReply](visit, opTail, request) })
	return func() ([]oom.Message, string) {
		reply, err := wait()
		h.collect(visit)
		if err == nil {
			err = reply.check(len(targets))
		}
		if err != nil {
			return nil, h.tailFault(err)
		}
		return reply.Messages, reply.unread()
	}
}

// outputTargets are the files to be looked through, or why there are none.
func (h *hook) outputTargets() (targets []joblog.Target, why string) {
	switch {
	case !h.cfg.JobLog.Read:
		return nil, "job_log.read is off"
	case h.again:
		return nil, "its epilog has run before"
	case h.env.EUID != 0:
		return nil, "the hook is not root's, and so cannot become the job's user"
	case h.job.UID == 0:
		return nil, "the job is root's"
	}
	if targets = h.targets(); len(targets) == 0 {
		return nil, "no file that can be told from here"
	}
	return targets, ""
}

// unread says what could not be read of the output. What was found counts all the same: then nothing is missing.
func (r tailReply) unread() string {
	var reasons []string
	for _, why := range r.Refused {
		if why != "" {
			reasons = append(reasons, why)
		}
	}
	if len(r.Messages) > 0 || len(reasons) == 0 {
		return ""
	}
	return "refused: " + strings.Join(reasons, ", ")
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
