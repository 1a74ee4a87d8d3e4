// Package page makes records by running the real hooks on fake GPUs, and report pages of them: for tests, and for the
// screenshots of "make page-look".
package page

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"bookend/internal/slurm"
	"bookend/test/build"
	"bookend/test/cluster"
	"bookend/test/must"
	"bookend/test/page/inspect"
	"bookend/test/rig"
)

var out = flag.String("out", "", "directory for the records and the page of a week; made again")

var scratch, programs string

func TestMain(m *testing.M) {
	flag.Parse()
	rig.Main(m, func() (dir string, err error) {
		if scratch, err = cluster.Scratch(); err == nil {
			programs = filepath.Join(scratch, "libexec")
			err = build.Programs(programs, "", build.Shipped...)
		}
		return scratch, err
	})
}

// TestWeek makes what pictures are taken of.
func TestWeek(t *testing.T) {
	if *out == "" {
		t.Skip("no -out")
	}
	must.Do(t, os.RemoveAll(*out))
	m := newMachine(t, "week")
	m.play(append(ordinary(), incidents("train")...), *out)
	if text, exit := report(m, "0", "--records", *out, "--html", filepath.Join(*out, "page.html")); exit != 0 {
		t.Error(text)
	}
}

func report(m *machine, uid string, args ...string) (text string, exit int) {
	cmd := exec.Command("/usr/bin/setpriv", append([]string{"--reuid", uid, "--clear-groups",
		filepath.Join(programs, "bookend"), "report"}, args...)...)
	cmd.Env = []string{"BOOKEND_CONFIG=" + m.config(), "TZ=UTC"}
	out, _ := cmd.CombinedOutput()
	return string(out), cmd.ProcessState.ExitCode()
}

// A few hours in which the real hooks meet most of what a page shows become a page that says what they found, where, and
// what to do; it loads nothing, and no name of a process or a user, which are hostile, gets into its markup.
func TestPageOfRealRecords(t *testing.T) {
	m := newMachine(t, "bad")
	copied := filepath.Join(m.dir, "copy")
	m.play(incidents(`</title><b>&"'`), copied)
	text, exit := report(m, "0", "--records", copied, "--html", "-")
	p := inspect.Read([]byte(text))
	for _, want := range []string{
		"3 GPUs", "14 jobs", "1 without an end yet", "drains", "BKD-ORPHAN", "process outlived its job",
		"BKD-DIRTY", "BKD-XID", "BKD-NORECORD", "BKD-NODRIVER", `</title><b>&"'`, "end of job 5002", "drained the node", "Do: ",
		"20.0 GiB left on the GPU", "still there at", "gone by", "Job 5104\nsince", "still running",
		"(start not on record)", "most memory seen in use: 59.6 GiB",
	} {
		must.Not(t, !strings.Contains(p.Text, want), "lacks %q", want)
	}
	must.Not(t, exit != 0 || len(p.Problems) > 0 || strings.Contains(text, "<b>&"), "exit %d, %q", exit, p.Problems)
	for _, user := range []string{"alice", "bob", "carol", "dave", "60000"} {
		must.Not(t, strings.Contains(text, user), "names %q", user)
	}
	t.Run("command", func(t *testing.T) { command(t, m, copied) })
	t.Run("this node", func(t *testing.T) { ownRecords(t, m) })
}

// command tries what the command line is told: which time, users by name, where to, and what must not be written over.
func command(t *testing.T, m *machine, folder string) {
	page := filepath.Join(folder, "page.html")
	for _, tt := range []struct {
		args     []string
		exit     int
		has, not string // of the page, or of what is said where there is none
	}{
		{[]string{"--html", page}, 0, "written: " + page, "<html"},
		{[]string{"--html", "-", "--users"}, 0, "of alice", "zzz"},
		{[]string{"--html", "-", "--since", "2026-11-14"}, 0, "Job 5008", "Job 5002"},
		{[]string{"--html", "-", "--until", "2026-11-10"}, 0, "Job 5001", "Job 5003"},
		{[]string{"--html", "-", "--since", "2027-01-01"}, 0, "Nothing on record in this time", "Job 5"},
		{[]string{"--html", "-", "--since", "yesterday"}, 64, "no moment", "<html"},
		{[]string{"--html", "-", "--node", "n9"}, 3, "no such node", "<html"},
		{nil, 64, "--html FILE", "<html"},
		{[]string{"--html", "-", "--since", "1h", "--until", "2h"}, 64, "--until 2h is before --since 1h", "<html"},
		{[]string{"--html", page}, 1, "is there already", "<html"},
		{[]string{"--html", page, "--force"}, 0, "written: " + page, "<html"},
		{[]string{"--html", folder, "--force"}, 1, "no regular file", "<html"},
	} {
		out, exit := report(m, "0", append([]string{"--records", folder}, tt.args...)...)
		must.Not(t, exit != tt.exit || !strings.Contains(out, tt.has) || strings.Contains(out, tt.not),
			"%q: exit %d, want %d, with %q and without %q: %.600s", tt.args, exit, tt.exit, tt.has, tt.not, out)
	}
	if info, err := os.Stat(page); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, mode %v", err, info.Mode())
	}
}

// ownRecords tries a node's own records, with what its health check saw since the last job: root's to make a page of.
func ownRecords(t *testing.T, m *machine) {
	m.hook("bookend-healthcheck", slurm.HealthCheck, job{})
	if text, exit := report(m, "65534", "--html", "-"); exit == 0 || !strings.Contains(text, "root") {
		t.Errorf("a user's: exit %d, %s", exit, text)
	}
	text, exit := report(m, "0", "--html", "-")
	p := inspect.Read([]byte(text))
	must.Not(t, exit != 0 || len(p.Problems) > 0 || !strings.Contains(p.Text, "health check,"),
		"exit %d, %q, or none of the health check's findings in\n%s", exit, p.Problems, p.Text)
}
