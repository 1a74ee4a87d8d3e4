package e2e

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"bookend/internal/doctor"
	"bookend/test/cluster"
	"bookend/test/site"
)

// snippet is a file of deploy/slurm and what proves that it does what it says.
type snippet struct {
	file  string
	since [2]int // the first Slurm that it is for; none: all
	// settings are what slurmctld must then say of itself where it is not plain, as regular expressions; %s is the folder of
	// the hooks.
	settings map[string]string
	story    func(*story)
	site     site.Options
}

// plain is what all but some lines of all but some snippets say.
var plain = map[string]string{
	"Prolog": `%s/(prolog|epilog)$`, "Epilog": `%s/(prolog|epilog)$`, "PrologFlags": `^Alloc$`,
	"TaskProlog": `%s/task-(prolog|epilog)$`, "TaskEpilog": `%s/task-(prolog|epilog)$`, "PrologEpilogTimeout": `^60$`,
	"HealthCheckProgram": `%s/healthcheck$`, "HealthCheckInterval": `^300 sec$`, "HealthCheckNodeState": `CYCLE`,
}

const absent = `^\(null\)$`

var snippets = []snippet{
	{file: "bookend.conf", story: plainSnippet, site: site.Options{Mode: "enforce"}},
	{file: "bookend-glob.conf", story: globSnippet, site: site.Options{Mode: "enforce"},
		settings: map[string]string{"Prolog": `/prolog\.d/\*\.sh$`, "Epilog": `/epilog\.d/\*\.sh$`}},
	{file: "bookend-own-task-hooks.conf", story: ownTaskHooks,
		settings: map[string]string{"TaskProlog": `%s/task-prolog-beside-own$`, "TaskEpilog": `%s/task-epilog-beside-own$`}},
	{file: "bookend-own-health.conf", story: tells(bracketed), site: site.Options{Conf: []string{"HealthCheckProgram=/site/nhc"}},
		settings: map[string]string{"HealthCheckProgram": `^/site/nhc$`, "HealthCheckInterval": `^0 sec$`, "HealthCheckNodeState": `^ANY$`}},
	{file: "bookend-adopt.conf", story: containedJob, site: site.Options{Track: cluster.CgroupV1},
		settings: map[string]string{"PrologFlags": `^Alloc,Contain$`}},
	{file: "bookend-runinjob.conf", since: [2]int{24, 5}, story: runInJob, site: site.Options{Mode: "enforce", Track: cluster.CgroupV1},
		settings: map[string]string{"PrologFlags": `RunInJob`}},
	{file: "bookend-configless.conf", since: [2]int{23, 11}, story: sentByController,
		settings: map[string]string{"Prolog": `(^|/)bookend-prolog\.sh$`, "Epilog": `(^|/)bookend-epilog\.sh$`, "TaskProlog": absent,
			"TaskEpilog": absent, "HealthCheckProgram": absent, "HealthCheckInterval": `^0 sec$`, "HealthCheckNodeState": `^ANY$`}},
	{file: "bookend-pyxis.conf", story: tells(reportsTogether), settings: map[string]string{"TaskProlog": absent, "TaskEpilog": absent}},
}

func tells(a tale) func(*story) { return func(s *story) { s.happens(a) } }

// Each snippet of deploy/slurm, by an Include line as the only word of Bookend in slurm.conf, is what Slurm says that it has
// loaded, and a job's ends are seen under it.
func TestSnippets(t *testing.T) {
	t.Parallel()
	for _, p := range snippets {
		if !version(t).Since(p.since[0], p.since[1]) {
			continue
		}
		t.Run(p.file, func(t *testing.T) {
			p.site.Snippet, p.site.Deploy, p.site.Nodes = p.file, "../../deploy/slurm", []string{"n1"}
			s := given(t, p.site)
			settings := maps.Clone(plain)
			maps.Copy(settings, p.settings)
			s.slurmSays(settings)
			p.story(s)
		})
	}
}

// No snippet is without its story.
func TestEverySnippetHasAStory(t *testing.T) {
	files, err := filepath.Glob("../../deploy/slurm/*.conf")
	if err != nil || len(files) < 8 {
		t.Fatalf("%q, %v", files, err)
	}
	told := map[string]bool{}
	for _, p := range snippets {
		told[p.file] = true
	}
	for _, file := range files {
		if name := filepath.Base(file); !told[name] {
			t.Errorf("nothing loads %s", name)
		}
	}
}

// slurmConfig is what scontrol show config says.
func (s *story) slurmConfig() map[string]string {
	s.t.Helper()
	cmd, err := s.on.Command("", "scontrol", "show", "config")
	if err != nil {
		s.t.Fatal(err)
	}
	out, err := cmd.Output()
	if err != nil {
		s.t.Fatal(err)
	}
	has := map[string]string{}
	for line := range strings.Lines(string(out)) {
		key, value, _ := strings.Cut(line, "=")
		name, _, _ := strings.Cut(strings.TrimSpace(key), "[") // since 24.05 each Prolog has a number
		has[name] = strings.TrimSpace(value)
	}
	return has
}

// slurmSays compares with it.
func (s *story) slurmSays(want map[string]string) {
	s.t.Helper()
	has := s.slurmConfig()
	for key, form := range want {
		form = strings.ReplaceAll(form, "%s", regexp.QuoteMeta(s.on.Own("hooks")))
		value, one := has[key]
		if !one {
			value = has[key+"[0]"] // Prolog and Epilog are lists since 24.05
		}
		if !regexp.MustCompile(form).MatchString(value) {
			s.t.Errorf("Slurm has %s=%q, want %q", key, value, form)
		}
	}
}

func plainSnippet(s *story) {
	// slurmd runs the health check when it starts, before any job. What it saw is in the metrics.
	s.until("the health check is counted", func() bool {
		data, err := os.ReadFile(s.on.Metrics("n1"))
		return err == nil && strings.Contains(string(data), `bookend_hook_runs_total{hook="health_check",action="ignore"} 1`)
	})
	s.tells(bracketed, drains, tale{title: "a job without GPUs leaves no trace", script: "echo done", args: []string{noGPU}, silent: true})
	for _, program := range []string{"bookend-prolog", "bookend-epilog"} {
		defer s.takesAway(program)()
	}
	s.tells(tale{title: "a node without the package takes jobs and says nothing", script: "echo done", reads: []string{"done"}, silent: true})
}

// takesAway removes a program until it is put back.
func (s *story) takesAway(program string) (putBack func()) {
	s.t.Helper()
	path := s.on.Program(program)
	if err := os.Rename(path, path+".away"); err != nil {
		s.t.Fatal(err)
	}
	return func() {
		if err := os.Rename(path+".away", path); err != nil {
			s.t.Error(err)
		}
	}
}

// hasOwn writes a script of the site's own where a snippet looks for it.
func (s *story) hasOwn(name, text string) {
	s.t.Helper()
	file := s.on.Own(name)
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { os.Remove(file) })
}

func globSnippet(s *story) {
	s.tells(bracketed)
	s.tell("after the site's own", func(s *story) {
		s.hasOwn("prolog.d/50-own.sh", "exit 0")
		s.hasOwn("epilog.d/50-own.sh", "exit 0")
		s.happens(tale{script: "echo done", hooks: []string{"prolog 0", "prolog 0", "epilog 0", "epilog 0"}, show: bracketed.show})
	})
	s.tell("a folder among them drains, as the doctor says", func(s *story) {
		folder := s.on.Own("prolog.d/old.sh")
		if err := os.Mkdir(folder, 0o755); err != nil {
			s.t.Fatal(err)
		}
		s.t.Cleanup(func() { os.Remove(folder) })
		if r := s.doctorSays("n1")["slurm-prolog"]; r.Level != doctor.Wrong || r.Path != folder {
			s.t.Errorf("the doctor says %+v, want %s wrong", r, folder)
		}
		job := s.submits(s.user, "echo never", oneGPU)
		s.until("the node drains", func() bool {
			n, err := s.on.Node("n1")
			return err == nil && n.Has("DRAIN")
		})
		s.nodeIsDrained("n1", "Prolog error")
		s.cancels(job)
	})
	s.tell("and not at all where the site's own fails", func(s *story) {
		s.hasOwn("epilog.d/50-own.sh", "exit 3")
		job := s.runs(s.user, "echo done", oneGPU)
		s.hooksRan("n1", "prolog 0", "epilog 3")
		s.nodeIsDrained("n1", "Epilog error")
		s.showSays("n1", job, "start:", "clean")
	})
}

func ownTaskHooks(s *story) {
	s.tell("the site's own keep their voice", func(s *story) {
		s.hasOwn("task-prolog", `echo print the site says hello; echo export SITE=kept; printf "print no line end"`)
		s.hasOwn("task-epilog", `echo the site says goodbye >&2`)
		job := s.runs(s.user, "echo done $SITE", oneGPU)
		s.jobIs(job, "COMPLETED")
		s.reads(strings.ReplaceAll(s.outputOf(job), "\x00", "\n"),
			gotClean, "the site says hello", "no line end", "done kept", "the site says goodbye", "", leftClean)
	})
	s.tell("and their exit codes", func(s *story) {
		s.hasOwn("task-prolog", "exit 7")
		s.happens(tale{script: "echo never", state: "FAILED", code: "7:0", has: []string{gotClean, "TaskProlog failed status=7"}})
	})
	s.tells(tale{title: "where there are none nothing is missed", script: "echo done", reads: []string{gotClean, "done", "", leftClean}})
	s.tell("where Bookend is absent the site's own run", func(s *story) {
		s.hasOwn("task-prolog", "echo print alone")
		defer s.takesAway("bookend-prolog")()
		s.userReads(s.runs(s.user, "echo done", noGPU), "alone", "done")
	})
}

// containedJob has the step that logins are adopted into, and ends all the same.
func containedJob(s *story) {
	job := s.starts(s.user, "echo ready; while [ ! -e go ]; do sleep 0.1; done", oneGPU)
	steps, err := s.on.Command("", "scontrol", "listpids", string(job), "n1")
	if err != nil {
		s.t.Fatal(err)
	}
	if out, err := steps.CombinedOutput(); err != nil || !strings.Contains(string(out), "extern") {
		s.t.Errorf("job %s has no extern step: %v\n%s", job, err, out)
	}
	s.touches(s.user, "go")
	s.ends(job)

	s.hooksRan("n1", "prolog 0", "epilog 0")
	s.userReads(job, gotClean, "ready", "", leftClean)
	s.showSays("n1", job, "start:", "clean", "end:", "clean")
}

// sentByController is a job on a node that has no file of Slurm's but what slurmctld sent: the scripts, not the programs. There
// are no task hooks: both reports come at the end.
func sentByController(s *story) {
	s.happens(tale{script: "echo done", args: []string{oneGPU, "--output=out-%j.txt"}, reads: []string{"done", "", gotClean, leftClean}})
	sent, err := filepath.Glob(filepath.Join(s.on.Dir, "slurm/spool/n1/conf-cache/*"))
	if text := strings.Join(sent, " "); err != nil || !strings.Contains(text, "/bookend-prolog.sh") || !strings.Contains(text, "/bookend-configless.conf") {
		s.t.Errorf("the node was sent %q, %v; want the hooks and the snippet", sent, err)
	}
}
