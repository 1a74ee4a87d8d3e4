package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/code"
	"bookend/internal/finding"
	"bookend/internal/ledger"
	"bookend/internal/slurm"
	"bookend/internal/state"
	"bookend/test/faultinject"
	"bookend/test/rig"
)

// epilogTotal is the deadline of the epilogs. margin is what a busy machine adds to it: beside many processes that read
// /proc at low priority, Linux was seen to take 15 s to reap a process.
const (
	epilogTotal = 8 * time.Second
	margin      = 40 * time.Second
)

// maxResident is more memory than a hook takes that reads at most 4 KiB of a user's file, KiB.
const maxResident = 128 << 10

type trial struct {
	*world
	plan
	o *outcome

	reading   int // which of its readings of the drop the hook is at, from 1
	removing  bool
	dropUndo  func() error
	child     int // the last child that has become the user
	appends   bool
	stage     point // the next one that it comes to
	childUndo func() error
	dropped   bool // the swap of this reading is done
	signalled bool
	hung      bool  // a drop that hangs was swapped in
	trouble   error // of the torture's own
}

func (w *world) run(program string, p plan) (*outcome, error) {
	t := &trial{world: w, plan: p, o: newOutcome()}
	if err := rig.Attempt(t.prepare); err != nil {
		return t.o, err
	}
	err := rig.Attempt(func() { t.play(program) })
	t.undoDrop()
	t.undoChild()
	return t.o, errors.Join(err, t.trouble, rig.Attempt(t.tidy))
}

func (t *trial) prepare() {
	if !t.whole {
		return
	}
	for _, dir := range []string{"run/state", "run/report", "var/history", "log"} {
		rig.Try(os.RemoveAll(filepath.Join(t.root, dir)))
	}
	store := rig.Have(state.Open(filepath.Join(t.root, "run"), nodeName))
	job := slurm.Job{Context: slurm.Prolog, ID: jobID, Node: nodeName, UID: user, GID: user}
	clean := ledger.End{Wall: time.Unix(1e9, 0), Report: "bookend: clean\n", Findings: []finding.Finding{}}
	rig.Try(store.Begin(ledger.Run{Job: job, Start: &clean}))
	t.file(filepath.Join(t.jobs, jobDrop), 0, 0o660, dropRecord(t.target(t.known)))
}

// tidy judges what the run has left, and brings it back to where it was.
func (t *trial) tidy() {
	t.o.breach(append(t.judgeOutput(), t.changed()...)...)
	rig.Try(os.RemoveAll(filepath.Join(t.jobs, jobDrop)))
}

func (t *trial) command(program string) *exec.Cmd {
	cmd := exec.Command(program)
	cmd.Dir, cmd.Env = "/", []string{}
	if !t.whole {
		cmd.Args = append(cmd.Args, "--child", "append")
		return cmd
	}
	cmd.Env = rig.NewJob(nodeName, jobID, user, 0).With("SLURM_JOB_USER", "", "SLURM_JOB_WORK_DIR", t.home,
		"SLURM_JOB_STDERR", filepath.Join(t.home, "errors"), // one more reading of the drop
	).Environ(filepath.Join(t.root, "bookend.yaml"), slurm.Epilog)
	return cmd
}

// play starts the program and waits for its end, and for that of all that it has started.
func (t *trial) play(program string) {
	var out bytes.Buffer
	cmd := t.command(program)
	stdin, feed, err := os.Pipe()
	rig.Try(err)
	defer feed.Close() // a child of the epilog's reads on until its hook has ended
	defer stdin.Close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &out
	rig.Have(feed.Write(t.appendRequest(t.known)))
	file := faultinject.AtLeast(0, 3)
	some := faultinject.AtLeast(2, 16) // bytes: what is less, Go's runtime writes and reads to wake itself
	kinds := []faultinject.Filter{
		{Number: unix.SYS_OPENAT}, {Number: unix.SYS_UNLINKAT}, {Number: unix.SYS_FSTAT, When: []faultinject.Arg{file}},
		{Number: unix.SYS_NEWFSTATAT}, {Number: unix.SYS_WRITE, When: []faultinject.Arg{file, some}},
	}
	if t.whole {
		kinds = append(kinds, faultinject.Filter{Number: unix.SYS_READ, When: []faultinject.Arg{file, some}})
	}
	began := time.Now()
	_, err = faultinject.Run(cmd, epilogTotal+margin, kinds, t.decide)
	if cmd.ProcessState != nil {
		t.judge(cmd, out.String(), time.Since(began))
	}
	rig.Try(err)
}

func (t *trial) judge(cmd *exec.Cmd, out string, took time.Duration) {
	state := cmd.ProcessState
	t.o.slowest = took
	if usage, ok := state.SysUsage().(*syscall.Rusage); ok && usage.Maxrss > maxResident {
		t.o.breach(breach{"memory", true, fmt.Sprintf("the hook took %d MiB", usage.Maxrss>>10)})
	}
	stopped := strings.Contains(out, string(code.Deadline))
	deadly := t.signalled && (t.signal == syscall.SIGKILL || t.signal == syscall.SIGTERM)
	switch ws := state.Sys().(syscall.WaitStatus); {
	case took > epilogTotal+margin || stopped && t.hung:
		t.o.breach(breach{"late", true, fmt.Sprintf("%v: %.300s", took, out)})
	case strings.Contains(out, "panic") || strings.Contains(out, string(code.Panicked)):
		t.o.breach(breach{"crash", true, fmt.Sprintf("%.2000s", out)})
	case !t.whole && deadly && ws.Signaled():
		t.o.count("appends ended by the user's signal", 1)
		return
	case ws.Signaled() || ws.ExitStatus() != 0:
		t.o.breach(breach{"exit", true, fmt.Sprintf("%v: %.300s", state, out)})
	}
	switch {
	case stopped: // on a busy machine; a drop that hangs must not be the reason
		t.o.count("hooks ended with 0 by their deadline", 1)
		return
	case t.whole:
		t.o.count("hooks ended with 0 in time", 1)
		t.wholeSaid(out)
		return
	}
	reply := between.FindStringSubmatch(out)
	if reply == nil {
		reply = []string{"", "appended"}
	}
	t.o.count("append: "+reply[1], 1)
}

var (
	between = regexp.MustCompile(`"refused":"([a-z-]+)"`)
	jobLog  = regexp.MustCompile(`job_log="?([a-z -]+)"? `)
	action  = regexp.MustCompile(` action=([a-z]+) (?:doubt="[^"]*" )?exit=([0-9]+)`)
)

// wholeSaid reads what the epilog has put into its own log.
func (t *trial) wholeSaid(out string) {
	text, _ := os.ReadFile(filepath.Join(t.root, "log", "bookend.log"))
	verdict, log := action.FindSubmatch(text), jobLog.FindSubmatch(text)
	if verdict == nil || log == nil {
		t.o.breach(breach{"log", false, fmt.Sprintf("the hook has logged %.300q and said %.300q", text, out)})
		return
	}
	if string(verdict[1]) == "drain" || string(verdict[2]) != "0" {
		t.o.breach(breach{"drain", true, string(text)})
	}
	t.o.count("append: "+string(log[1]), 1)
	if t.reading == 0 {
		t.o.breach(breach{"unread", false, "the hook never looked for a drop record"})
	}
}
