package main

import (
	"fmt"
	"slices"
	"strings"

	"bookend/test/cluster"
)

// check is one expectation and what became of it.
type check struct {
	what       string
	met        bool
	want, seen string
}

// facts are what really happened around one job, seen by looking for processes, never by asking Bookend. What
// was there at one look and not at the next went at a moment nobody knows: nothing is expected of it.
type facts struct {
	Job  cluster.JobID
	UID  uint32
	Node string
	// Before: on the card when the job was submitted. Begun: those of them still there once its prolog was over.
	Before, Begun []holder
	// Ended: on the card when its script was over. After: when its epilog was over.
	Ended, After []holder
	// Why: the reason for which it ran out of memory on a card that it had alone, nil for a job that did not.
	Why *cause
	// Real: the card is a real one, whose other users and settings are not the story's.
	Real bool
}

// cause is why a job runs out of memory.
type cause struct {
	headline, name string // in Bookend's words
	real           string // what the job on a real GPU is told to do
}

// inherited reports whether the job got a card that others were on; sure is false if that changed meanwhile.
func (f facts) inherited() (dirty, sure bool) {
	return len(f.Begun) > 0, len(f.Begun) == len(f.Before)
}

// left are the job's own processes that outlived it; sure is false if that changed meanwhile.
func (f facts) left() (mine []holder, sure bool) {
	mine = of(f.After, f.Job)
	return mine, len(mine) == len(of(f.Ended, f.Job))
}

// logText is one part of a job's log without Bookend's marks and line breaks.
type logText string

func (t logText) says(phrase string) bool { return strings.Contains(string(t), phrase) }

// parts splits a job's log at the line that the job itself writes.
func parts(log string) (start, end logText) {
	head, tail, ready := strings.Cut(log, "\nready ")
	if !ready {
		head, tail, _ = strings.Cut(log, "OutOfMemoryError: ")
	}
	return plain(head), plain(tail)
}

func plain(text string) logText {
	var words []string
	for line := range strings.Lines(text) {
		line, ours := strings.CutPrefix(line, "| bookend:")
		if ours {
			words = append(words, strings.Fields(line)...)
		}
	}
	return logText(strings.Join(words, " "))
}

// checks works out from the facts what the job's log must say.
func (f facts) checks(log string) []check {
	start, end := parts(log)
	return slices.Concat(f.startChecks(start), f.endChecks(end), f.whyChecks(end))
}

// alone reports whether the job surely had the card to itself and left nobody on it.
func (f facts) alone() bool { return len(f.Before)+len(f.Ended)+len(f.After) == 0 }

// whyChecks are what the log must say of why the job ran out of memory. Where others were on the card there may be
// several reasons.
func (f facts) whyChecks(t logText) []check {
	const title = "Why out of memory: "
	switch {
	case f.Why == nil:
		return []check{silent(t, title, "nobody is told a reason who did not run out of memory")}
	case !f.alone():
		return []check{says(t, title, "it says why memory ran out")}
	}
	return []check{
		says(t, title+f.Why.headline, "it says why memory ran out: "+f.Why.headline),
		says(t, "YES "+f.Why.name+": ", "of the possible causes it was: "+f.Why.name),
		says(t, "no another process: ", "and nobody else's process"),
		says(t, "Try: ", "it says what to try"),
	}
}

// state is how Slurm says that the job ended.
func (f facts) state() string {
	if f.Why != nil {
		return "FAILED"
	}
	return "COMPLETED"
}

func (f facts) startChecks(t logText) []check {
	dirty, sure := f.inherited()
	switch {
	case !sure:
		return []check{says(t, "GPU 0 of "+f.Node, "the card changed while the job was starting: its start is reported")}
	case !dirty:
		return []check{
			says(t, fmt.Sprintf("GPU 0 of %s clean:", f.Node), "the log begins by saying that the card was clean"),
			says(t, "nobody on it", "and that nobody was on it"),
		}
	}
	out := []check{
		says(t, "was not clean when your job got it", "the log begins by saying that the card was not clean"),
		says(t, "not caused by this job", "it does not blame this job"),
	}
	for _, h := range f.Begun {
		out = append(out, f.whose(t, h)...)
	}
	return out
}

// whose is what a user may learn about a process that is in the way: all of an own one, nothing of another's.
func (f facts) whose(t logText, h holder) []check {
	switch {
	case h.UID != f.UID:
		return []check{
			says(t, "a process that is not yours", "it says of the process only that it is not the user's own"),
			says(t, "another user's job", "and of its job that it is another user's"),
			silent(t, fmt.Sprintf("process %d", h.PID), "it does not tell another user's PID"),
			silent(t, "job "+string(h.Job)+" ", "nor another user's job id"),
		}
	case h.Job == "":
		return []check{says(t, fmt.Sprintf("process %d (%s)", h.PID, h.Name), fmt.Sprintf("it names process %d (%s)", h.PID, h.Name))}
	}
	return []check{
		says(t, fmt.Sprintf("process %d (%s)", h.PID, h.Name), fmt.Sprintf("it names process %d (%s)", h.PID, h.Name)),
		says(t, "your job "+string(h.Job), "and that job "+string(h.Job)+" left it there"),
	}
}

func (f facts) endChecks(t logText) []check {
	mine, leftSure := f.left()
	dirty, sure := f.inherited()
	switch {
	case !leftSure:
		return []check{says(t, "GPU 0 of "+f.Node, "the card changed while the job was ending: its end is reported")}
	case len(mine) > 0:
		return f.leftChecks(t, mine)
	case dirty && slices.Equal(f.Begun, f.After): // the same processes as at its start
		return []check{says(t, "as your job found it", "the log ends by saying that the card is as the job found it")}
	case dirty || !sure:
		return []check{silent(t, "was not clean after your job", "this job is not blamed at its end")}
	}
	return []check{says(t, "left clean by your job", "the log ends by saying that the job left the card clean")}
}

func (f facts) leftChecks(t logText, mine []holder) []check {
	out := []check{says(t, "was not clean after your job", "the log ends by saying that the job did not leave the card clean")}
	for _, h := range mine {
		process := fmt.Sprintf("process %d (%s)", h.PID, h.Name)
		out = append(out,
			says(t, process+" still uses a GPU at the end of your script", fmt.Sprintf("the end of the script already named %s", process)),
			says(t, "held by "+process, fmt.Sprintf("the job's end names %s", process)),
			either(t, "Who: this job", "Who: probably this job", "and blames this job"))
	}
	return out
}

// shown is what an admin must read of a job, evidence and ids included.
func (f facts) shown(show logText) []check {
	out := append(f.tested(show), f.whyShown(show)...)
	if _, sure := f.inherited(); sure {
		for _, h := range f.Begun {
			out = append(out, named(show, "BKD-DIRTY", h)...)
		}
	}
	if mine, sure := f.left(); sure {
		for _, h := range mine {
			out = append(out, named(show, "BKD-ORPHAN", h)...)
		}
	}
	return out
}

// tested is the test allocation at the job's end, which only a clean card gets.
func (f facts) tested(show logText) []check {
	_, end, _ := strings.Cut(string(show), " end: ")
	switch {
	case f.alone() && !f.Real:
		return []check{says(logText(end), "test allocation: ok, largest block", "the card was then tested: its free memory can be had in one block")}
	case len(f.After) > 0 && slices.Equal(f.Ended, f.After):
		return []check{says(logText(end), "test allocation: not made", "no card is tested with somebody on it")}
	}
	return nil // who may have been on it when its turn came, nobody can tell
}

func (f facts) whyShown(show logText) []check {
	if f.Why == nil || !f.alone() {
		return nil
	}
	return []check{
		says(show, "torch.OutOfMemoryError: ", "the record has PyTorch's own words"),
		says(show, "Why out of memory: "+f.Why.headline, "and the reason"),
		says(show, "YES "+f.Why.name+" ", "with the evidence for it"),
	}
}

func named(show logText, code string, h holder) []check {
	out := []check{
		says(show, code, "the record has the finding "+code),
		says(show, fmt.Sprintf("PID %d (%s)", h.PID, h.Name), fmt.Sprintf("it names PID %d", h.PID)),
	}
	if h.Job != "" {
		out = append(out, says(show, fmt.Sprintf("job: %s (uid %d)", h.Job, h.UID), fmt.Sprintf("and job %s as the one that started it", h.Job)))
	}
	return out
}

func says(t logText, phrase, what string) check {
	return check{what: what, met: t.says(phrase), want: fmt.Sprintf("%q", phrase), seen: fmt.Sprintf("%q", t)}
}

func either(t logText, a, b, what string) check {
	return check{what: what, met: t.says(a) || t.says(b), want: fmt.Sprintf("%q or %q", a, b), seen: fmt.Sprintf("%q", t)}
}

func silent(t logText, phrase, what string) check {
	return check{what: what, met: !t.says(phrase), want: fmt.Sprintf("nothing of %q", phrase), seen: fmt.Sprintf("%q", t)}
}

func equal(what, want, seen string) check {
	return check{what: what, met: want == seen, want: want, seen: seen}
}
