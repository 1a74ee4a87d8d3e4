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
	"bookend/test/must"
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

			s.inOrder("the output", s.outputOf(job), "before your job started", "Held by a process that is not yours")
			facts := privacy.Know(s.people(), s.remembered())
			if f := facts[1]; len(f.Jobs) != 1 || !slices.Contains(f.Names, "guest") || len(f.PIDs) == 0 {
				t.Errorf("known of %s: %+v", s.stranger, f)
			}
			leaks := strings.Join(s.leaks(), "\n")
			if (leaks != "") != told {
				t.Errorf("%s", leaks)
			}
			for _, from := range []string{"slurm-" + string(job) + ".out", "report/n1_" + string(job)} {
				if told && !strings.Contains(leaks, from+": "+s.user+" reads job "+string(guest)+" of") {
					t.Errorf("nothing from %s in\n%s", from, leaks)
				}
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
	t.texts = append(t.texts, readable{reader: user, from: "terminal", text: text})
}

// leaks checks every text that a site's users can read: what their jobs wrote, their terminals showed, and Bookend
// reported to them. What its command line answers is admin's story of users.
func (s *story) leaks() (leaks []string) {
	facts := privacy.Know(s.people(), s.remembered())
	check := func(texts []readable, of func(r readable) []string) {
		for _, r := range texts {
			for _, leak := range of(r) {
				leaks = append(leaks, r.from+": "+leak)
			}
		}
	}
	printed := func(r readable) []string { return privacy.Leaks(r.text, r.reader, facts) }
	check(s.terminals.texts, printed)
	for _, name := range s.on.Users {
		check(written(name, s.home(name)), printed)
		check(written(name, filepath.Join(s.on.Run(), "report")),
			func(r readable) []string { return privacy.Shown(r.text, r.reader, facts) })
	}
	return leaks
}

// as is a program that a user runs.
func as(user, program string, args ...string) *exec.Cmd {
	return exec.Command("/usr/bin/setpriv", append([]string{"--reuid", user, "--regid", "nogroup", "--clear-groups",
		program}, args...)...)
}

func (s *story) people() (all []privacy.Person) {
	for _, name := range s.on.Users {
		u := must.Have(user.Lookup(name))(s.t)
		uid, _ := strconv.Atoi(u.Uid)
		all = append(all, privacy.Person{Name: name, UID: uint32(uid), Home: s.home(name)})
	}
	return all
}

// remembered is what root knows of all runs of the site.
func (s *story) remembered() (all []ledger.Run) {
	for _, node := range s.nodes {
		all = append(all, s.allRuns(node)...)
	}
	return all
}

// written is what the files below a folder show a user.
func written(name, dir string) (all []readable) {
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return nil // what is gone or unreadable tells nobody anything
		}
		if text, err := as(name, "/usr/bin/head", "-c", "1000000", path).Output(); err == nil {
			all = append(all, readable{reader: name, from: path, text: string(text)})
		}
		return nil
	})
	return all
}
