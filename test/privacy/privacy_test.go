package privacy

import (
	"strings"
	"testing"

	"bookend/internal/record"
	"bookend/internal/slurm"
)

var people = []Person{{"games", 5, "/site/home/games"}, {"news", 9, "/site/home/news"}}

func known() []Facts {
	run := func(id slurm.JobID, uid uint32, processes ...record.Process) record.Run {
		return record.Run{Job: slurm.Job{ID: id, UID: uid}, Start: &record.End{Processes: processes}}
	}
	guest := record.Process{PID: 801, UID: 9, Name: "guest", Exe: "/site/bin/guest"}
	both := record.Process{PID: 802, UID: 9, Name: "train"}
	end := run(13, 5, record.Process{PID: 701, UID: 5, Name: "train"})
	end.Ends = []record.End{{Findings: []record.Finding{{Holder: &record.Holder{Process: guest},
		Candidates: []record.Holder{{Process: record.Process{PID: 803, UID: 9, Name: "maybe"}}}}}}}
	return Know(people, []record.Run{run(12, 9, both), end})
}

// Of a job's log Bookend's lines count, of a command's answer every line. What is the reader's own as well, and what
// another program says, tells nothing.
func TestLeaks(t *testing.T) {
	log := func(line string) []string { return Leaks("first\n"+line+"\nlast\n", "games", known()) }
	show := func(line string) []string { return Shown("first\n"+line+"\nlast\n", "games", known()) }
	for _, c := range []struct {
		leaks      func(line string) []string
		line, what string
	}{
		{log, "| bookend:   Who:    news", "the account"},
		{log, "| bookend:   Who:    uid 9", "the uid"},
		{log, "| bookend:   Found:  /site/home/news/x", "the home"},
		{log, "  | bookend:   Who:    probably job 12", "job 12"},
		{log, "| bookend:   More:   for your admin: bookend show 12", "job 12"},
		{log, "| bookend:   Who:    jobs 13 and 12", "job 12"},
		{log, "| bookend: processes 701, 802 still use a GPU", "process 802"},
		{log, "| bookend:   Found:  2 MiB held by a process (maybe)", "process name maybe"},
		{log, "| bookend:   Found:  held by /site/bin/guest", "program /site/bin/guest"},
		{log, "some words | bookend: job 12 in the middle of the line", "job 12"},
		{log, "| bookend:   Who:    probably your job 13", ""},
		{log, "| bookend: process 701 (train) still uses a GPU", ""},
		{log, "ready pid=801 of job 12, said by the job itself", ""},
		{show, "  job 12  GPU 0  07:35:13  clean", "job 12"},
		{show, `      "job": "12",`, "job 12"},
		{show, "  PID 801 (other), 20 MiB", "process 801"},
		{show, `  "name": "guest",`, "process name guest"},
		{show, `  "uid": 9,`, "the uid"},
		{show, "2026-11-21 07:35:13  12   news  0 ", "the account"},
		{show, `job 13 on n1, "pid": 0, "uid": 99, 12 MiB  another user's process`, ""},
	} {
		leaks := c.leaks(c.line)
		got := strings.Join(leaks, "\n")
		want := "games reads " + c.what + " of news: "
		if len(leaks) > 1 || (got == "") != (c.what == "") || got != "" && !strings.HasPrefix(got, want) {
			t.Errorf("%q: got %q, want %q", c.line, got, c.what)
		}
	}
}
