package e2e

import (
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
	// settings are what slurmctld must then say of itself, as regular expressions; %s is the folder of the hooks.
	settings map[string]string
	story    func(*story)
	site     site.Options
}

const hooks, taskHooks = `%s/(prolog|epilog)$`, `%s/task-(prolog|epilog)$`

// plain is what all but some lines of all but some snippets say.
func plain(other map[string]string) map[string]string {
	all := map[string]string{
		"Prolog": hooks, "Epilog": hooks, "TaskProlog": taskHooks, "TaskEpilog": taskHooks, "PrologFlags": `^Alloc$`,
		"PrologEpilogTimeout": `^60$`, "HealthCheckProgram": `%s/healthcheck$`, "HealthCheckInterval": `^300 sec$`,
		"HealthCheckNodeState": `CYCLE`,
	}
	for key, value := range other {
		all[key] = value
	}
	return all
}

var snippets = []snippet{
	{"bookend.conf", [2]int{}, plain(nil), plainSnippet, site.Options{Mode: "enforce"}},
	{"bookend-glob.conf", [2]int{}, plain(map[string]string{"Prolog": `/prolog\.d/\*\.sh$`, "Epilog": `/epilog\.d/\*\.sh$`}), globSnippet, site.Options{Mode: "enforce"}},
	{"bookend-own-task-hooks.conf", [2]int{}, plain(map[string]string{"TaskProlog": `%s/task-prolog-beside-own$`, "TaskEpilog": `%s/task-epilog-beside-own$`}),
		ownTaskHooks, site.Options{}},
	{"bookend-own-health.conf", [2]int{}, plain(map[string]string{"HealthCheckProgram": `^/site/nhc$`, "HealthCheckInterval": `^0 sec$`, "HealthCheckNodeState": `^ANY$`}), bracketed,
		site.Options{Conf: []string{"HealthCheckProgram=/site/nhc"}}},
	{"bookend-adopt.conf", [2]int{}, plain(map[string]string{"PrologFlags": `^Alloc,Contain$`}), containedJob, site.Options{Track: cluster.CgroupV1}},
	{"bookend-runinjob.conf", [2]int{24, 5}, plain(map[string]string{"PrologFlags": `RunInJob`}), runInJob, site.Options{Mode: "enforce", Track: cluster.CgroupV1}},
	{"bookend-configless.conf", [2]int{23, 11}, plain(map[string]string{"Prolog": `(^|/)bookend-prolog\.sh$`, "Epilog": `(^|/)bookend-epilog\.sh$`, "TaskProlog": `^\(null\)$`, "TaskEpilog": `^\(null\)$`,
		"HealthCheckProgram": `^\(null\)$`, "HealthCheckInterval": `^0 sec$`, "HealthCheckNodeState": `^ANY$`}), sentByController, site.Options{}},
	{"bookend-pyxis.conf", [2]int{}, plain(map[string]string{"TaskProlog": `^\(null\)$`, "TaskEpilog": `^\(null\)$`}), reportsTogether, site.Options{}},
}

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
			s.slurmSays(p.settings)
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
	s.tell("slurmd has run the health check", healthChecked)
	s.tell("a clean job is seen", bracketed)
	s.tell("a job without GPUs leaves no trace", jobWithoutGPUs)
	s.tell("a node without the package takes jobs and says nothing", packageAbsent)
	s.tell("a hook's exit code is the hook's own", snippetOrphanDrains)
}

// healthChecked: slurmd runs it when it starts, before any job. What it saw is in the metrics.
func healthChecked(s *story) {
	s.until("the health check is counted", func() bool {
		data, err := os.ReadFile(s.on.Metrics("n1"))
		return err == nil && strings.Contains(string(data), `bookend_hook_runs_total{hook="health_check",action="ignore"} 1`)
	})
}

// bracketed is a job whose two ends are seen and told.
func bracketed(s *story) {
	job := s.runs(s.user, "{cuda} alloc --mib 2000 --sleep 0\necho done", oneGPU)

	s.jobIs(job, "COMPLETED")
	s.nodeIsUp("n1")
	s.hooksRan("n1", "prolog 0", "epilog 0")
	s.userReads(job, gotClean, "done", "", leftClean)
	s.showSays("n1", job, "start:", "clean", "end:", "clean")
}

func packageAbsent(s *story) {
	for _, program := range []string{"bookend-prolog", "bookend-epilog"} {
		if err := os.Rename(s.on.Program(program), s.on.Program(program)+".away"); err != nil {
			s.t.Fatal(err)
		}
	}
	job := s.runs(s.user, "echo done", oneGPU)
	for _, program := range []string{"bookend-prolog", "bookend-epilog"} {
		if err := os.Rename(s.on.Program(program)+".away", s.on.Program(program)); err != nil {
			s.t.Fatal(err)
		}
	}

	s.jobIs(job, "COMPLETED")
	s.hooksRan("n1", "prolog 0", "epilog 0")
	s.userReads(job, "done")
	s.nothingIsRecorded("n1", job)
}

func snippetOrphanDrains(s *story) {
	job := s.runs(s.user, leavesOrphan, oneGPU)

	s.hooksRan("n1", "prolog 0", "epilog 10")
	s.nodeIsDrained("n1", "Epilog error")
	s.showSays("n1", job, "DRAIN for BKD-ORPHAN (exit 10)")
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
	s.tell("alone", bracketed)
	s.tell("after the site's own", func(s *story) {
		s.hasOwn("prolog.d/50-own.sh", "exit 0")
		s.hasOwn("epilog.d/50-own.sh", "exit 0")
		job := s.runs(s.user, "echo done", oneGPU)
		s.hooksRan("n1", "prolog 0", "prolog 0", "epilog 0", "epilog 0")
		s.showSays("n1", job, "start:", "clean", "end:", "clean")
	})
	s.tell("a folder among them drains, as the doctor says", func(s *story) {
		folder := s.on.Own("prolog.d/old.sh")
		if err := os.Mkdir(folder, 0o755); err != nil {
			s.t.Fatal(err)
		}
		s.t.Cleanup(func() { os.Remove(folder) })
		if r := s.doctorSays("n1")["slurm-prolog"]; r.Level != doctor.Wrong || r.Path != folder {
			s.t.Errorf("the doctor says %+v", r)
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
		job := s.runs(s.user, "echo never", oneGPU)
		if j := s.ends(job); j.State != "FAILED" || j.ExitCode != "7:0" {
			s.t.Errorf("the job is %s with %s, want it failed with 7:0", j.State, j.ExitCode)
		}
		s.nodeIsUp("n1")
		s.inOrder("the output", s.outputOf(job), gotTested, "TaskProlog failed status=7")
	})
	s.tell("where there are none nothing is missed", func(s *story) {
		job := s.runs(s.user, "echo done", oneGPU)
		s.userReads(job, gotTested, "done", "", leftClean)
	})
	s.tell("where Bookend is absent the site's own run", func(s *story) {
		s.hasOwn("task-prolog", "echo print alone")
		if err := os.Rename(s.on.Program("bookend-prolog"), s.on.Program("away")); err != nil {
			s.t.Fatal(err)
		}
		job := s.runs(s.user, "echo done")
		if err := os.Rename(s.on.Program("away"), s.on.Program("bookend-prolog")); err != nil {
			s.t.Fatal(err)
		}
		s.userReads(job, "alone", "done")
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
	job := s.runs(s.user, "echo done", oneGPU, "--output=out-%j.txt")

	s.jobIs(job, "COMPLETED")
	s.nodeIsUp("n1")
	s.hooksRan("n1", "prolog 0", "epilog 0")
	s.userReads(job, "done", "", gotClean, leftClean)
	sent, err := filepath.Glob(filepath.Join(s.on.Dir, "slurm/spool/n1/conf-cache/*"))
	if text := strings.Join(sent, " "); err != nil || !strings.Contains(text, "/bookend-prolog.sh") || !strings.Contains(text, "/bookend-configless.conf") {
		s.t.Errorf("the node was sent %q, %v", sent, err)
	}
}
