package slurmconf

import (
	"errors"
	"fmt"
	"path"
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
	// Configless is "yes" or "no", whether slurmctld sends slurm.conf to the nodes; empty: as slurm.conf says.
	Configless string
	Own        map[string]string // by key, the site's own script that an earlier setup's script runs: see Earlier
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
	sends, sendsScripts := HasWord(parameters.Text, "enable_configless"), p.Version.Has(slurm.ConfiglessHooks)
	p.Sent = sends && s.Configless != "no"
	switch dir := p.dir(); {
	case dir == sentDir || path.Base(dir) == "conf-cache":
		return p.Plan, fmt.Errorf("%q is a copy that slurmctld sent: run bookend setup where slurm.conf is "+
			"maintained, or give its path with --slurm-conf", p.Conf.Path)
	case s.Configless == "yes" && !sends:
		return p.Plan, errors.New("--configless yes: slurm.conf has no SlurmctldParameters=enable_configless, and " +
			"without it slurmctld sends nothing: add it, or leave the option out")
	case p.Sent && !sendsScripts:
		return p.Plan, errNotSent
	case sends && sendsScripts:
		p.Include = Written // only files without a path are sent, and login nodes may be configless alone
	}
	own := p.hook("Prolog", "prolog")
	own = p.hook("Epilog", "epilog") || own
	p.taskHooks()
	p.flags()
	p.timeout(own)
	p.healthCheck()
	// The last: a line without its script would drain nodes.
	p.Scripts = append(p.Scripts, Script{Name: Written, Text: p.Text})
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
		p.Scripts = append(p.Scripts, Script{Name: name, Shipped: shipped, Own: own})
		return name
	}
	p.Scripts = append(p.Scripts, Script{Name: "bookend/" + name, Shipped: shipped, Own: own})
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

// theirs returns the site's own script for a key; without a line if only a script of an earlier setup names it. Lines
// of Bookend's own have to go, for a reason.
func (p *planner) theirs(key, why string) (own Value, ok bool) {
	own.Text, ok = p.Own[key]
	for _, v := range p.Conf.All(key) {
		switch {
		case v.Text == "":
		case p.ours(v.Text):
			p.remove(key, v, why)
		default:
			own, ok = v, true
		}
	}
	if ok && own.Line.Number == 0 {
		p.step("%s=%s is not in slurm.conf any more, but the files of an earlier bookend setup run it, and so do the "+
			"new ones. If it should not run, take it out of those files first.", key, own.Text)
	}
	return own, ok
}

const replaces = "the new lines replace it"

// remove tells the admin to remove a line, unless that was done before.
func (p *planner) remove(key string, v Value, why string) {
	if v.Line.Number > 0 {
		p.step("Remove %s=%s (%s): %s.", key, v.Text, v.Line.Where(), why)
	}
}

// hook plans Prolog or Epilog. Bookend's runs last, so that it sees what the site's own scripts have done.
func (p *planner) hook(key, name string) bool {
	own, has := p.theirs(key, replaces)
	before := fmt.Sprintf("Slurm before %s uses one", slurm.SeveralHooks.Series())
	switch several := p.Version.Has(slurm.SeveralHooks); {
	case !has:
		p.line("", "%s=%s", key, p.script(name, name, ""))
	case several:
		p.again(key, own)
		p.line("runs after your own "+key, "%s=%s", key, p.script(name, name, ""))
	case strings.ContainsAny(own.Text, patternSigns):
		p.join(key, name, p.nextToConf(own.Text), before)
	case p.Sent:
		p.again(key, own)
		p.step("At the end of %s, add: if [ -x %[2]s ]; then %[2]s; fi   (%s %s line)", own.Text, installed+name,
			before, key)
	default:
		p.script(name+".d/00-bookend.sh", name, "")
		p.script(name+".d/50-site.sh", "", p.nextToConf(own.Text))
		p.line(fmt.Sprintf("replaces %s=%s: %s line; 50-site.sh runs it", key, p.nextToConf(own.Text), before),
			"%s=%s/bookend/%s.d/*.sh", key, p.dir(), name)
		p.remove(key, own, "the new line runs it")
	}
	return has
}

// again repeats a line of the site's own that was removed when an earlier setup's script ran what it names.
func (p *planner) again(key string, own Value) {
	if own.Line.Number == 0 {
		p.line("your own "+key, "%s=%s", key, own.Text)
	}
}

const (
	patternSigns = "*?["
	installed    = "/etc/bookend/slurm/hooks/" // the package's scripts, on nodes that have the package
)

// join plans a link to Bookend's script among those of the site's pattern.
func (p *planner) join(key, name, pattern, before string) {
	script := installed + name
	if !p.Sent {
		script = p.script(name, name, "")
	}
	do := "link it to the first name, in alphabetical order, that " + pattern + " matches"
	if link := linkName(pattern); link != "" {
		do = "ln -sf " + script + " " + path.Join(path.Dir(pattern), link)
	}
	p.step("On the nodes with GPUs, once %s is there: %s   (%s %s line; slurmd runs a pattern's files in reverse "+
		"order, so Bookend's runs last)", script, do, before, key)
}

// linkName returns a name that a pattern matches and that comes before others; empty if it finds none.
func linkName(pattern string) string {
	dir, base := path.Split(pattern)
	begin, end := strings.IndexAny(base, patternSigns), strings.LastIndexAny(base, "*?]")+1
	if strings.ContainsAny(dir, patternSigns) || begin < 0 {
		return ""
	}
	name := base[:begin] + "00-bookend" + base[end:]
	if is, err := path.Match(base, name); !is || err != nil {
		return ""
	}
	return name
}

// nextToConf returns a script's absolute path: Slurm looks for one without a path next to slurm.conf.
func (p *planner) nextToConf(file string) string {
	return under(p.dir(), file)
}

var taskKeys = [][2]string{{"TaskProlog", "task-prolog"}, {"TaskEpilog", "task-epilog"}}

func (p *planner) taskHooks() {
	switch {
	case p.Pyxis:
		p.step("No task hooks with pyxis: they would run inside the container. The start report then comes with " +
			"the end report.")
		p.ownTaskHooks("it is looked for inside the container")
		return
	case p.Sent && !p.Version.Has(slurm.ConfiglessTaskHooks):
		p.step("No task hooks: slurmctld sends them from Slurm %s on. The start report then comes with the end "+
			"report. If the nodes with GPUs have slurm.conf themselves: --configless no",
			slurm.ConfiglessTaskHooks.Series())
		p.ownTaskHooks("the nodes do not have it")
		return
	case !p.Sure:
		p.step("No pyxis was found in plugstack.conf on this host. If any node has it, run bookend setup --pyxis yes " +
			"--write: else its container jobs fail.")
	}
	for _, h := range taskKeys {
		p.taskHook(h[0], h[1])
	}
}

func (p *planner) taskHook(key, name string) {
	shipped, why := name, ""
	own, has := p.theirs(key, replaces)
	if has && p.Sent && !path.IsAbs(own.Text) {
		p.again(key, own)
		p.step("%s=%s stays as it is: slurmctld sends only the script that slurm.conf names. Call "+
			"/usr/libexec/bookend/bookend-%s in it, or do without Bookend's.", key, own.Text, name[len("task-"):])
		return
	}
	if has {
		p.remove(key, own, "the new line's script runs it after Bookend's")
		own.Text = p.nextToConf(own.Text)
		shipped, why = name+"-beside-own", "runs Bookend's, then your "+own.Text+", whose exit status counts"
	}
	p.line(why, "%s=%s", key, p.script(name, shipped, own.Text))
}

// ownTaskHooks says what becomes of task hooks that slurm.conf has, if Bookend adds none.
func (p *planner) ownTaskHooks(why string) {
	for _, h := range taskKeys {
		own, has := p.theirs(h[0], why)
		if has {
			p.again(h[0], own)
		}
		if has && p.Pyxis {
			p.step("%s", PyxisFix(h[0], own, p.Version))
		}
	}
}

// PyxisFix says what to do about a task hook of the site's own: slurmd looks for it inside the container of a job.
func PyxisFix(key string, own Value, of slurm.Version) string {
	line := fmt.Sprintf("Remove %s=%s", key, own.Text)
	if own.Line.Number > 0 {
		line += " (" + own.Line.Where() + ")"
	}
	if of.Has(slurm.TaskHookFails) {
		return line + ": tasks in a container fail with it, as they find neither the script nor Slurm's libraries."
	}
	return line + ", or mount the script into all containers with a file in /etc/enroot/mounts.d: if tasks in a " +
		"container do not find it, that is an error in the job's log."
}

// FlagCosts are flags of PrologFlags that a site may need and that cost something, with what that is.
var FlagCosts = [][2]string{
	{"Serial", "a node runs one prolog or epilog at a time, so jobs that start or end together wait for each other's " +
		"hooks, each up to deadlines.prolog.total or deadlines.epilog.total"},
	{"RunInJob", "hooks run inside the job, see only its GPUs, share its memory limit and get no exit status; they " +
		"ask the driver only with slurm.run_in_job_backend: true"},
}

// Allocates reports whether PrologFlags let Slurm run the Prolog on all nodes of a job at once.
func Allocates(flags string, of slurm.Version) bool {
	words := []string{"Alloc", "Contain", "NoHold", "X11", "RunInJob", "ForceRequeueOnFail"}
	if of.Has(slurm.DeferBatchAllocates) {
		words = append(words, "DeferBatch")
	}
	return slices.ContainsFunc(words, func(w string) bool { return HasWord(flags, w) })
}

// flags plans PrologFlags. Without Alloc, only the first node of a job has a start to compare with.
func (p *planner) flags() {
	const why = "runs the Prolog on all nodes of a job at once"
	own, has := p.Conf.Get("PrologFlags")
	switch {
	case Allocates(own.Text, p.Version):
	case has:
		p.line(fmt.Sprintf("%s; replaces %s", why, own.Line.Where()), "PrologFlags=%s,Alloc", own.Text)
	default:
		p.line(why, "PrologFlags=Alloc")
	}
	for _, f := range FlagCosts {
		if HasWord(own.Text, f[0]) {
			p.step("PrologFlags has %s (%s): %s. Take it out unless you need it.", f[0], own.Line.Where(), f[1])
		}
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
	_, has := p.theirs("HealthCheckProgram", replaces)
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
