package e2e

import (
	"io/fs"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"bookend/internal/ledger"
	"bookend/test/cluster"
	"bookend/test/privacy"
	"bookend/test/site"
)

// Another job's owner, job, process and command are nobody's business, and the scan that every story of this suite ends
// with would notice: where the site lets job ids be named, it does.
func TestPrivacy(t *testing.T) {
	t.Parallel()
	for setting, told := range map[string]bool{"own": false, "jobs": true} {
		t.Run(setting, func(t *testing.T) {
			s := given(t, site.Options{Track: cluster.LinuxProc, Config: "job_log: {privacy: " + setting + "}\n"})
			guest := s.starts(s.stranger, "{cuda} alloc --mib 2000 --orphan --name guest\necho ready\n"+awaits, oneGPU)
			s.touches(s.stranger, "done")
			s.ends(guest)
			job := s.runs(s.user, "echo working", oneGPU)

			s.inOrder("the output", s.outputOf(job), "was not clean when your job got it", "held by a process that is not yours")
			facts := privacy.Know(s.people(), s.remembered())
			if f := facts[1]; len(f.Jobs) != 1 || !slices.Contains(f.Names, "guest") || len(f.PIDs) == 0 {
				t.Errorf("known of %s: %+v", s.stranger, f)
			}
			if leaks := s.leaks(); (len(leaks) > 0) != told || told && !strings.Contains(leaks[0], "reads job "+string(guest)+" of") {
				t.Errorf("%q", leaks)
			}
			s.adminKills(s.pid(guest), "n1")
		})
	}
}

// readable is a text that a user can read.
type readable struct{ reader, from, text string }

// terminals are what the users of a site saw on theirs.
type terminals struct {
	mu    sync.Mutex
	texts []readable
}

func (t *terminals) showed(user, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.texts = append(t.texts, readable{user, "terminal", text})
}

// nobodyReadsOfOthers checks, when a site is taken down, every text that its users can read: what their jobs wrote, their
// terminals showed and Bookend reported to them.
func (s *story) nobodyReadsOfOthers() {
	s.t.Helper()
	for _, leak := range s.leaks() {
		s.t.Error(leak)
	}
}

func (s *story) leaks() (leaks []string) {
	s.t.Helper()
	facts := privacy.Know(s.people(), s.remembered())
	for _, r := range append(s.written(), s.terminals.texts...) {
		for _, leak := range privacy.Leaks(r.text, r.reader, facts) {
			leaks = append(leaks, r.from+": "+leak)
		}
	}
	return leaks
}

func (s *story) people() (all []privacy.Person) {
	s.t.Helper()
	for _, name := range s.on.Users {
		u, err := user.Lookup(name)
		if err != nil {
			s.t.Fatal(err)
		}
		uid, _ := strconv.Atoi(u.Uid)
		all = append(all, privacy.Person{Name: name, UID: uint32(uid), Home: s.home(name)})
	}
	return all
}

// remembered is what root knows of all runs of the site.
func (s *story) remembered() (all []ledger.Run) {
	s.t.Helper()
	for _, node := range s.nodes {
		runs, _ := s.allRuns(node)
		all = append(all, runs...)
	}
	return all
}

// written are the files in users' folders, and the reports that Bookend lets them read.
func (s *story) written() (all []readable) {
	s.t.Helper()
	for _, name := range s.on.Users {
		for _, dir := range []string{s.home(name), filepath.Join(s.on.Run(), "report")} {
			_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
				if err != nil || !e.Type().IsRegular() {
					return nil // what is gone or unreadable tells nobody anything
				}
				if text, ok := readAs(name, path); ok {
					all = append(all, readable{name, path, text})
				}
				return nil
			})
		}
	}
	return all
}

// readAs is what a file shows a user.
func readAs(user, path string) (string, bool) {
	cmd := exec.Command("/usr/bin/setpriv", "--reuid", user, "--regid", "nogroup", "--clear-groups", "/usr/bin/head", "-c", "1000000", path)
	text, err := cmd.Output()
	return string(text), err == nil
}
