package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/internal/state"
	"bookend/test/must"
)

// TestStories tells what each command says, and how it ends, in testdata/stories. Beside testscript's own commands they
// have these, which work on the node that lies in $WORK:
//
//	node KIND             makes it: plain (a configuration), one (a job that has ended), busy, private
//	config TEXT           writes the node's configuration again, with this at its end; DIR is $WORK
//	shows MIB...          lets the driver say that so much is used on card A, one a look
//	job ID CARD [over]    puts a job on record that was given card A, B or any
//	again ID              puts another run of a job on record
//	leaves ID USER UID    puts a job on record that left a process
//	bookend [as UID] [exits CODE] ARGUMENT...
//	advice ANSWER WHY SINCE [END]         what hooks say to the user of job 44 about the node, and an earlier run's end
//	user UID [exits CODE] ARGUMENT...     the same as a real process of a user's
func TestStories(t *testing.T) {
	root, err := os.MkdirTemp("/run", "admin-test-") // only root can write there
	must.Do(t, err)
	must.Do(t, os.Chmod(root, 0o755))
	t.Cleanup(func() { os.RemoveAll(root) })
	files, err := filepath.Glob("testdata/stories/*.txtar")
	must.Do(t, err)
	for _, file := range files {
		// One after the other: what a story starts inherits, for a moment, the locks that another holds.
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			testscript.Run(t, storyParams(root, file))
		})
	}
}

func storyParams(root, file string) testscript.Params {
	p := testscript.Params{
		Files: []string{file}, WorkdirRoot: root, RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("BOOKEND_CONFIG", filepath.Join(e.WorkDir, "bookend.yaml"))
			e.Setenv("A", string(cardA))
			e.Setenv("B", string(cardB))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){},
	}
	for name, do := range storyCommands {
		p.Cmds[name] = func(ts *testscript.TestScript, _ bool, args []string) { do(teller{ts}, args) }
	}
	return p
}

// teller lets a story use what makes nodes for tests.
type teller struct{ *testscript.TestScript }

func (teller) Helper()             {}
func (s teller) Fatal(what ...any) { s.Fatalf("%s", fmt.Sprint(what...)) }
func (s teller) dir() string       { return s.Getenv("WORK") }
func (s teller) node() testNode    { return nodeIn(s, s.dir()) }
func (s teller) number(text string) int {
	n, err := strconv.Atoi(text)
	s.Check(err)
	return n
}

// configure writes the node's configuration, with a text at its end.
func (s teller) configure(text string) {
	config := nodeConfig(s.dir())
	if s.Getenv("PLAIN") != "" { // a node that has no driver, and whose /dev is its own
		config = strings.Replace(valid(s.dir()), "paths: {", "paths: {dev: "+s.dir()+"/dev, ", 1)
	}
	write(s, filepath.Join(s.dir(), "bookend.yaml"), config+strings.ReplaceAll(text, "DIR", s.dir()), 0o644)
}

var storyCommands = map[string]func(s teller, args []string){
	"node": func(s teller, args []string) {
		switch args[0] {
		case "plain":
			homeIn(s, s.dir())
			s.Setenv("PLAIN", "yes")
			s.configure("")
			s.Check(os.MkdirAll(filepath.Join(s.dir(), "dev"), 0o755))
		case "one":
			newNodeIn(s, s.dir())
		case "busy":
			busyIn(s, s.dir())
		case "private":
			private(s, s.dir())
		default:
			s.Fatalf("no such node: %q", args)
		}
	},
	"config": func(s teller, args []string) { s.configure(strings.Join(args, "\n") + "\n") },
	"shows": func(s teller, args []string) {
		var used []int
		for _, a := range args {
			used = append(used, s.number(a))
		}
		s.node().shows(s, used...)
	},
	"job": func(s teller, args []string) {
		card := map[string]gpu.ID{"A": cardA, "B": cardB}[args[1]]
		s.node().job(s, slurm.JobID(s.number(args[0])), card, len(args) > 2)
	},
	"again": func(s teller, args []string) {
		job := slurm.Job{ID: slurm.JobID(s.number(args[0])), Node: "n1", Start: time.Now()}
		s.Check(s.node().store.Begin(record.Run{Job: job, Start: &record.End{At: time.Hour, Wall: time.Now()}}))
	},
	"leaves": func(s teller, args []string) {
		s.node().leaves(s, slurm.JobID(s.number(args[0])), args[1], uint32(s.number(args[2])))
	},
	"bookend": func(s teller, args []string) {
		uid, exit := s.option(&args, "as", 0), s.option(&args, "exits", exitOK)
		environment := map[string]string{"BOOKEND_CONFIG": s.Getenv("BOOKEND_CONFIG"), "SLURM_CONF": s.Getenv("SLURM_CONF")}
		s.ended(exit, typing(uid, environment, args...), args)
	},
	// advice is whether to avoid the node (yes, no or cannot tell), why, and what was seen since
	"advice": func(s teller, args []string) {
		r := state.Report{Avoid: record.Answer(args[0]), Why: args[1], Since: args[2], End: strings.Join(args[3:], " ")}
		s.Check(s.node().store.Users.PutReport(slurm.Job{ID: 44, Node: "n1", UID: me, GID: me}, r))
	},
	"user": func(s teller, args []string) {
		uid, args := uint32(s.number(args[0])), args[1:]
		exit := s.option(&args, "exits", exitOK)
		var environment []string
		for _, name := range []string{"BOOKEND_CONFIG", "SLURM_JOB_ID", "SLURMD_NODENAME", "SLURM_GPUS_ON_NODE"} {
			environment = append(environment, name+"="+s.Getenv(name))
		}
		got := asUser(s, uid, s.dir(), environment, args...)
		s.ended(exit, got, args)
		for _, secret := range foreign {
			if uid == me && strings.Contains(got.out+got.err, secret) && !strings.Contains(strings.Join(args, " "), secret) {
				s.Fatalf("%q says %q:\n%s%s", args, secret, got.out, got.err)
			}
		}
	},
}

// option takes "NAME NUMBER" from the beginning of a command's arguments.
func (s teller) option(args *[]string, name string, usual int) int {
	if len(*args) < 2 || (*args)[0] != name {
		return usual
	}
	n := s.number((*args)[1])
	*args = (*args)[2:]
	return n
}

func (s teller) ended(want int, got typed, args []string) {
	fmt.Fprint(s.Stdout(), got.out)
	fmt.Fprint(s.Stderr(), got.err)
	if got.exit != want {
		s.Fatalf("%q: exit code %d, want %d\n%s%s", args, got.exit, want, got.out, got.err)
	}
}

const (
	me       = 61001
	stranger = 61002
)

// foreign is what nobody but root and the stranger may read.
var foreign = []string{"secretive", fmt.Sprint(stranger), "4711", "the report of job 42", "train"}

// private makes a node with a job of mine and one of a stranger's, with everything that hooks keep of both.
func private(t tester, dir string) {
	t.Helper()
	n := newNodeIn(t, dir)
	n.shows(t, 20480)
	n.leaves(t, 42, "secretive", stranger)
	n.leaves(t, 44, "myself", me)
	for id, uid := range map[slurm.JobID]uint32{42: stranger, 44: me} {
		text := fmt.Sprintf("bookend: GPU 0 of n1 clean, says the report of job %d\n", id)
		job := slurm.Job{ID: id, Node: "n1", UID: uid, GID: uid}
		must.Do(t, n.store.Users.PutReport(job, state.Report{Clean: true, Text: text}))
	}
}

// asUser runs the command line as a real process of a user's.
func asUser(t tester, uid uint32, dir string, environment []string, args ...string) typed {
	t.Helper()
	cmd := exec.Command(standIn(t, dir), args...)
	cmd.Dir = "/"
	cmd.Env = environment
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	var out, wrong strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &wrong
	err := cmd.Run()
	if _, ran := errors.AsType[*exec.ExitError](err); err != nil && !ran {
		t.Fatal(err)
	}
	return typed{cmd.ProcessState.ExitCode(), out.String(), wrong.String()}
}

// standIn is this test binary as "bookend", where everybody can start it.
func standIn(t tester, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "bin/bookend")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	self, err := os.Executable()
	must.Do(t, err)
	data, err := os.ReadFile(self)
	must.Do(t, err)
	must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
	write(t, path, string(data), 0o755)
	return path
}
