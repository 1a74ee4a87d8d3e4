package slurmconf

import (
	"os"
	"slices"
	"strings"
	"testing"

	"bookend/internal/slurm"
)

// What a site has, and what it needs: each line, each script, and what is left to do.
func TestMakePlan(t *testing.T) {
	const (
		taskHooks = "TaskProlog=/s/bookend/task-prolog\nTaskEpilog=/s/bookend/task-epilog\n"
		alloc     = "PrologFlags=Alloc\n"
		timeout   = "PrologEpilogTimeout=60\n"
		check     = "HealthCheckProgram=/s/bookend/healthcheck\nHealthCheckInterval=300\nHealthCheckNodeState=ANY,CYCLE\n"
		hooks     = "Prolog=/s/bookend/prolog\nEpilog=/s/bookend/epilog\n"
	)
	for name, tt := range map[string]struct {
		conf          string
		version       slurm.Version
		pyxis, adopts bool
		lines         string
		scripts       string // other than the plain ones
		steps         string // part of the notes, "" for none
	}{
		"nothing": {version: slurm.Version{22, 5}, lines: hooks + taskHooks + alloc + timeout + check},
		"own Prolog, 24.05": {conf: "Prolog=/site/prolog", version: slurm.Version{24, 5},
			lines: hooks + taskHooks + alloc + check, steps: "PrologEpilogTimeout"},
		"own Prolog, 23.11": {conf: "Prolog=/site/prolog", version: slurm.Version{23, 11},
			lines:   "Prolog=/s/bookend/prolog.d/*.sh\nEpilog=/s/bookend/epilog\n" + taskHooks + alloc + check,
			scripts: "bookend/prolog.d/00-bookend.sh=prolog bookend/prolog.d/50-site.sh=/site/prolog",
			steps:   "Remove Prolog=/site/prolog ("},
		"a pattern, 22.05": {conf: "Epilog=/site/epilog.d/*.sh\nPrologEpilogTimeout=90", version: slurm.Version{22, 5},
			lines: "Prolog=/s/bookend/prolog\n" + taskHooks + alloc + check, scripts: "",
			steps: "Copy /s/bookend/epilog to /site/epilog.d/00-bookend.sh"},
		"own task hooks": {conf: "TaskProlog=/site/tp", version: slurm.Version{25, 5},
			lines: hooks + taskHooks + alloc + timeout + check, scripts: "bookend/task-prolog=task-prolog-beside-own+/site/tp"},
		"NHC": {conf: "HealthCheckProgram=/usr/sbin/nhc", version: slurm.Version{25, 5},
			lines: hooks + taskHooks + alloc + timeout, steps: "bookend.nhc"},
		"another health check": {conf: "HealthCheckProgram=/site/check", version: slurm.Version{25, 5},
			lines: hooks + taskHooks + alloc + timeout, steps: "bookend-healthcheck.timer"},
		"Contain and X11": {conf: "PrologFlags=Contain,X11", adopts: true, version: slurm.Version{25, 5},
			lines: hooks + taskHooks + timeout + check},
		"adopts, Alloc only": {conf: "PrologFlags=Alloc", adopts: true, version: slurm.Version{25, 5},
			lines: hooks + taskHooks + "PrologFlags=Alloc,Contain\n" + timeout + check},
		"Serial": {conf: "PrologFlags=Serial", version: slurm.Version{25, 5},
			lines: hooks + taskHooks + "PrologFlags=Serial,Alloc\n" + timeout + check},
		"adopts": {adopts: true, version: slurm.Version{25, 5},
			lines: hooks + taskHooks + "PrologFlags=Contain\n" + timeout + check},
		"RunInJob": {conf: "PrologFlags=RunInJob", version: slurm.Version{25, 5},
			lines: hooks + taskHooks + timeout + check, steps: "BKD-RUNINJOB"},
		"pyxis": {pyxis: true, version: slurm.Version{25, 5}, lines: hooks + alloc + timeout + check, steps: "container"},
		"configless": {conf: "SlurmctldParameters=enable_configless", version: slurm.Version{24, 11},
			lines:   "Prolog=bookend-prolog.sh\nEpilog=bookend-epilog.sh\n" + alloc + timeout,
			scripts: "bookend-epilog.sh=epilog bookend-prolog.sh=prolog", steps: "from Slurm 25.11 on"},
		"configless, 25.11": {conf: "SlurmctldParameters=enable_configless", version: slurm.Version{25, 11},
			lines: "Prolog=bookend-prolog.sh\nEpilog=bookend-epilog.sh\nTaskProlog=bookend-task-prolog.sh\n" +
				"TaskEpilog=bookend-task-epilog.sh\n" + alloc + timeout,
			scripts: "bookend-epilog.sh=epilog bookend-prolog.sh=prolog bookend-task-epilog.sh=task-epilog " +
				"bookend-task-prolog.sh=task-prolog",
			steps: "sends no HealthCheckProgram"},
		"configless, own TaskProlog": {conf: "SlurmctldParameters=enable_configless\nTaskProlog=tp", version: slurm.Version{25, 11},
			lines:   "Prolog=bookend-prolog.sh\nEpilog=bookend-epilog.sh\nTaskEpilog=bookend-task-epilog.sh\n" + alloc + timeout,
			scripts: "bookend-epilog.sh=epilog bookend-prolog.sh=prolog bookend-task-epilog.sh=task-epilog",
			steps:   "Call /usr/libexec/bookend/bookend-prolog in it"},
		"pasted before": {conf: hooks + taskHooks + alloc + timeout + check, version: slurm.Version{25, 5},
			lines: hooks + taskHooks + check, steps: "Remove Prolog=/s/bookend/prolog ("},
		"the package's lines": {conf: "Include /etc/bookend/slurm/bookend.conf", version: slurm.Version{25, 5},
			lines: hooks + taskHooks + alloc + timeout + check, steps: "includes /etc/bookend/slurm/bookend.conf"},
		"own, in a directory of that name": {conf: "Prolog=/site/bookend/prolog\nEpilogTimeout=90\nPrologTimeout=90",
			version: slurm.Version{23, 11},
			lines:   "Prolog=/s/bookend/prolog.d/*.sh\nEpilog=/s/bookend/epilog\n" + taskHooks + alloc + check,
			scripts: "bookend/prolog.d/00-bookend.sh=prolog bookend/prolog.d/50-site.sh=/site/bookend/prolog",
			steps:   "Remove Prolog=/site/bookend/prolog ("},
		"own Prolog without a path, 23.11": {conf: "Prolog=site.sh\nPrologEpilogTimeout=90", version: slurm.Version{23, 11},
			lines:   "Prolog=/s/bookend/prolog.d/*.sh\nEpilog=/s/bookend/epilog\n" + taskHooks + alloc + check,
			scripts: "bookend/prolog.d/00-bookend.sh=prolog bookend/prolog.d/50-site.sh=/s/site.sh",
			steps:   "Remove Prolog=site.sh ("},
		"own TaskProlog without a path": {conf: "TaskProlog=tp", version: slurm.Version{25, 11},
			lines: hooks + taskHooks + alloc + timeout + check, scripts: "bookend/task-prolog=task-prolog-beside-own+/s/tp"},
		"a Prolog limited alone": {conf: "PrologTimeout=90", version: slurm.Version{25, 5},
			lines: hooks + taskHooks + alloc + "EpilogTimeout=60\n" + check},
		"an Epilog limited too much": {conf: "PrologEpilogTimeout=90\nEpilogTimeout=10", version: slurm.Version{25, 5},
			lines: hooks + taskHooks + alloc + check, steps: "EpilogTimeout=10 is less than the 15 s"},
		"included before": {conf: "Include /s/bookend.conf", version: slurm.Version{25, 5},
			lines: hooks + taskHooks + alloc + timeout + check},
	} {
		t.Run(name, func(t *testing.T) {
			conf := Parse("/s/slurm.conf", []byte(tt.conf), func(name string) []File {
				return []File{{Path: name, Text: []byte(hooks + taskHooks + alloc + timeout + check)}}
			})
			p, err := MakePlan(Site{Conf: conf, Version: tt.version, Pyxis: tt.pyxis, Adopts: tt.adopts, Sure: true})
			if err != nil || p.Has != strings.Contains(tt.conf, "Include /s/") {
				t.Errorf("%+v, %v", p, err)
			}
			if got := without(p.Text, "#"); got != tt.lines {
				t.Errorf("lines:\n%swant\n%s", got, tt.lines)
			}
			if got := other(p.Scripts); got != tt.scripts {
				t.Errorf("scripts: %s, want %s", got, tt.scripts)
			}
			steps := strings.Join(p.Steps, "\n")
			if !strings.Contains(steps, tt.steps) || (steps == "") != (tt.steps == "") {
				t.Errorf("steps: %s, want %q", steps, tt.steps)
			}
		})
	}
}

// What is not known on this host is asked of the admin, or said.
func TestMakePlanOfAnotherHost(t *testing.T) {
	conf := Parse("/s/slurm.conf", []byte("SlurmctldParameters=enable_configless\nPrologEpilogTimeout=4\n"), nil)
	if _, err := MakePlan(Site{Conf: conf, Version: slurm.Version{23, 2}}); err == nil {
		t.Error("scripts that no one sends")
	}
	p, err := MakePlan(Site{Conf: conf, Version: slurm.Version{23, 2}, Local: true})
	steps := strings.Join(p.Steps, "\n")
	if err != nil || p.Sent || !strings.Contains(p.Text, "\nTaskProlog=/s/bookend/task-prolog\n") ||
		!strings.Contains(steps, "setup --pyxis") || !strings.Contains(steps, "PrologEpilogTimeout=4 is less") {
		t.Errorf("%+v, %v", p, err)
	}
}

func without(text, prefix string) (left string) {
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, prefix) {
			left += line
		}
	}
	return left
}

// other are the scripts that are not a shipped one under its own name.
func other(scripts []Script) string {
	found := map[string]string{}
	var names []string
	for _, s := range scripts {
		what := strings.Trim(s.Shipped+"+"+s.Own, "+")
		if s.Name != "bookend/"+what {
			found[s.Name], names = what, append(names, s.Name)
		}
	}
	var all []string
	slices.Sort(names)
	for _, name := range names {
		all = append(all, name+"="+found[name])
	}
	return strings.Join(all, " ")
}

// A script runs the site's own by exactly that path.
func TestRender(t *testing.T) {
	shipped := func(name string) (string, error) {
		text, err := os.ReadFile("../../deploy/slurm/hooks/" + name)
		return string(text), err
	}
	for _, s := range []Script{{Own: "/site/a b"}, {Shipped: "task-prolog-beside-own", Own: "/site/a b"}} {
		text, err := s.Render(shipped)
		if err != nil || !strings.Contains(text, "'/site/a b'") || !strings.HasPrefix(text, "#!/bin/sh\n") {
			t.Errorf("%+v: %q, %v", s, text, err)
		}
	}
	for _, s := range []Script{{Own: "/x'; reboot"}, {Own: "/x\nreboot"}, {Shipped: "prolog", Own: "/x"}, {Shipped: "none"}} {
		if text, err := s.Render(shipped); err == nil {
			t.Errorf("%+v: %q", s, text)
		}
	}
}
