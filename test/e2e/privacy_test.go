package e2e

import (
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
			for _, from := range []string{"slurm-" + string(job) + ".out", "jobs/n1_" + string(job)} {
				if told && !strings.Contains(leaks, from+": "+s.user+" reads job "+string(guest)+" of") {
					t.Errorf("nothing from %s in\n%s", from, leaks)
				}
			}
			s.adminKills(s.pid(guest), "n1")
		})
	}
}

// terminals are what the users of a site saw on theirs.
type terminals struct {
	mu    sync.Mutex
	texts map[string]string
}

func (t *terminals) showed(user, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.texts[user] += text + "\n"
}

// leaks checks every text that a site's users can read: what their jobs wrote, their terminals showed, and Bookend
// reported to them. What its command line answers is admin's story of users.
func (s *story) leaks() (leaks []string) {
	facts := privacy.Know(s.people(), s.remembered())
	add := func(from string, found []string) {
		for _, leak := range found {
			leaks = append(leaks, from+": "+leak)
		}
	}
	for _, p := range s.people() {
		add("terminal", privacy.Leaks(s.terminals.texts[p.Name], p.Name, facts))
		for path, text := range privacy.Readable(p.UID, p.Home) {
			add(path, privacy.Leaks(text, p.Name, facts))
		}
		for path, text := range privacy.Readable(p.UID, filepath.Join(s.on.Run(), "report")) {
			add(path, privacy.Shown(text, p.Name, facts))
		}
	}
	return leaks
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
