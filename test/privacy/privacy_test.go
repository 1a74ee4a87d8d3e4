package privacy

import (
	"strings"
	"testing"

	"bookend/internal/attrib"
	"bookend/internal/finding"
	"bookend/internal/ledger"
	"bookend/internal/slurm"
)

var people = []Person{{"games", 5, "/site/home/games"}, {"news", 9, "/site/home/news"}}

func known() []Facts {
	run := func(id slurm.JobID, uid uint32, processes ...attrib.Process) ledger.Run {
		return ledger.Run{Job: slurm.Job{ID: id, UID: uid}, Start: &ledger.End{Processes: processes}}
	}
	guest := attrib.Process{PID: 801, UID: 9, Name: "guest", Exe: "/site/bin/guest"}
	both := attrib.Process{PID: 802, UID: 9, Name: "train"}
	end := run(13, 5, attrib.Process{PID: 701, UID: 5, Name: "train"})
	end.Ends = []ledger.End{{Findings: []finding.Finding{{Holder: &finding.Holder{Process: guest},
		Candidates: []finding.Holder{{Process: attrib.Process{PID: 803, UID: 9, Name: "maybe"}}}}}}}
	return Know(people, []ledger.Run{run(12, 9, both), end})
}

func TestLeaks(t *testing.T) {
	for line, what := range map[string]string{
		"| bookend:   Who:    news":                              "the account",
		"| bookend:   Who:    uid 9":                             "the uid",
		"| bookend:   Found:  /site/home/news/x":                 "the home",
		"| bookend:   Who:    probably job 12":                   "job 12",
		"| bookend:   More:   for your admin: bookend show 12":   "job 12",
		"| bookend:   Who:    jobs 13 and 12":                    "job 12",
		"| bookend:   Found:  20 MiB held by process 801":        "process 801",
		"| bookend: processes 701, 802 still use a GPU":          "process 802",
		"| bookend:   Found:  2 MiB held by a process (guest)":   "process name guest",
		"| bookend:   Found:  2 MiB held by a process (maybe)":   "process name maybe",
		"| bookend:   Found:  held by /site/bin/guest":           "program /site/bin/guest",
		"  | bookend:   Who:    job 12":                          "job 12",
		"some words | bookend: job 12 in the middle of the line": "job 12",
		"bookend: the job log of a command, which names job 12":  "job 12",
	} {
		leaks := Leaks("first\n"+line+"\nlast\n", "games", known())
		if len(leaks) != 1 || !strings.HasPrefix(leaks[0], "games reads "+what+" of news: ") {
			t.Errorf("%q: %q, want %s", line, leaks, what)
		}
	}
}

func TestNoLeaks(t *testing.T) {
	for _, line := range []string{
		"| bookend:   Who:    probably your job 13",
		"| bookend: process 701 (train) still uses a GPU",
		"| bookend: GPU 0 of n1 clean: 12 MiB free, 802 in one block",
		"| bookend:   Who:    another user's job",
		"ready pid=801 of job 12, said by the job itself",
	} {
		if leaks := Leaks(line+"\n", "games", known()); len(leaks) > 0 {
			t.Errorf("%q: %q", line, leaks)
		}
	}
}

// What is the reader's own as well tells nothing; what is root's is nobody's.
func TestKnow(t *testing.T) {
	facts := known()
	if f := facts[1]; len(f.Jobs) != 1 || len(f.PIDs) != 3 || len(f.Names) != 3 || len(f.Exes) != 1 {
		t.Errorf("known of news: %+v", f)
	}
	if f := facts[0]; len(f.Jobs) != 1 || len(f.PIDs) != 1 {
		t.Errorf("known of games: %+v", f)
	}
}

// Of a command's answer every line counts, and a document's fields; what was typed is known already.
func TestShown(t *testing.T) {
	for line, what := range map[string]string{
		"job 12 on n1, user x":               "job 12",
		"  job 12  GPU 0  07:35:13  clean":   "job 12",
		`      "job": "12",`:                 "job 12",
		`      "job_id": 12,`:                "job 12",
		`  "pid": 801,`:                      "process 801",
		`  "name": "guest",`:                 "process name guest",
		`  "uid": 9,`:                        "the uid",
		"2026-11-21 07:35:13  12   news  0 ": "the account",
		"  PID 801 (other), 20 MiB":          "process 801",
	} {
		leaks := Shown("first\n"+line+"\nlast\n", []string{"show", "13"}, "games", known())
		if len(leaks) != 1 || !strings.HasPrefix(leaks[0], "games reads "+what+" of news: ") {
			t.Errorf("%q: %q, want %s", line, leaks, what)
		}
	}
	for _, line := range []string{"needs root: job 12 has no report for you", "job 13 on n1", `  "pid": 0,`, "  12 MiB  another user's process", `"uid": 99,`} {
		if leaks := Shown(line+"\n", []string{"show", "12"}, "games", known()); len(leaks) > 0 {
			t.Errorf("%q: %q", line, leaks)
		}
	}
	if known()[1].Jobs[0] != "12" {
		t.Error("what one reader typed is forgotten for all")
	}
}

// An id that Slurm gave to both in turn tells nothing.
func TestSharedJobID(t *testing.T) {
	facts := known()
	facts[0].Jobs = append(facts[0].Jobs, "12")
	if leaks := Leaks("| bookend:   Who:    job 12\n", "games", facts); len(leaks) > 0 {
		t.Errorf("%q", leaks)
	}
}
