package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"bookend/internal/slurm"
	"bookend/test/build"
	"bookend/test/cluster"
	"bookend/test/must"
	"bookend/test/page/inspect"
)

var scratch, programs string

func TestMain(m *testing.M) {
	code := 1
	dir, err := cluster.Scratch()
	if err == nil {
		scratch, programs = dir, filepath.Join(dir, "libexec")
		if err = build.Programs(programs, "", build.Shipped...); err == nil {
			code = m.Run()
		}
		err = errors.Join(err, cluster.Remove(dir))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// made is a folder with the records of a scene and its page.
func made(t *testing.T, s scene) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "copy")
	must.Do(t, s.make(scratch, programs, folder))
	return folder
}

func read(t *testing.T, folder string) (inspect.Page, string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "page.html"))
	must.Do(t, err)
	p := inspect.Read(text)
	if len(p.Problems) > 0 {
		t.Errorf("%q", p.Problems)
	}
	return p, string(text)
}

// bad is a few hours in which the real hooks meet most of what a page shows. Names and users are hostile.
func bad(m *machine) ([]record, error) {
	orphan := []string{"--orphan", "--name", `<b>&"'</b>`}
	return play(m, []job{
		{id: 1, uid: 60000, gpus: []int{0}, from: 0, to: 2, mib: 30000, leaves: orphan, until: 7},
		{id: 2, uid: 60001, gpus: []int{0}, from: 3, to: 5, mib: 9000},
		{id: 3, uid: 60002, gpus: []int{1, 2}, from: 4, to: 6, mib: 9000,
			says: "NVRM: Xid (PCI:%s): 31, pid=4711, name=</title><script>alert(1)</script>, MMU Fault"},
		{id: 4, uid: 60003, gpus: []int{0}, from: 8, to: 9, mib: 9000},
		{id: 5, uid: 60000, gpus: []int{1}, from: 8.2, to: 9.2, mib: 9000, late: true},
		{id: 6, uid: 60000, gpus: []int{2}, from: 9.4, to: 9.6, mib: 9000, blind: true},
		{id: 7, uid: 60001, gpus: []int{3}, from: 10, to: 99, mib: 9000},
	}, 12)
}

// Records that the real hooks wrote become a page that says what they found, where, and what to do, in marks and in the
// table alike; it loads nothing, and no name of a process or a user gets into its markup.
func TestPageOfRealRecords(t *testing.T) {
	folder := made(t, scene{"bad", bad})
	p, text := read(t, folder)
	for _, want := range []string{
		"4 GPUs", "7 jobs", "1 without an end yet", "1 drain", "BKD-ORPHAN", "process outlived its job",
		"BKD-DIRTY", "BKD-XID", "BKD-NORECORD", "BKD-NODRIVER",
		`<b>&"'</b>`, "end of job 1", "drained the node", "Do: ", "20.0 GiB left on the GPU",
		"still there at", "gone by",
		"Job 7\nsince", "still running", "(start not on record)",
		"most memory seen in use: 9.3 GiB", "2 findings",
	} {
		if !strings.Contains(p.Text, want) {
			t.Errorf("lacks %q", want)
		}
	}
	if strings.Contains(text, "<b>&") || strings.Contains(text, "alert(1)</script>") {
		t.Error("a process's name is markup")
	}
	for _, user := range []string{"alice", "bob", "carol", "dave", "60000"} {
		if strings.Contains(text, user) {
			t.Errorf("names %q", user)
		}
	}
	if !slices.Contains(p.Tags, "lineargradient") || strings.Count(text, `class="mark"`) < 5 {
		t.Errorf("%d marks", strings.Count(text, `class="mark"`))
	}
}

// What the command line is told: which card, which time, users by name, where to, and what must not be written over.
func TestCommand(t *testing.T) {
	folder := made(t, scene{"few", func(m *machine) ([]record, error) {
		return play(m, []job{{id: 1, uid: 60000, gpus: []int{0}, from: 0, to: 2, mib: 30000},
			{id: 2, uid: 60001, gpus: []int{1}, from: 4, to: 6, mib: 30000}}, 8)
	}})
	page := filepath.Join(folder, "page.html")
	for _, tt := range []struct {
		args     []string
		exit     int
		has, not string // of the page, or of what is said where there is none
	}{
		{[]string{"--html", "-"}, 0, "Job 2", "alice"},
		{[]string{"--html", "-", "--users"}, 0, "of alice", "zzz"},
		{[]string{"--html", "-", "--gpu", "0"}, 0, "Job 1", "Job 2"},
		{[]string{"--html", "-", "--gpu", "nvidia1"}, 0, "Job 2", "Job 1"},
		{[]string{"--html", "-", "--gpu", "99"}, 3, "no such GPU on record", "<html"},
		{[]string{"--html", "-", "--since", "2026-11-09T09:30"}, 0, "Job 2", "Job 1"},
		{[]string{"--html", "-", "--until", "2026-11-09T09:30"}, 0, "Job 1", "Job 2"},
		{[]string{"--html", "-", "--since", "2027-01-01"}, 0, "Nothing on record in this time", "Job 1"},
		{[]string{"--html", "-", "--since", "yesterday"}, 64, "no moment", "<html"},
		{[]string{"--html", "-", "--node", "n9"}, 3, "no such node", "<html"},
		{nil, 64, "--html FILE", "<html"},
		{[]string{"--html", "-", "--since", "1h", "--until", "2h"}, 64, "--until 2h is before --since 1h", "<html"},
		{[]string{"--html", page}, 1, "is there already", "<html"},
		{[]string{"--html", page, "--force"}, 0, "written: " + page, "<html"},
		{[]string{"--html", folder, "--force"}, 1, "no regular file", "<html"},
	} {
		cmd := exec.Command(filepath.Join(programs, "bookend"), append([]string{"report", "--records", folder},
			tt.args...)...)
		cmd.Env = []string{"TZ=UTC"}
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != tt.exit || !strings.Contains(string(out), tt.has) ||
			strings.Contains(string(out), tt.not) {
			t.Errorf("%q: exit %d, want %d, with %q and without %q: %.600s", tt.args, code, tt.exit, tt.has, tt.not,
				out)
		}
	}
	info, err := os.Stat(page)
	must.Do(t, err)
	if info.Mode() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
}

// A node's own records, with what its health check saw since the last job, are root's to make a page of.
func TestPageOfThisNode(t *testing.T) {
	m, err := newMachine(filepath.Join(scratch, "own"), programs)
	must.Do(t, err)
	defer m.close()
	j := job{id: 1, uid: 60000, gpus: []int{0}, mib: 30000, leaves: []string{"--orphan"}}
	must.Do(t, m.begin(j))
	must.Do(t, m.end(j))
	must.Do(t, m.hook("bookend-healthcheck", slurm.HealthCheck, job{}))
	out := filepath.Join(m.dir, "page.html")
	report := func(uid string) ([]byte, error) {
		cmd := exec.Command("/usr/bin/setpriv", "--reuid", uid, "--clear-groups", filepath.Join(programs, "bookend"),
			"report", "--html", out)
		cmd.Env = []string{"BOOKEND_CONFIG=" + m.config(), "TZ=UTC"}
		return cmd.CombinedOutput()
	}
	if text, err := report("65534"); err == nil || !strings.Contains(string(text), "root") {
		t.Errorf("a user's: %s", text)
	}
	if text, err := report("0"); err != nil {
		t.Fatalf("%s", text)
	}
	p, _ := read(t, m.dir)
	if !strings.Contains(p.Text, "the health check") && !strings.Contains(p.Text, "still there at") {
		t.Errorf("nothing of the health check in\n%s", p.Text)
	}
	if !strings.Contains(p.Text, "health check,") {
		t.Errorf("none of its findings in\n%s", p.Text)
	}
}

// Ninety days of eight cards and thousands of jobs are a page that a browser still opens at once.
func TestCrowd(t *testing.T) {
	week := made(t, scene{"crowded", func(m *machine) ([]record, error) {
		return play(m, append(incidents()[:4], job{id: 9, uid: 60001, gpus: []int{0, 1, 2, 4, 5, 6, 7}, from: 1, to: 2,
			mib: 9000}), hours)
	}})
	folder := filepath.Join(t.TempDir(), "crowd")
	must.Do(t, crowd(week, folder, programs))
	p, text := read(t, folder)
	if len(text) > 8<<20 || !strings.Contains(p.Text, "6000 jobs") ||
		!strings.Contains(p.Text, "too close to be told apart here") || !strings.Contains(p.Text, "gravest of") {
		t.Errorf("%d bytes: %.3000s", len(text), p.Text)
	}
}
