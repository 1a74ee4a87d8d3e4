// Package setup decides what a site's slurm.conf needs so that Slurm calls Bookend: which lines, which scripts next to
// it, and what is left to do. It goes by what slurm.conf has already.
package setup

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"bookend/internal/slurm"
	"bookend/internal/slurmconf"
)

// Site is what is there already.
type Site struct {
	Version slurm.Version
	Conf    slurmconf.Conf // slurm.conf
	Pyxis   bool           // plugstack.conf loads pyxis
	Adopts  bool           // PAM adopts logins into jobs (pam_slurm_adopt)
}

// Line is one of slurm.conf, with the reason for it.
type Line struct{ Text, Why string }

// Script is a file next to slurm.conf: a shipped script, or one that becomes the site's own.
type Script struct {
	Name    string // below the directory of slurm.conf
	Shipped string // the name of the shipped script; empty: it only runs Own
	Own     string // the site's own script, run as well
}

// Plan is what to add.
type Plan struct {
	Found   []string // what the site has, in words
	Lines   []Line
	Include string // how slurm.conf names the file with these lines
	Scripts []Script
	Steps   []string // what Bookend cannot do with lines and scripts
}

// planner makes a plan for a site.
type planner struct {
	Site
	Plan
	configless bool
}

// Make decides.
func Make(s Site) Plan {
	p := planner{Site: s}
	// What setup wrote before counts for nothing: it is written again.
	p.Conf.Lines = slices.DeleteFunc(slices.Clone(s.Conf.Lines), func(l slurmconf.Line) bool {
		return strings.HasSuffix(l.File, "/bookend.conf")
	})
	if v, ok := p.Conf.Get("SlurmctldParameters"); ok && slurmconf.HasWord(v.Text, "enable_configless") {
		p.configless = true
		p.found("configless nodes (%s)", v.Line.Where())
	}
	p.Include = path.Join(p.dir(), "bookend.conf")
	if p.configless { // only files without a path are sent to the nodes
		p.Include = "bookend.conf"
	}
	own := p.hook("Prolog", "prolog")
	own = p.hook("Epilog", "epilog") || own
	p.taskHooks()
	p.flags()
	p.timeout(own)
	p.healthCheck()
	return p.Plan
}

func (p *planner) found(format string, args ...any) {
	p.Found = append(p.Found, fmt.Sprintf(format, args...))
}
func (p *planner) line(why, format string, args ...any) {
	p.Lines = append(p.Lines, Line{fmt.Sprintf(format, args...), why})
}
func (p *planner) step(format string, args ...any) {
	p.Steps = append(p.Steps, fmt.Sprintf(format, args...))
}

// dir is where slurm.conf lies.
func (p *planner) dir() string { return path.Dir(p.Conf.Path) }

// script adds a shipped script and returns how slurm.conf names it. slurmctld sends nodes only files next to slurm.conf
// that are named without a path.
func (p *planner) script(name, shipped, own string) string {
	if p.configless && p.Version.Has(slurm.ConfiglessHooks) {
		name = "bookend-" + name + ".sh"
		p.Scripts = append(p.Scripts, Script{name, shipped, own})
		return name
	}
	p.Scripts = append(p.Scripts, Script{"bookend/" + name, shipped, own})
	return path.Join(p.dir(), "bookend", name)
}

// theirs is the site's own value of a key.
func (p *planner) theirs(key string) (v slurmconf.Value, ok bool) {
	all := slices.DeleteFunc(p.Conf.All(key), func(v slurmconf.Value) bool {
		return v.Text == "" || strings.Contains(v.Text, "/bookend/") || strings.HasPrefix(path.Base(v.Text), "bookend-")
	})
	if len(all) == 0 {
		return v, false
	}
	v = all[len(all)-1]
	p.found("%s=%s (%s)", key, v.Text, v.Line.Where())
	return v, true
}

// hook plans Prolog or Epilog, and reports whether the site has its own.
func (p *planner) hook(key, name string) bool {
	own, has := p.theirs(key)
	before := fmt.Sprintf("Slurm before %s uses one", slurm.SeveralHooks.Series())
	switch several := p.Version.Has(slurm.SeveralHooks); {
	case !has:
		p.line("", "%s=%s", key, p.script(name, name, ""))
	case several:
		p.line("runs after your own "+key, "%s=%s", key, p.script(name, name, ""))
	case strings.ContainsAny(own.Text, "*?["):
		into := path.Join(path.Dir(own.Text), "00-bookend"+path.Ext(own.Text))
		p.step("Copy %s to %s on every node: %s %s line, and yours is a pattern.", p.script(name, name, ""), into, before,
			key)
	case p.configless:
		p.step("Call %s at the end of %s: %s %s line.", p.script(name, name, ""), own.Text, before, key)
	default:
		p.script(name+".d/00-bookend.sh", name, "")
		p.script(name+".d/50-site.sh", "", own.Text)
		p.line(fmt.Sprintf("replaces %s=%s: %s line; 50-site.sh runs your script", key, own.Text, before),
			"%s=%s/bookend/%s.d/*.sh", key, p.dir(), name)
	}
	return has
}

func (p *planner) taskHooks() {
	switch {
	case p.Pyxis:
		p.found("pyxis")
		p.step("No task hooks with pyxis: they would run inside the container. The start report then comes with " +
			"the end report.")
		return
	case p.configless && !p.Version.Has(slurm.ConfiglessTaskHooks):
		p.step("No task hooks: slurmctld sends them from Slurm %s on. The start report then comes with the end report.",
			slurm.ConfiglessTaskHooks.Series())
		return
	}
	for _, h := range [][2]string{{"TaskProlog", "task-prolog"}, {"TaskEpilog", "task-epilog"}} {
		key, name := h[0], h[1]
		shipped, why := name, ""
		own, has := p.theirs(key)
		if has {
			shipped, why = name+"-beside-own", "runs Bookend's, then your "+own.Text+", whose exit status counts"
		}
		p.line(why, "%s=%s", key, p.script(name, shipped, own.Text))
	}
}

// flags plans PrologFlags: the Prolog runs on every node of a job when it is given out, or only the first node of a job
// has a start to compare with.
func (p *planner) flags() {
	own, has := p.Conf.Get("PrologFlags")
	in := func(flag string) bool { return slurmconf.HasWord(own.Text, flag) }
	if has {
		p.found("PrologFlags=%s (%s)", own.Text, own.Line.Where())
	}
	if in("RunInJob") {
		p.step("PrologFlags has RunInJob: hooks see only the job's GPUs and know no exit status. " +
			"Bookend reports that (BKD-RUNINJOB).")
	}
	want, why := "Alloc", "runs the Prolog on all nodes of a job at once"
	if p.Adopts {
		p.found("pam_slurm_adopt")
		want, why = "Contain", "makes the step into which logins are adopted; implies Alloc"
	}
	implies := in("Contain") || in("X11") || in("RunInJob")
	switch {
	case in(want) || implies && (!p.Adopts || !in("Alloc")):
	case has:
		p.line(fmt.Sprintf("%s; replaces %s", why, own.Line.Where()), "PrologFlags=%s,%s", own.Text, want)
	default:
		p.line(why, "PrologFlags=%s", want)
	}
}

// timeout plans the limit below the hooks' own, which are 5 and 15 s: without one Slurm waits for ever.
func (p *planner) timeout(own bool) {
	for _, key := range []string{"PrologEpilogTimeout", "PrologTimeout", "EpilogTimeout"} {
		if v, ok := p.Conf.Get(key); ok {
			p.found("%s=%s (%s)", key, v.Text, v.Line.Where())
			return
		}
	}
	if own {
		p.step("Consider PrologEpilogTimeout=60: it also limits your own scripts, and a script that takes longer " +
			"drains the node.")
		return
	}
	p.line("stops a hook that Slurm would otherwise wait for without end", "PrologEpilogTimeout=60")
}

func (p *planner) healthCheck() {
	const timer = "On the nodes with GPUs: systemctl enable --now bookend-healthcheck.timer"
	own, has := p.theirs("HealthCheckProgram")
	switch {
	case has && strings.Contains(path.Base(own.Text), "nhc"):
		p.step("HealthCheckProgram is NHC: let it run the check (/usr/share/doc/bookend/nhc/bookend.nhc says how), "+
			"or: %s", timer)
	case has:
		p.step("HealthCheckProgram is taken. %s", timer)
	case p.configless:
		p.step("slurmctld sends no HealthCheckProgram. %s", timer)
	default:
		p.line("every five minutes, spread over the nodes", "HealthCheckProgram=%s",
			p.script("healthcheck", "healthcheck", ""))
		p.line("", "HealthCheckInterval=300")
		p.line("", "HealthCheckNodeState=ANY,CYCLE")
	}
}

// Text is the file that slurm.conf includes, or the lines to paste.
func (p Plan) Text() string {
	var b strings.Builder
	b.WriteString("# Slurm calls Bookend. Made by: bookend setup\n")
	for _, l := range p.Lines {
		if l.Why != "" {
			fmt.Fprintf(&b, "# %s\n", l.Why)
		}
		b.WriteString(l.Text + "\n")
	}
	return b.String()
}

// Render is a script's text; shipped gives the text of a shipped script.
func (s Script) Render(shipped func(name string) (string, error)) (string, error) {
	// Threat: a path that the shell reads as more than a path, in a script that root runs.
	if strings.ContainsAny(s.Own, "'\n") {
		return "", fmt.Errorf("path %q of the site's own script has a quote or a line feed", s.Own)
	}
	if s.Shipped == "" {
		return fmt.Sprintf("#!/bin/sh\nexec '%s' \"$@\"\n", s.Own), nil
	}
	text, err := shipped(s.Shipped)
	if err != nil || s.Own == "" {
		return text, err
	}
	before, rest, ok := strings.Cut(text, "\nown=")
	_, after, _ := strings.Cut(rest, "\n")
	if !ok {
		return "", fmt.Errorf("script %q names no script of the site's own", s.Shipped)
	}
	return before + "\nown='" + s.Own + "'\n" + after, nil
}
