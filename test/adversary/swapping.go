package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/catalog"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/internal/state"
	"bookend/test/faultinject"
	"bookend/test/rig"
)

// epilogTotal is the deadline of an epilog under swaps. margin is what a busy machine adds to it: next to many processes
// that read /proc at low priority, Linux has taken 15 s to reap a process.
const (
	epilogTotal = 8 * time.Second
	margin      = 40 * time.Second
)

// swapping is one trial of the epilog, or of its child that appends, while files are swapped.
type swapping struct {
	w   *world
	p   plan
	sum *tally

	drop      way
	reading   bool // the drop record, from the opening of its directory until it is removed
	child     way
	pid       int // the last child that has become the user
	appends   bool
	signalled bool
	hung      bool  // a drop record that hangs was swapped in
	trouble   error // of the trial's own
}

func (s *swapping) fail(wrong ...string) { s.sum.fail(s.p.String(), wrong...) }

func (s *swapping) try(program string) {
	if s.p.whole {
		s.prepare()
	}
	err := rig.Attempt(func() { s.play(program) })
	s.restore(&s.drop)
	s.restore(&s.child)
	rig.Try(errors.Join(err, s.trouble))
	s.fail(append(s.w.restoreOutput(), s.w.seen()...)...)
	rig.Try(os.RemoveAll(filepath.Join(s.w.jobs, jobDrop)))
}

// prepare makes the record of a clean start and the drop record.
func (s *swapping) prepare() {
	for _, dir := range []string{"run/state", "run/report", "var/history", "log"} {
		rig.Try(os.RemoveAll(filepath.Join(s.w.root, dir)))
	}
	store := rig.Have(state.Open(filepath.Join(s.w.root, "run"), nodeName))
	job := slurm.Job{Context: slurm.Prolog, ID: swapJob, Node: nodeName, UID: user, GID: user}
	clean := record.End{Wall: time.Unix(1e9, 0), Report: "bookend: clean\n", Findings: []record.Finding{}}
	rig.Try(store.Begin(record.Run{Job: job, Start: &clean}))
	s.w.file(filepath.Join(s.w.jobs, jobDrop), 0, 0o660, dropRecord(s.w.target(s.p.known)))
}

// play runs the program and judges what it says.
func (s *swapping) play(program string) {
	cmd := exec.Command(program)
	cmd.Env = []string{}
	if s.p.whole {
		cmd.Env = rig.NewJob(nodeName, swapJob, user, 0).With("SLURM_JOB_USER", "", "SLURM_JOB_WORK_DIR", s.w.home,
			"SLURM_JOB_STDERR", filepath.Join(s.w.home, "errors"),
		).Environ(filepath.Join(s.w.root, "bookend.yaml"), slurm.Epilog)
	} else {
		cmd.Args = append(cmd.Args, "--child", "append")
	}
	stdin, feed, err := os.Pipe()
	rig.Try(err)
	defer feed.Close() // a child of the epilog's reads on until its hook has ended
	defer stdin.Close()
	cmd.Stdin = stdin
	rig.Have(feed.Write(s.w.appendRequest(s.p.known)))
	file := faultinject.AtLeast(0, 3)
	some := faultinject.AtLeast(2, 16) // bytes: what is less, Go's runtime writes and reads to wake itself
	calls := []faultinject.Filter{
		{Number: unix.SYS_OPENAT}, {Number: unix.SYS_UNLINKAT}, {Number: unix.SYS_FSTAT, When: []faultinject.Arg{file}},
		{Number: unix.SYS_NEWFSTATAT}, {Number: unix.SYS_WRITE, When: []faultinject.Arg{file, some}},
	}
	if s.p.whole {
		calls = append(calls, faultinject.Filter{Number: unix.SYS_READ, When: []faultinject.Arg{file, some}})
	}
	out, late := watch(cmd, epilogTotal+margin, calls, s.decide)
	s.judge(cmd.ProcessState, out, late)
}

// decide makes the swaps that are planned for this call, and lets it pass.
func (s *swapping) decide(c faultinject.Call) faultinject.Answer {
	switch c.Number {
	case unix.SYS_OPENAT:
		s.opens(c, c.Text(1))
	case unix.SYS_UNLINKAT:
		if c.Text(1) == filepath.Join(s.w.jobs, jobDrop) {
			s.restore(&s.drop)
			s.reading = false
		}
	case unix.SYS_FSTAT, unix.SYS_NEWFSTATAT:
		ofDrop, ofChild := s.reading && s.drop.next == check, s.pid != 0 && s.child.next == fstat
		if !ofDrop && !ofChild {
			break // most are of other files, and to find out which takes time
		}
		path := c.File(0)
		if c.Number == unix.SYS_NEWFSTATAT {
			path = c.Text(1)
		}
		switch {
		case ofChild && strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "/proc/") && c.PID() == s.pid:
			s.arrive(&s.child, fstat)
		case ofDrop && within(path, s.w.drop):
			s.arrive(&s.drop, check)
		}
	case unix.SYS_READ:
		if s.reading && s.drop.next == take && within(c.File(0), s.w.drop) {
			s.arrive(&s.drop, take)
		}
	case unix.SYS_WRITE:
		if s.pid != 0 && s.child.next == write && strings.HasPrefix(c.File(0), "/") && c.PID() == s.pid {
			s.arrive(&s.child, write)
		}
	}
	return faultinject.Answer{}
}

func within(path, dir string) bool { return strings.HasPrefix(path, dir+"/") }

// opens is called before a path is opened, by the hook or by a child that has become the user.
func (s *swapping) opens(c faultinject.Call, path string) {
	switch {
	case path == s.w.jobs && (s.reading || s.drop.stops == nil): // a reading begins
		s.restore(&s.drop)
		s.drop = way{swap: s.p.read, name: "reads: ", stops: dropStops, all: dropReads}
		s.reading = true
	case path == jobDrop && s.reading:
		s.arrive(&s.drop, pin)
	case s.reading && s.drop.next > pin && strings.HasPrefix(path, "/proc/self/fd/"):
		s.arrive(&s.drop, reopen)
	case within(path, s.w.home):
		if pid := c.PID(); pid != s.pid {
			s.meet(pid, slices.Contains(c.Command(), "append"))
		}
		if path == s.w.out {
			s.arrive(&s.child, open)
		}
	}
}

// meet attacks a child that is held still before it opens its first file of the user's.
func (s *swapping) meet(pid int, appends bool) {
	s.restore(&s.child)
	s.pid, s.appends, s.child = pid, appends, way{swap: s.p.tail, name: "tails: ", stops: outStops, all: "tails"}
	signal := s.p.signal
	if appends {
		s.child = way{swap: s.p.append, name: "writes: ", stops: outStops, all: outWrites}
	} else if s.p.whole && s.p.number%2 == 0 {
		signal = 0 // the other child is meant
	}
	tried, worked, err := attack(pid, signal)
	s.trouble = errors.Join(s.trouble, err)
	s.sum.count("attempts to trace or to look into a child", tried)
	if len(worked) > 0 {
		s.fail("traced: " + strings.Join(worked, ", "))
	}
	if signal != 0 {
		s.signalled = true
		s.sum.count("signals sent to a child by its user", 1)
	}
}

var (
	refused = regexp.MustCompile(`"refused":"([a-z-]+)"`)
	jobLog  = regexp.MustCompile(`job_log="?([a-z -]+)"? `)
	action  = regexp.MustCompile(` action=([a-z]+) (?:doubt="[^"]*" )?exit=([0-9]+)`)
)

// judge looks at how the program ended and what it has put out.
func (s *swapping) judge(ended *os.ProcessState, out string, late bool) {
	const maxResident = 128 << 10 // KiB: more than a hook takes that reads at most 4 KiB of a user's file
	if usage, ok := ended.SysUsage().(*syscall.Rusage); ok && usage.Maxrss > maxResident {
		s.fail(fmt.Sprintf("memory: the hook took %d MiB", usage.Maxrss>>10))
	}
	stopped := strings.Contains(out, string(catalog.Deadline))
	deadly := s.signalled && (s.p.signal == syscall.SIGKILL || s.p.signal == syscall.SIGTERM)
	switch ws := ended.Sys().(syscall.WaitStatus); {
	case late || stopped && s.hung:
		s.fail(fmt.Sprintf("late: %.300s", out))
	case strings.Contains(out, "panic") || strings.Contains(out, string(catalog.Panicked)):
		s.fail(fmt.Sprintf("crash: %.2000s", out))
	case !s.p.whole && deadly && ws.Signaled():
		s.sum.count("children ended by the user's signal", 1)
		return
	case ws.Signaled() || ws.ExitStatus() != 0:
		s.fail(fmt.Sprintf("exit: %v: %.300s", ended, out))
	}
	if !s.p.whole {
		reply := append(refused.FindStringSubmatch(out), "", "appended")
		s.sum.count("append: "+reply[1], 1)
		return
	}
	if stopped { // on a busy machine; a drop record that hangs must not be the reason
		s.sum.count("hooks ended with 0 by their deadline", 1)
		return
	}
	s.sum.count("hooks ended with 0 in time", 1)
	text, _ := os.ReadFile(filepath.Join(s.w.root, "log", "bookend.log"))
	verdict, log := action.FindSubmatch(text), jobLog.FindSubmatch(text)
	if verdict == nil || log == nil {
		s.fail(fmt.Sprintf("%s: the hook has logged %.300q and said %.300q", blind, text, out))
		return
	}
	if string(verdict[1]) == "drain" || string(verdict[2]) != "0" {
		s.fail("drain: " + string(text))
	}
	s.sum.count("append: "+string(log[1]), 1)
	if s.drop.stops == nil {
		s.fail(blind + ": the hook never looked for a drop record")
	}
}
