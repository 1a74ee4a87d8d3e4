package doctor

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"bookend/internal/slurmconf"
)

const areaHooks = "Hooks in slurm.conf"

// slot is a place in slurm.conf that names a hook.
type slot struct {
	check, key, program string
	script              string // what the package has for this place, below hooks/
	why                 string // what happens if the file cannot be run
	without             string
}

// healthKey is the one of slurm.conf that names the health check.
const healthKey = "HealthCheckProgram"

func slots() []slot {
	const (
		drains   = "the node drains at the next job if slurmd cannot run it"
		task     = "if it cannot be run, every job's tasks fail, or every job's output has an error"
		inReport = "the job's output is found only if its path can be told, and the start report comes with the end " +
			"report"
		noTask   = "at the end of a script its processes that still use a GPU are not named"
		noHealth = "between jobs nothing is looked at: leftovers are not found, and no drain gets Bookend's reason"
		noStart  = "no job's start is looked at: nothing can be compared"
		noEnd    = "no job's end is looked at: leftovers are not seen"
	)
	return []slot{
		{"slurm-prolog", "Prolog", "bookend-prolog", "prolog", drains, noStart},
		{"slurm-epilog", "Epilog", "bookend-epilog", "epilog", drains, noEnd},
		{"slurm-taskprolog", "TaskProlog", "bookend-prolog", "task-prolog", task, inReport},
		{"slurm-taskepilog", "TaskEpilog", "bookend-epilog", "task-epilog", task, noTask},
		{"slurm-healthcheck", healthKey, "bookend-healthcheck", "healthcheck", "the health check never runs", noHealth},
	}
}

// drains reports a hook whose failure drains the node: the two of which Slurm from 24.05 on takes all lines; of the
// others, and before, the last.
func (h slot) drains() bool { return h.key == "Prolog" || h.key == "Epilog" }

// task reports a hook that runs as the job's user, and may be left out.
func (h slot) task() bool { return strings.HasPrefix(h.key, "Task") }

func hookChecks() (all []Check) {
	for _, h := range slots() {
		what := "names " + h.program + ", itself or in a script, once"
		switch {
		case h.drains():
			what = "names a script that runs " + h.program + ", once, and neither is the program nor execs it, so " +
				"that a crash does not drain the node"
		case h.task():
			what += "; or nothing"
		default:
			what += ", or Node Health Check or a timer runs that; every 30 s to an hour"
		}
		all = append(all, Check{
			Name: h.check, Area: areaHooks, why: h.why, needsConf: true, keys: []string{h.key}, path: slurmConfPath,
			Holds: "`" + h.key + "=` " + what + "; what it names exists, can be run, and only root can write it",
			looks: h.looks, judge: h.judge,
		})
	}
	return append(all,
		Check{
			Name: "prolog-flags", Area: areaHooks, needsConf: true, keys: []string{"PrologFlags"}, path: slurmConfPath,
			Holds: "`PrologFlags=` has Alloc or Contain, and neither Serial nor RunInJob", judge: judgeFlags,
		},
		Check{
			Name: "slurm-twice", Area: areaHooks, needsConf: true, path: slurmConfPath, judge: judgeTwice,
			Holds: "no key that Bookend's snippets set is in slurm.conf with another value: of several lines the " +
				"last counts, except for `Prolog=` and `Epilog=`",
			why: "Slurm takes the last line, and only logs that there are more: what the site had set no longer works",
		})
}

// named are the hooks of a slot as slurm.conf names them: an absolute path or pattern each, in the order of its lines.
func (h slot) named(s Site) (paths []string) {
	conf := s.Survey.Slurm.Conf
	values := conf.All(h.key)
	if len(values) > 1 && !h.drains() {
		values = values[len(values)-1:] // which is the one that counts
	}
	for _, v := range values {
		switch {
		case v.Text == "" || strings.EqualFold(v.Text, "(null)"):
		case path.IsAbs(v.Text):
			paths = append(paths, v.Text)
		default: // shipped next to slurm.conf
			paths = append(paths, path.Join(path.Dir(conf.Path), v.Text))
		}
	}
	return paths
}

// timerLink enables the timer that runs the health check. It and the files of Node Health Check are below the root.
const timerLink = "etc/systemd/system/timers.target.wants/bookend-healthcheck.timer"

func (h slot) looks(s Site) []Look {
	looks := []Look{{Paths: h.named(s), Kind: Regular, All: true, Content: true}}
	if h.key == healthKey {
		nhc := []string{filepath.Join(s.Root, "etc/nhc/nhc.conf"), filepath.Join(s.Root, timerLink)}
		looks = append(looks, Look{Paths: nhc, Content: true})
	}
	return looks
}

// otherwise says what runs the health check besides slurm.conf; empty if nothing does.
func (h slot) otherwise(seen []Seen) string {
	if len(seen) < 2 {
		return ""
	}
	for _, f := range seen[1].Files {
		isTimer := strings.HasSuffix(f.Path, timerLink)
		if !f.Missing && (isTimer || f.Content != nil && slices.Contains(f.Content.Names, h.program)) {
			return path.Base(f.Path)
		}
	}
	return ""
}

func (h slot) judge(v *view) string {
	paths, other := h.named(v.Site), h.otherwise(v.seen)
	switch {
	case len(paths) == 0 && other != "":
		return h.program + " by " + other
	case len(paths) == 0:
		return h.judgeAbsent(v)
	}
	if have, ok := v.slurmdVersion(); len(paths) > 1 && ok && have.before(24, 5) {
		v.wrong(fmt.Sprintf("%d lines %s=, but slurmd is %s", len(paths), h.key, have),
			"name one pattern that matches all").
			because("before 24.05 only one of them counts")
	}
	ours := 0
	var order []string
	for _, p := range paths {
		files := matching(p, v.seen[0].Files)
		if len(files) == 0 {
			v.wrong(h.key+"=: does not exist, or no file matches", h.line(v.Site)).at(p)
		}
		for _, f := range files {
			h.judgeFile(v, f)
			if order = append(order, path.Base(f.Path)); h.names(f) {
				ours++
			}
		}
	}
	runs := h.key + "= runs " + strings.Join(order, ", ")
	call := fmt.Sprintf("[ ! -x %[1]s ] || %[1]s   # as a line of %s", h.shipped(), quoted(paths[len(paths)-1]))
	switch {
	case len(order) == 0: // said already
	case ours == 0 && h.task():
		v.warn(fmt.Sprintf("%s: none names %s", runs, h.program), call).because(h.without)
	case ours == 0 && other == "":
		v.wrong(fmt.Sprintf("%s: none is %s or names it", runs, h.program),
			strings.Replace(call, "   #", " || exit $?   #", 1)).
			because(h.without)
	case ours > 1:
		v.wrong(fmt.Sprintf("%s: %s %d times", runs, h.program, ours), "name it once").
			because("the second finds what the first has recorded")
	}
	if h.key == healthKey {
		judgeInterval(v)
	}
	return runs
}

// matching are the files that a path or pattern of slurm.conf leads to, in the order in which slurmd runs them: those
// of a pattern in reverse alphabetical order, without those whose name begins with a dot.
func matching(pattern string, files []File) (found []File) {
	for _, f := range files {
		hidden := strings.HasPrefix(path.Base(f.Path), ".")
		if (f.Path == pattern || !hidden && matches(f.Path, []string{pattern})) && !f.Missing {
			found = append(found, f)
		}
	}
	slices.SortFunc(found, func(a, b File) int { return strings.Compare(b.Path, a.Path) })
	return slices.CompactFunc(found, func(a, b File) bool { return a.Path == b.Path })
}

// shipped is the package's script for this slot.
func (h slot) shipped() string { return path.Join(snippetFolder, "hooks", h.script) }

// line is the fix that is a line of slurm.conf for this slot. One file is all nodes', and a missing Prolog drains.
func (h slot) line(s Site) string {
	line := s.inConf(h.key + "=" + h.shipped())
	return strings.Replace(line, ", then: ", ", if every node has that file; then: ", 1)
}

// judgeAbsent judges that slurm.conf names nothing.
func (h slot) judgeAbsent(v *view) string {
	switch seen := "no " + h.key + "="; {
	case h.task():
		return seen + ": " + h.without
	case h.key == healthKey:
		v.warn(seen, h.line(v.Site)+"\nHealthCheckInterval=300\nHealthCheckNodeState=ANY").because(h.without)
	default:
		v.wrong(seen+": Slurm does not call "+h.program, v.inConf(includeLine("bookend.conf"))).because(h.without)
	}
	return ""
}

// judgeFile reports what is wrong with one file that slurmd runs, Bookend's or not.
func (h slot) judgeFile(v *view, f File) {
	const stump = "slurmctld ships a hook up to its first zero byte: a compiled program cannot be shipped (configless)"
	const leastELF = 64 // bytes: less than the header of any program that can be run
	at, need := quoted(f.Path), uint32(0o500)
	if h.task() {
		need = 0o555
	}
	switch {
	case f.Error != "":
		v.unknown(f.Error, "stat "+at).at(f.Path)
		return
	case f.Kind != Regular:
		v.wrong(string(f.Kind)+", where a program belongs", "take it out of "+quoted(path.Dir(f.Path))).at(f.Path)
		return
	case f.Content != nil && f.Content.ELF && f.Content.Size < leastELF:
		fix := fmt.Sprintf("let %s= name %s; a script, which is shipped whole", h.key, h.shipped())
		v.wrong(fmt.Sprintf("a program cut off after %d bytes", f.Content.Size), fix).at(f.Path).because(stump)
		return
	}
	if c := f.Distrust; c != nil {
		v.wrong(notAlone+c.String(), "chown root:root "+quoted(c.Path)+" && chmod go-w "+quoted(c.Path)+compareFile).
			at(f.Path).because("slurmd runs it as root without checking its owner")
	}
	if f.Mode&need != need {
		v.wrong(fmt.Sprintf("mode %#o", f.Mode), "chmod 0755 "+at).at(f.Path)
	}
	h.judgeCrash(v, f)
}

// judgeCrash warns of a hook that drains the node when it crashes.
func (h slot) judgeCrash(v *view, f File) {
	const why = "if it crashes, because no thread is available for example, or is killed, the node drains; the " +
		"package's script exits 0 then"
	switch {
	case !h.drains():
	case h.isProgram(f):
		v.warn("the program itself", h.line(v.Site)).at(f.Path).because(why)
	case f.Content != nil && f.Content.Shell && slices.Contains(f.Content.Execs, h.program):
		v.warn("a script that execs "+h.program,
			"call "+h.shipped()+" instead, or take over its text").at(f.Path).because(why)
	}
}

// isProgram reports a file that is the slot's program.
func (h slot) isProgram(f File) bool {
	return path.Base(f.Path) == h.program || path.Base(f.Real) == h.program
}

// names reports a file that is the slot's program, or a script that names it.
func (h slot) names(f File) bool {
	return h.isProgram(f) || f.Content != nil && f.Content.Shell && slices.Contains(f.Content.Names, h.program)
}

// judgeInterval judges how often slurmd runs the health check, and whether it lets that end.
func judgeInterval(v *view) {
	const limit, least, most = 60, 30, 3600 // seconds; slurmd's limit is HealthCheckTimeout= from 26.05 on
	every, _ := seconds(v.conf(), "HealthCheckInterval", 0)
	within, _ := seconds(v.conf(), "HealthCheckTimeout", limit)
	total := time.Duration(v.Config.Deadlines.HealthCheck.Total)
	fix := v.inConf("HealthCheckInterval=300")
	if total >= time.Duration(within)*time.Second {
		v.wrong(fmt.Sprintf("slurmd ends it after %d s, but deadlines.health_check.total is %v", within, total),
			"total: 45s   # below deadlines: health_check: in bookend.yaml; or a larger HealthCheckTimeout=")
	}
	switch {
	case every == 0:
		v.wrong("HealthCheckInterval is 0", fix)
	case every < least || every > most:
		v.warn(fmt.Sprintf("HealthCheckInterval=%d", every),
			fix).because("each run asks the driver; leftovers wait for the next")
	}
}

func judgeFlags(v *view) string {
	const (
		noStart = "the prolog runs only where a step starts: on the job's further nodes no start is looked at, and " +
			"nothing drains"
		inJob = "hooks run within the job: they see its GPUs alone, its memory limit is theirs, and no exit status " +
			"reaches them"
	)
	flags, _ := v.conf().Get("PrologFlags")
	has := func(flag string) bool { return slurmconf.HasWord(flags.Text, flag) }
	seen := "PrologFlags=" + flags.Text
	if !slices.ContainsFunc([]string{"Alloc", "Contain", "NoHold", "X11", "RunInJob", "ForceRequeueOnFail"}, has) {
		v.warn(seen+" has neither Alloc nor Contain", v.inConf("PrologFlags=Alloc")).because(noStart)
	}
	if has("Serial") {
		v.warn(seen+": Serial", "take Serial out of PrologFlags= in "+v.path).
			because("hooks of one node wait for each other: with a job a GPU, starts and ends queue up")
	}
	if has("RunInJob") {
		v.warn(seen+": RunInJob", "PrologFlags=Contain   # in "+v.path+", without RunInJob").because(inJob)
	}
	return seen
}

// judgeTwice judges keys that several lines set and of which Slurm takes one.
func judgeTwice(v *view) string {
	for _, key := range []string{
		"PrologFlags", "PrologEpilogTimeout", "TaskProlog", "TaskEpilog", healthKey, "HealthCheckInterval",
		"HealthCheckNodeState",
	} {
		all := v.conf().All(key)
		if len(all) < 2 {
			continue
		}
		last := all[len(all)-1]
		for _, first := range all[:len(all)-1] {
			if strings.EqualFold(first.Text, last.Text) || first.Text == "" {
				continue
			}
			level := Wrong
			if strings.HasPrefix(key, "HealthCheckI") || strings.HasPrefix(key, "HealthCheckN") {
				level = Warning
			}
			v.say(level, fmt.Sprintf("%s=%s in %s does not count: %s says %s", key, first.Text, first.Line.Where(),
				last.Line.Where(), last.Text), twiceFix(key, first, last))
		}
	}
	return "each once"
}

// twiceFix names the snippet that leaves a hook of the site's own in force, or the lines of which one must go.
func twiceFix(key string, first, last slurmconf.Value) string {
	fix := fmt.Sprintf("take line %d out of %s, or line %d out of %s, then: scontrol reconfigure",
		first.Line.Number, first.Line.File, last.Line.Number, last.Line.File)
	switch {
	case strings.HasPrefix(key, "Task"):
		return "include bookend-own-task-hooks.conf, which runs both; or " + fix
	case key == healthKey:
		return "include bookend-own-health.conf, and let the site's own run bookend-healthcheck; or " + fix
	case key == "PrologFlags":
		return "write one line with the flags of both; " + fix
	}
	return fix
}
