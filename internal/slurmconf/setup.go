package slurmconf

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"bookend/internal/slurm"
)

// Site is a site's configuration before `bookend setup` adds what slurm.conf needs so that Slurm calls Bookend.
type Site struct {
	Version slurm.Version
	Conf    Conf // slurm.conf
	Pyxis   bool // plugstack.conf loads pyxis
	Sure    bool // the admin stated whether there is pyxis: plugstack.conf may be on other nodes only
	Local   bool // nodes have their own slurm.conf, although slurmctld would send it
}

// Script is a file next to slurm.conf: a shipped script, or one that only runs the site's own.
type Script struct {
	Name    string // path below the directory of slurm.conf
	Shipped string // the name of the shipped script; empty: it only runs Own
	Own     string // the site's own script, run as well
}

type Plan struct {
	Text    string // the lines with their reasons: the file that slurm.conf includes, or text to paste
	Include string // how slurm.conf names the file with these lines
	Sent    bool   // slurmctld sends the scripts to the nodes
	Scripts []Script
	Steps   []string // what the admin has to do, because lines and scripts cannot
}

type planner struct {
	Site
	Plan
}

const Written = "bookend.conf"

// errNotSent means that scripts are needed on the nodes and slurmctld does not send them.
var errNotSent = fmt.Errorf("SlurmctldParameters has enable_configless, but before Slurm %s slurmctld sends no "+
	"scripts: if the nodes have slurm.conf themselves, add --configless no", slurm.ConfiglessHooks.Series())

// MakePlan decides which lines, and which scripts next to slurm.conf, are needed and what is left to do.
func MakePlan(s Site) (Plan, error) {
	p := planner{Site: s, Plan: Plan{Text: "# Slurm calls Bookend. Made by: bookend setup\n"}}
	p.Include = path.Join(p.dir(), Written)
	p.replaced()
	parameters, _ := p.Conf.Get("SlurmctldParameters")
	p.Sent = !s.Local && HasWord(parameters.Text, "enable_configless")
	if p.Sent {
		p.Include = Written // only files without a path are sent to the nodes
		if !p.Version.Has(slurm.ConfiglessHooks) {
			return p.Plan, errNotSent
		}
	}
	own := p.hook("Prolog", "prolog")
	own = p.hook("Epilog", "epilog") || own
	p.taskHooks()
	p.flags()
	p.timeout(own)
	p.healthCheck()
	return p.Plan, nil
}

func (p *planner) line(why, format string, args ...any) {
	if why != "" {
		p.Text += "# " + why + "\n"
	}
	p.Text += fmt.Sprintf(format, args...) + "\n"
}
func (p *planner) step(format string, args ...any) {
	p.Steps = append(p.Steps, fmt.Sprintf(format, args...))
}

func (p *planner) dir() string { return path.Dir(p.Conf.Path) }

// script adds a shipped script and returns how slurm.conf names it: without a path if slurmctld sends it.
func (p *planner) script(name, shipped, own string) string {
	if p.Sent {
		name = "bookend-" + name + ".sh"
		p.Scripts = append(p.Scripts, Script{name, shipped, own})
		return name
	}
	p.Scripts = append(p.Scripts, Script{"bookend/" + name, shipped, own})
	return path.Join(p.dir(), "bookend", name)
}

// replaced drops the lines of an earlier bookend.conf. If the new one is elsewhere, both would call Bookend.
func (p *planner) replaced() {
	ours := func(l Line) bool { return path.Base(l.File) == Written }
	others := func(l Line) bool { return ours(l) && l.File != p.Include }
	if i := slices.IndexFunc(p.Conf.Lines, others); i >= 0 {
		p.step("Remove the line that includes %s: the new lines replace it.", p.Conf.Lines[i].File)
	}
	p.Conf.Lines = slices.DeleteFunc(slices.Clone(p.Conf.Lines), ours)
}

// ours reports whether a value is one of Bookend's scripts, as setup or the package's own lines name it.
func (p *planner) ours(value string) bool {
	sent := !strings.Contains(value, "/") && strings.HasPrefix(value, "bookend-")
	return sent || strings.HasPrefix(value, "/etc/bookend/") || strings.HasPrefix(value, p.dir()+"/bookend/")
}

func (p *planner) theirs(key string) (own Value, ok bool) {
	for _, v := range p.Conf.All(key) {
		switch {
		case v.Text == "":
		case p.ours(v.Text):
			p.step("Remove %s=%s (%s): the new lines replace it.", key, v.Text, v.Line.Where())
		default:
			own, ok = v, true
		}
	}
	return own, ok
}

func (p *planner) hook(key, name string) bool {
	own, has := p.theirs(key)
	before := fmt.Sprintf("Slurm before %s uses one", slurm.SeveralHooks.Series())
	switch several := p.Version.Has(slurm.SeveralHooks); {
	case !has:
		p.line("", "%s=%s", key, p.script(name, name, ""))
	case several:
		p.line("runs after your own "+key, "%s=%s", key, p.script(name, name, ""))
	case p.Sent, strings.ContainsAny(own.Text, "*?["):
		p.step("Call %s, on the node, at the end of %s: %s %s line.", p.script(name, name, ""), own.Text, before, key)
	default:
		p.script(name+".d/00-bookend.sh", name, "")
		p.script(name+".d/50-site.sh", "", p.beside(own.Text))
		p.line(fmt.Sprintf("replaces %s=%s: %s line; 50-site.sh runs your script", key, own.Text, before),
			"%s=%s/bookend/%s.d/*.sh", key, p.dir(), name)
		p.step("Remove %s=%s (%s): the new line runs it.", key, own.Text, own.Line.Where())
	}
	return has
}

// beside returns a script's absolute path: Slurm looks for one without a path next to slurm.conf.
func (p *planner) beside(file string) string {
	if path.IsAbs(file) {
		return file
	}
	return path.Join(p.dir(), file)
}

func (p *planner) taskHooks() {
	switch {
	case p.Pyxis:
		p.step("No task hooks with pyxis: they would run inside the container. The start report then comes with " +
			"the end report.")
		return
	case p.Sent && !p.Version.Has(slurm.ConfiglessTaskHooks):
		p.step("No task hooks: slurmctld sends them from Slurm %s on. The start report then comes with the end "+
			"report. If the nodes with GPUs have slurm.conf themselves: --configless no",
			slurm.ConfiglessTaskHooks.Series())
		return
	case !p.Sure:
		p.step("No pyxis was found in plugstack.conf on this host. If any node has it, run bookend setup --pyxis yes " +
			"--write: else its container jobs fail.")
	}
	for _, h := range [][2]string{{"TaskProlog", "task-prolog"}, {"TaskEpilog", "task-epilog"}} {
		key, name := h[0], h[1]
		shipped, why := name, ""
		own, has := p.theirs(key)
		if has && p.Sent && !path.IsAbs(own.Text) {
			p.step("%s=%s stays as it is: slurmctld sends only the script that slurm.conf names. Call "+
				"/usr/libexec/bookend/bookend-%s in it, or do without Bookend's.", key, own.Text, name[len("task-"):])
			continue
		}
		if has {
			shipped, why = name+"-beside-own", "runs Bookend's, then your "+own.Text+", whose exit status counts"
			own.Text = p.beside(own.Text)
		}
		p.line(why, "%s=%s", key, p.script(name, shipped, own.Text))
	}
}

// flags plans PrologFlags. Without Alloc, only the first node of a job has a start to compare with.
func (p *planner) flags() {
	const why = "runs the Prolog on all nodes of a job at once"
	own, has := p.Conf.Get("PrologFlags")
	implies := func(flag string) bool { return HasWord(own.Text, flag) }
	switch {
	case slices.ContainsFunc([]string{"Alloc", "Contain", "X11", "RunInJob"}, implies):
	case has:
		p.line(fmt.Sprintf("%s; replaces %s", why, own.Line.Where()), "PrologFlags=%s,Alloc", own.Text)
	default:
		p.line(why, "PrologFlags=Alloc")
	}
}

// timeout plans a limit above the hooks' own, unless the site has scripts. doctor checks whether a limit is enough.
func (p *planner) timeout(own bool) {
	set := func(key string) bool { _, is := p.Conf.Get(key); return is }
	const both = "PrologEpilogTimeout"
	if !own && !set(both) && !set("PrologTimeout") && !set("EpilogTimeout") {
		p.line("stops a hook that Slurm would otherwise wait for without end", "%s=60", both)
	}
}

func (p *planner) healthCheck() {
	const timer = "run \"systemctl enable --now bookend-healthcheck.timer\" on the nodes with GPUs."
	_, has := p.theirs("HealthCheckProgram")
	switch {
	case has:
		p.step("HealthCheckProgram is taken: if it is NHC, let it run the check "+
			"(/usr/share/doc/bookend/nhc/bookend.nhc says how), or %s", timer)
	case p.Sent:
		p.step("slurmctld sends no HealthCheckProgram: %s", timer)
	default:
		p.line("every five minutes, spread over the nodes", "HealthCheckProgram=%s",
			p.script("healthcheck", "healthcheck", ""))
		p.line("", "HealthCheckInterval=300")
		p.line("", "HealthCheckNodeState=ANY,CYCLE")
	}
}

// Render returns a script's text. shipped returns the text of a shipped script.
func (s Script) Render(shipped func(name string) (string, error)) (string, error) {
	// Threat: root runs this script; a quote or a line feed would let the shell run what follows in the path.
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
	own := regexp.MustCompile("(?m)^own=.*$")
	if !own.MatchString(text) {
		return "", fmt.Errorf("script %q names no script of the site's own", s.Shipped)
	}
	return own.ReplaceAllLiteralString(text, "own='"+s.Own+"'"), nil
}
