package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"bookend/internal/answer"
	"bookend/internal/slurm"
	"bookend/internal/state"
)

const (
	me       = 61001
	stranger = 61002
)

// asUser runs the command line as a real process of a user's.
func asUser(t *testing.T, uid uint32, dir, config string, args ...string) typed {
	t.Helper()
	program := filepath.Join(dir, "bin/bookend")
	if _, err := os.Stat(program); err != nil {
		program = standIn(t, dir)
	}
	cmd := exec.Command(program, args...)
	cmd.Dir = "/"
	cmd.Env = []string{"BOOKEND_CONFIG=" + config}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	var out, wrong strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &wrong
	err := cmd.Run()
	if _, ran := errors.AsType[*exec.ExitError](err); err != nil && !ran {
		t.Fatal(err)
	}
	return typed{cmd.ProcessState.ExitCode(), out.String(), wrong.String()}
}

// private is a node with a job of mine and one of a stranger's, with everything that hooks keep of both.
func private(t *testing.T) testNode {
	t.Helper()
	n := newNode(t)
	n.shows(t, 20480)
	n.leaves(t, 42, "secretive", stranger)
	n.leaves(t, 44, "myself", me)
	for id, uid := range map[slurm.JobID]uint32{42: stranger, 44: me} {
		text := fmt.Sprintf("bookend: GPU 0 of n1 clean, says the report of job %d\n", id)
		must(t, n.store.PutReport(slurm.Job{ID: id, Node: "n1", UID: uid, GID: uid}, state.StartReport{Clean: true, Text: text}))
	}
	must(t, os.MkdirAll(n.dir+"/home", 0o755))
	write(t, filepath.Join(n.dir, "home/empty.out"), "working\n", 0o644)
	must(t, os.Chown(filepath.Join(n.dir, "home/empty.out"), me, me))
	for name, uid := range map[string]int{"mine.out": me, "theirs.out": stranger} {
		file := filepath.Join(n.dir, "home", name)
		write(t, file, "working\n| bookend: process 7 ("+name+") still uses a GPU\x1b[2J\nsomething about bookend: no\nbookend: line of "+name+"\n", 0o644)
		must(t, os.Chown(file, uid, uid))
	}
	return n
}

// foreign is what nobody but root and the stranger may read.
var foreign = []string{"secretive", fmt.Sprint(stranger), "4711", "theirs", "of job 42", "train"}

func TestUsersSeeTheirOwn(t *testing.T) {
	n := private(t)
	home := filepath.Join(n.dir, "home")
	for name, tt := range map[string]struct {
		args []string
		exit int
		says string
	}{
		"my job":            {[]string{"show", "44", "--node", "n1"}, exitOK, "  bookend: GPU 0 of n1 clean, says the report of job 44\n"},
		"my output":         {[]string{"show", "44", "--node", "n1", "--output", home + "/mine.out"}, exitOK, "says the report of job 44\nin " + home + "/mine.out:\n  bookend: process 7 (mine.out) still uses a GPU\\x1b[2J\n  bookend: line of mine.out\n"},
		"my old job":        {[]string{"show", "7", "--node", "n1", "--output", home + "/mine.out"}, exitOK, "at its start: there is no report of it for you here\nin " + home + "/mine.out:\n"},
		"nothing of ours":   {[]string{"show", "44", "--node", "n1", "--output", home + "/empty.out"}, exitOK, "\nin " + home + "/empty.out: no line of Bookend's\n"},
		"asked for codes":   {[]string{"show", "44", "--node", "n1", "--exit-code"}, exitDenied, "needs root: what was found at a job's ends"},
		"another's job":     {[]string{"show", "42", "--node", "n1"}, exitDenied, "needs root: job 42 has no report for you on node n1"},
		"no such job":       {[]string{"show", "99", "--node", "n1"}, exitDenied, "needs root: job 99 has no report for you on node n1"},
		"another's output":  {[]string{"show", "44", "--node", "n1", "--output", home + "/theirs.out"}, exitDenied, "needs root: that file is not yours"},
		"a device":          {[]string{"show", "44", "--node", "n1", "--output", "/dev/zero"}, exitTrouble, "no regular file"},
		"no such output":    {[]string{"show", "44", "--node", "n1", "--output", home + "/none"}, exitTrouble, "no such file"},
		"a task":            {[]string{"show", "40_2", "--node", "n1"}, exitDenied, "needs root: without it jobs are known by their own id alone"},
		"a node's name":     {[]string{"show", "44", "--node", "../x"}, exitTrouble, "not a name to be used in a path"},
		"status":            {[]string{"status"}, exitDenied, "needs root: "},
		"status of a node":  {[]string{"status", "--node", "n1", "--json"}, exitDenied, "needs root: "},
		"history":           {[]string{"history", "--user", "secretive"}, exitDenied, "needs root: "},
		"lemons":            {[]string{"history", "--lemons", "--json"}, exitDenied, "needs root: "},
		"baseline":          {[]string{"baseline"}, exitDenied, "needs root: "},
		"reset":             {[]string{"baseline", "reset", "all"}, exitDenied, "needs root: "},
		"accept":            {[]string{"baseline", "accept", string(cardA)}, exitDenied, "needs root: "},
		"doctor":            {[]string{"doctor"}, exitDenied, "needs root: "},
		"snapshot":          {[]string{"snapshot"}, exitOK, string(cardA)},
		"explain":           {[]string{"explain", "orphan"}, exitOK, "process outlived its job"},
		"completion of ids": {[]string{"__complete", "show", ""}, exitOK, ":"},
	} {
		t.Run(name, func(t *testing.T) {
			got := asUser(t, me, n.dir, n.config, tt.args...)
			if got.exit != tt.exit || !strings.Contains(got.out+got.err, tt.says) || tt.exit != exitOK && got.out != "" {
				t.Errorf("%+v, want exit %d and %q", got, tt.exit, tt.says)
			}
			asked := strings.Join(tt.args, " ")
			for _, secret := range foreign {
				if strings.Contains(got.out+got.err, secret) && !strings.Contains(asked, secret) {
					t.Errorf("says %q: %+v", secret, got)
				}
			}
		})
	}
	// Whether a job of somebody else's was here is not to be told from no job at all.
	mine, none := asUser(t, me, n.dir, n.config, "show", "42", "--node", "n1"), asUser(t, me, n.dir, n.config, "show", "99", "--node", "n1")
	if strings.ReplaceAll(mine.err, "42", "99") != none.err || mine.exit != none.exit {
		t.Errorf("%q, and of no job at all %q", mine.err, none.err)
	}
	// It is theirs.
	if got := asUser(t, stranger, n.dir, n.config, "show", "42", "--node", "n1"); got.exit != exitOK || !strings.Contains(got.out, "of job 42") {
		t.Errorf("%+v", got)
	}
	var own answer.OwnReport
	decode(t, asUser(t, me, n.dir, n.config, "show", "44", "--node", "n1", "--json", "--output", home+"/mine.out").out, answer.KindOwn, &own)
	if !*own.Clean || len(own.Start) != 1 || len(own.End) != 2 || own.Job != "44" {
		t.Errorf("%+v", own)
	}
	// Without a start report nobody says whether the GPUs were clean.
	own = answer.OwnReport{}
	decode(t, asUser(t, me, n.dir, n.config, "show", "7", "--node", "n1", "--json", "--output", home+"/mine.out").out, answer.KindOwn, &own)
	if own.Clean != nil || !strings.Contains(own.Unknown["clean"], "no report for you") || len(own.End) != 2 {
		t.Errorf("%+v", own)
	}
}

// Of processes that are not theirs users read that they are there, and nothing else.
func TestSnapshotHidesOthers(t *testing.T) {
	n := newNode(t)
	write(t, filepath.Join(n.dir, "gpu"), `#!/bin/sh
read -r request
cat <<END
{"bookend":1,"kind":"snapshot","snapshot":{"at":5000000000,"readings":[{"device":{"id":"`+string(cardA)+`","bus_id":"0000:1b:00.0","minor":0},"memory":{"used":{"bytes":9}},"processes":[{"pid":1,"memory":{"bytes":1048576}}]}]}}
{"bookend":1,"kind":"done"}
END
`, 0o755)
	write(t, filepath.Join(n.dir, "gpu"), strings.Replace(readAll(t, n.dir+"/gpu"), "\ncat", "\n/bin/cat", 1), 0o755)
	conf := strings.Replace(readAll(t, n.config), "proc: "+n.dir+"/proc", "proc: /proc", 1)
	write(t, n.config, conf, 0o644)
	for _, args := range [][]string{{"snapshot"}, {"snapshot", "--json"}} {
		got := asUser(t, me, n.dir, n.config, args...)
		if got.exit != exitOK || !strings.Contains(got.out, "another user's") || strings.Contains(got.out, "PID 1") || strings.Contains(got.out, `"pid": 1,`) || strings.Contains(got.out, "init") {
			t.Errorf("%+v", got)
		}
		if root := bookend(0, n.config, args...); root.exit != exitOK || strings.Contains(root.out, "another user's") {
			t.Errorf("root: %+v", root)
		}
	}
}

func readAll(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	must(t, err)
	return string(data)
}
