package e2e

import (
	"strings"
	"testing"
	"time"

	"bookend/test/cluster"
	"bookend/test/must"
	"bookend/test/site"
)

// patience bounds every wait; nothing here takes a thirtieth of it on an idle machine.
const patience = 3 * time.Minute

// patiently are times that a busy machine does not reach, for stories that are not about them. There samples are far
// apart, and what is at rest must be seen to be; what is seen so ends the watch. asShipped keeps all that ship.
const (
	patiently = `
settle:
  prolog: {max: 8s, stable: 500ms}
  epilog: {max: 12s, stable: 500ms}
deadlines:
  prolog: {total: 45s, driver: 25s, processes: 10s, probe: 8s, records: 15s}
  epilog: {total: 55s, driver: 20s, processes: 10s, probe: 8s, job_log: 5s, records: 10s}
  health_check: {total: 55s, driver: 15s, processes: 5s, slurm: 15s, records: 15s}
  task: 10s
`
	asShipped = "deadlines: {}\n"
)

// story is one scenario on a site. Its methods are the steps.
type story struct {
	t              must.Steps
	on             *site.Site
	nodes          []string
	track          cluster.Track
	user, stranger string         // the two people of every story
	hooks          map[string]int // hooks in each node's log when the story began
	logged         int            // lines in Bookend's log then
}

// given stands up a site for one story, or for several by tell.
func given(t *testing.T, o site.Options) *story {
	t.Helper()
	o.Programs = programs
	if o.Track == "" {
		o.Track = track
	}
	if len(o.Nodes) == 0 {
		o.Nodes = []string{"n1"}
	}
	o.Config = timed(o.Config)
	on := must.Have(site.Up(o))(t)
	s := &story{t: must.Steps{T: t}, on: on, nodes: o.Nodes, track: o.Track, user: on.Users[0], stranger: on.Users[1]}
	t.Cleanup(func() {
		s.nothingIsLeft()
		if t.Failed() {
			log, _ := on.Log()
			t.Logf("Bookend's log:\n%s\n%s", log, on.Logs(12))
		}
		must.Do(t, on.Down())
	})
	if s.track != cluster.LinuxProc {
		s.letsOut()
	}
	s.begin()
	return s
}

// timed adds patient times to sections of a configuration that have none.
func timed(sections string) string {
	if strings.Contains(sections, "deadlines:") {
		return sections
	}
	return patiently + sections
}

// soonAgain shortens the time until a job may start a second time: its first credential must be worth nothing by then.
const soonAgain = "AuthInfo=SOCKET,cred_expire=5"

// tell runs one of several stories of a site. Each leaves the site as it was: nodes up, cards free.
func (s *story) tell(title string, story func(*story)) {
	s.t.Run(title, func(t *testing.T) {
		next := *s
		next.t = must.Steps{T: t}
		next.begin()
		t.Cleanup(func() { next.tidy() })
		story(&next)
		next.nothingIsLeft()
	})
}

func (s *story) begin() {
	s.hooks = map[string]int{}
	for _, node := range s.nodes {
		s.hooks[node] = len(s.hookRuns(node))
	}
	s.logged = len(s.logLines())
}

// tidy ends what jobs left on the cards, and puts drained nodes back to work.
func (s *story) tidy() {
	if err := s.on.EndLeftovers(); err != nil {
		s.t.Error(err)
	}
	for _, node := range s.nodes {
		s.cardsAreFree(node)
		if n, err := s.on.Node(node); err == nil && n.Has("DRAIN") {
			s.adminResumes(node)
		}
	}
}
