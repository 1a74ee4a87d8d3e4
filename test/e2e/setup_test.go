package e2e

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"bookend/internal/slurm"
	"bookend/test/cluster"
	"bookend/test/must"
	"bookend/test/site"
)

// setUp is what a site has before "bookend setup", and what proves that it works afterwards.
type setUp struct {
	since slurm.Version // the first Slurm that has this; none: all
	// settings are what slurmctld must then say of itself where it is not plain, as regular expressions; %s is the
	// directory of the scripts.
	settings map[string]string
	story    func(*story)
	site     site.Options
}

// plain is what slurmctld says of a site that had nothing.
var plain = map[string]string{
	"Prolog": `%s/prolog$`, "Epilog": `%s/epilog$`, "PrologFlags": `^Alloc$`,
	"TaskProlog": `%s/task-prolog$`, "TaskEpilog": `%s/task-epilog$`, "PrologEpilogTimeout": `^60$`,
	"HealthCheckProgram": `%s/healthcheck$`, "HealthCheckInterval": `^300 sec$`, "HealthCheckNodeState": `CYCLE`,
}

const absent = `^\(null\)$`

var setUps = map[string]setUp{
	"nothing": {story: plainSetup, site: site.Options{Mode: "enforce"}},
	"own Prolog and Epilog": {story: ownHooks, site: site.Options{Mode: "enforce",
		Conf: []string{"Prolog=OWN/prolog", "Epilog=OWN/epilog"}},
		settings: map[string]string{"Prolog": `prolog(\.d/\*\.sh)?$`, "Epilog": `epilog(\.d/\*\.sh)?$`,
			"PrologEpilogTimeout": `.`}},
	// Before 24.05 setup says which link has Slurm's one pattern run Bookend's script too, and as the last.
	"patterns": {story: patternHooks, site: site.Options{Conf: []string{"Prolog=OWN/prolog-*", "Epilog=OWN/epilog-*"}},
		settings: map[string]string{"Prolog": `.`, "Epilog": `.`, "PrologEpilogTimeout": `.`}},
	"own task hooks": {story: ownTaskHooks,
		site: site.Options{Conf: []string{"TaskProlog=OWN/task-prolog", "TaskEpilog=OWN/task-epilog"}}},
	"NHC": {story: tells(bracketed), site: site.Options{Conf: []string{"HealthCheckProgram=/site/nhc"}},
		settings: map[string]string{"HealthCheckProgram": `^/site/nhc$`, "HealthCheckInterval": `^0 sec$`,
			"HealthCheckNodeState": `^ANY$`}},
	"adopted logins": {story: containedJob,
		site:     site.Options{Track: cluster.CgroupV1, Conf: []string{"PrologFlags=Contain"}},
		settings: map[string]string{"PrologFlags": `^Alloc,Contain$`}},
	"RunInJob": {since: slurm.SeveralHooks, story: runInJob,
		site:     site.Options{Mode: "enforce", Track: cluster.CgroupV1, Conf: []string{"PrologFlags=RunInJob"}},
		settings: map[string]string{"PrologFlags": `RunInJob`}},
	"configless": {since: slurm.ConfiglessHooks, story: sentByController,
		site: site.Options{Conf: []string{cluster.Configless}},
		settings: map[string]string{"Prolog": `(^|/)bookend-prolog\.sh$`, "Epilog": `(^|/)bookend-epilog\.sh$`,
			"TaskProlog": `(null|bookend-task-prolog.sh)`, "TaskEpilog": `(null|bookend-task-epilog.sh)`,
			"HealthCheckProgram": absent, "HealthCheckInterval": `^0 sec$`, "HealthCheckNodeState": `^ANY$`}},
	"pyxis": {story: tells(reportsTogether), site: site.Options{Plugins: "required /usr/lib/slurm/spank_pyxis.so\n"},
		settings: map[string]string{"TaskProlog": absent, "TaskEpilog": absent}},
	"pyxis and an own task hook": {story: tells(reportsTogether), site: site.Options{
		Plugins: "required /usr/lib/slurm/spank_pyxis.so\n", Conf: []string{"TaskProlog=OWN/task-prolog"}},
		settings: map[string]string{"TaskProlog": absent, "TaskEpilog": absent}},
}

func tells(a tale) func(*story) { return func(s *story) { s.happens(a) } }

// Whatever a site has before, "bookend setup" and one Include line are enough: Slurm has loaded the lines, and a job's ends
// are examined.
func TestSetup(t *testing.T) {
	t.Parallel()
	for name, p := range setUps {
		if !version(t).Has(p.since) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			p.site.Setup, p.site.Nodes = true, []string{"n1"}
			s := given(t, p.site)
			settings := maps.Clone(plain)
			maps.Copy(settings, p.settings)
			s.slurmSays(settings)
			p.story(s)
		})
	}
}

// slurmConfig is what scontrol show config says.
func (s *story) slurmConfig() map[string]string {
	cmd := must.Have(s.on.Command("", "scontrol", "show", "config"))(s.t)
	out := must.Have(cmd.Output())(s.t)
	has := map[string]string{}
	for line := range strings.Lines(string(out)) {
		key, value, _ := strings.Cut(line, "=")
		name, _, _ := strings.Cut(strings.TrimSpace(key), "[") // since 24.05 each Prolog has a number
		has[name] = strings.TrimSpace(value)
	}
	return has
}

func (s *story) slurmSays(want map[string]string) {
	has := s.slurmConfig()
	for key, form := range want {
		form = strings.ReplaceAll(form, "%s", regexp.QuoteMeta(strings.TrimSuffix(s.on.Beside(""), "/")))
		must.Not(s.t, !regexp.MustCompile(form).MatchString(has[key]), "Slurm has %s=%q, want %q", key, has[key], form)
	}
}

func plainSetup(s *story) {
	// slurmd runs the health check when it starts, before any job. What it saw is in the metrics.
	s.until("the health check is counted", func() bool {
		data, err := os.ReadFile(s.on.Metrics("n1"))
		return err == nil && strings.Contains(string(data),
			`bookend_hook_runs_total{hook="health_check",action="ignore"} 1`)
	})
	s.tells(bracketed, drains)
	for _, program := range []string{"bookend-prolog", "bookend-epilog"} {
		defer s.takesAway(program)()
	}
	s.tells(tale{title: "a node without the package takes jobs and says nothing", script: "echo done",
		reads: []string{"done"}, silent: true})
}

// takesAway removes a program until it is put back.
func (s *story) takesAway(program string) (putBack func()) {
	path := s.on.Program(program)
	must.Do(s.t, os.Rename(path, path+".away"))
	return func() {
		must.Do(s.t, os.Rename(path+".away", path))
	}
}

func (s *story) hasOwn(name, text string) {
	file := s.on.Own(name)
	must.Do(s.t, os.WriteFile(file, []byte("#!/bin/sh\n"+text+"\n"), 0o755))
	s.t.Cleanup(func() { os.Remove(file) })
}

func ownHooks(s *story) {
	s.tell("both run", func(s *story) {
		s.hasOwn("prolog", "exit 0")
		s.hasOwn("epilog", "exit 0")
		s.happens(tale{script: "echo done", hooks: []string{"prolog 0", "prolog 0", "epilog 0", "epilog 0"},
			show: bracketed.show})
	})
	s.tell("the site's own drains as before", func(s *story) {
		s.hasOwn("prolog", "exit 0")
		s.hasOwn("epilog", "exit 3")
		s.runs(s.user, "echo done", oneGPU)
		s.nodeIsDrained("n1", "Epilog error")
	})
}

// patternHooks shows that Bookend's hooks come last: what fails before keeps them from running.
func patternHooks(s *story) {
	s.tell("both run", func(s *story) {
		s.hasOwn("prolog-50", "exit 0")
		s.hasOwn("epilog-50", "exit 0")
		s.happens(tale{script: "echo done", hooks: []string{"prolog 0", "prolog 0", "epilog 0", "epilog 0"},
			show: bracketed.show})
	})
	s.tell("Bookend's is the last", func(s *story) {
		s.hasOwn("prolog-50", "exit 0")
		s.hasOwn("epilog-50", "exit 3")
		s.runs(s.user, "echo done", oneGPU)
		s.nodeIsDrained("n1", "Epilog error")
		s.hooksRan("n1", "prolog 0", "prolog 0", "epilog 3")
	})
}

func ownTaskHooks(s *story) {
	s.tell("the site's own keep their voice", func(s *story) {
		s.hasOwn("task-prolog", `echo print the site says hello; echo export SITE=kept; printf "print no line end"`)
		s.hasOwn("task-epilog", `echo the site says goodbye >&2`)
		job := s.runs(s.user, "echo done $SITE", oneGPU)
		s.jobIs(job, "COMPLETED")
		s.reads(strings.ReplaceAll(s.outputOf(job), "\x00", "\n"),
			"the site says hello", "no line end", "done kept", "the site says goodbye", "", leftClean)
	})
	s.tell("and their exit codes", func(s *story) {
		s.hasOwn("task-prolog", "exit 7")
		s.happens(tale{script: "echo never", state: "FAILED", code: "7:0",
			has: []string{"TaskProlog failed status=7"}})
	})
}

// containedJob has the step that logins are adopted into, and ends all the same.
func containedJob(s *story) {
	job := s.starts(s.user, "echo ready; while [ ! -e go ]; do sleep 0.1; done", oneGPU)
	steps := must.Have(s.on.Command("", "scontrol", "listpids", string(job), "n1"))(s.t)
	if out, err := steps.CombinedOutput(); err != nil || !strings.Contains(string(out), "extern") {
		s.t.Errorf("job %s has no extern step: %v\n%s", job, err, out)
	}
	s.touches(s.user, "go")
	s.ends(job)

	s.hooksRan("n1", "prolog 0", "epilog 0")
	s.userReads(job, "ready", "", leftClean)
	s.showSays("n1", job, "start:", "clean", "end:", "clean")
}

// sentByController is a job on a node that has no file of Slurm's but what slurmctld sent: the scripts, not the
// programs.
func sentByController(s *story) {
	s.happens(tale{script: "echo done", args: []string{oneGPU, "--output=out-%j.txt"},
		reads: []string{"done", "", leftClean}})
	sent, err := filepath.Glob(filepath.Join(s.on.Dir, "slurm/spool/n1/conf-cache/*"))
	if text := strings.Join(sent, " "); err != nil || !strings.Contains(text, "/bookend-prolog.sh") ||
		!strings.Contains(text, "/bookend.conf") {
		s.t.Errorf("the node was sent %q, %v; want the hooks and the lines", sent, err)
	}
}
