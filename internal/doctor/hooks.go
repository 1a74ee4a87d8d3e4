package doctor

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"bookend/internal/config"
	"bookend/internal/slurmconf"
)

// slot is a place in slurm.conf where a hook is named.
type slot struct {
	check, key, program string
	script              string // what the package has for this place, below hooks/
	task                bool   // it runs as the job's user, and may be left out
	without             string
}

func slots() []slot {
	return []slot{
		{"slurm-prolog", "Prolog", "bookend-prolog", "prolog", false, "no job's start is looked at: nothing can be compared, nobody blamed, nothing drained"},
		{"slurm-epilog", "Epilog", "bookend-epilog", "epilog", false, "no job's end is looked at: what it leaves on a card nobody sees"},
		{"slurm-taskprolog", "TaskProlog", "bookend-prolog", "task-prolog", true, "the start report comes with the end report, and a job's output is found only where its path can be told"},
		{"slurm-taskepilog", "TaskEpilog", "bookend-epilog", "task-epilog", true, "at the end of a script nobody tells which of its processes still use a card"},
		{"slurm-healthcheck", healthKey, "bookend-healthcheck", "healthcheck", false, "between jobs nobody looks: no sightings, no residue found, no drain reason beyond Slurm's own"},
	}
}

func hookChecks() []Check {
	var all []Check
	for _, h := range slots() {
		what := "names " + h.program + ", itself or in a script, once"
		switch {
		case h.drains():
			what = "names a script that runs " + h.program + ", once, and neither is the program itself nor execs it, so that a crash need not drain"
		case h.task:
			what += "; or nothing"
		case h.key == healthKey:
			what += ", or Node Health Check or a timer runs that"
		}
		all = append(all, Check{Name: h.check, Area: areaHooks, Look: h.look, Judge: h.judge,
			Holds: "`" + h.key + "=` " + what + "; what it names is there, can be run, is root's alone all the way, and not on a network file system"})
	}
	return append(all, onConf("slurm-pair", areaHooks, "Prolog and Epilog are both Bookend's or neither is, and no other key of slurm.conf names its programs", nil, judgePair),
		onConf("prolog-flags", areaHooks, "`PrologFlags=` has Alloc or Contain, and neither Serial nor RunInJob", []string{"PrologFlags"}, judgeFlags),
		onConf("slurm-twice", areaHooks, "no key that Bookend's snippets set stands in slurm.conf with another value: of several lines the last counts, but for `Prolog=` and `Epilog=`", nil, judgeTwice))
}

// named are the hooks of a slot as slurm.conf names them: an absolute path or pattern each, in the order of its lines.
func (h slot) named(s Site) (paths []string) {
	conf := s.Survey.Slurm.Conf
	if conf == nil {
		return nil
	}
	values := conf.All(h.key)
	if len(values) > 1 && !h.drains() {
		values = values[len(values)-1:] // which is the one that counts
	}
	for _, v := range values {
		if v.Text == "" || strings.EqualFold(v.Text, "(null)") {
			continue
		}
		p := v.Text
		if !path.IsAbs(p) { // shipped beside slurm.conf
			p = path.Join(path.Dir(conf.Path), p)
		}
		paths = append(paths, p)
	}
	return paths
}

// drains reports a hook whose failure drains the node: the two of which Slurm from 24.05 on takes all lines; of the
// others, and before, the last.
func (h slot) drains() bool { return h.key == "Prolog" || h.key == "Epilog" }

func (h slot) look(s Site) Look {
	paths := h.named(s)
	if h.key == healthKey {
		paths = append(paths, besides(s)...)
	}
	return Look{Place: "hooks", Paths: paths, Kind: Regular, All: true, Content: true}
}

func (h slot) judge(s Site, seen Seen) []Result {
	if why := s.unread(h.key); why != nil {
		why.Check = h.check
		return []Result{*why}
	}
	paths := h.named(s)
	shown := s.conf()
	by := otherwise{}
	if h.key == healthKey {
		by = runOtherwise(seen.Files)
	}
	if len(paths) == 0 && by.timer {
		return well(h.check, shown, "no %s=: a timer runs %s", h.key, h.program)
	}
	if len(paths) == 0 {
		return []Result{h.absent(s, shown)}
	}
	if seen.Unknown != "" {
		return []Result{{h.check, Unknown, paths[0], "could not be looked at: " + seen.Unknown, "slurmd waits for it at each job", "keep it on the node's own disk"}}
	}
	var bad []Result
	if v, ok := s.slurmdVersion(); len(paths) > 1 && ok && !h.task && v.before(24, 5, 0) {
		bad = append(bad, Result{h.check, Wrong, shown, fmt.Sprintf("%d lines %s=, but slurmd is %s", len(paths), h.key, v),
			"before 24.05 only one of them counts", h.line(s, config.SlurmFolders()[1]+"/"+strings.ToLower(h.key)+".d/*") + ", with links to all of them"})
	}
	order, ours := []string{}, 0
	for _, p := range paths {
		files := of(p, seen.Files)
		if len(files) == 0 {
			bad = append(bad, h.gone(s, p))
		}
		for _, f := range files {
			order = append(order, path.Base(f.Path))
			bad = append(bad, h.judgeFile(s, f)...)
			bad = append(bad, h.judgeCrash(s, f)...)
			if h.isOurs(f) {
				ours++
			}
		}
	}
	bad = append(bad, by.judge(h, s, paths[0], ours)...)
	if ours == 0 && by.runs() {
		ours++
	}
	bad = append(bad, h.counted(s, shown, paths, order, ours)...)
	if len(bad) > 0 {
		return bad
	}
	return well(h.check, paths[0], "%s", h.wellSaid(paths, order, seen.Files)+by.String())
}

// of are the files that a path or pattern of slurm.conf leads to, in the order in which slurmd runs them: those of a
// pattern in reverse alphabetical order, without those whose name begins with a dot.
func of(pattern string, files []File) (found []File) {
	for _, f := range files {
		ok, err := filepath.Match(pattern, f.Path)
		if (f.Path == pattern || err == nil && ok && !strings.HasPrefix(path.Base(f.Path), ".")) && !f.Missing {
			found = append(found, f)
		}
	}
	slices.SortFunc(found, func(a, b File) int { return strings.Compare(b.Path, a.Path) })
	return slices.CompactFunc(found, func(a, b File) bool { return a.Path == b.Path })
}

// line is the fix that is a line of slurm.conf for this slot.
func (h slot) line(s Site, value string) string { return everywhere(s.inConf(h.key + "=" + value)) }

// everywhere adds to a line of slurm.conf what must hold before it is written: one file is all nodes', and a Prolog or
// Epilog that is not there drains.
func everywhere(line string) string {
	return strings.Replace(line, ", then: ", ", if every node has that file; then: ", 1)
}

// shipped is the package's script for this slot.
func (h slot) shipped() string { return path.Join(snippetFolder, "hooks", h.script) }

// absent judges that slurm.conf names nothing.
func (h slot) absent(s Site, shown string) Result {
	fix := h.line(s, h.shipped())
	switch {
	case h.task:
		return Result{h.check, OK, shown, "no " + h.key + "=: " + h.without, "", ""}
	case h.key == healthKey:
		return Result{h.check, Warning, shown, "no " + h.key + "=", h.without, s.inConf("HealthCheckProgram=" + h.shipped() + "\nHealthCheckInterval=300\nHealthCheckNodeState=ANY")}
	}
	return Result{h.check, Wrong, shown, "no " + h.key + "=: Slurm does not call " + h.program, h.without, s.inConf(included()) + "\n" + fix + ", if the rest of bookend.conf is not wanted"}
}

// gone judges a path that leads nowhere.
func (h slot) gone(s Site, p string) Result {
	what := "does not exist"
	if strings.ContainsAny(p, "*?[") {
		what = "no file matches"
	}
	why := h.key + "= that cannot be run drains the node at the next job"
	if h.task {
		why = h.key + "= that cannot be run fails every job's tasks, or is an error in every job's output"
	}
	if h.key == healthKey {
		why = "the check never runs, and slurmd's log says so again and again"
	}
	return Result{h.check, Wrong, p, h.key + "=: " + what, why, h.line(s, h.shipped())}
}

// judgeFile lists what is wrong with one file that slurmd runs, whether Bookend's or another's.
func (h slot) judgeFile(s Site, f File) (bad []Result) {
	say := func(level Level, seen, why, fix string) {
		bad = append(bad, Result{h.check, level, f.Path, seen, why, fix})
	}
	const drains = "slurmd cannot run it: a failure at each job, which drains the node for Prolog and Epilog"
	switch {
	case f.Error != "":
		say(Unknown, f.Error, drains, "stat "+quoted(f.Path))
		return bad
	case f.Kind != Regular && !slices.Contains(h.named(s), f.Path): // by a pattern
		say(Wrong, fmt.Sprintf("%s, where a program belongs", f.Kind), drains, "take it out of "+quoted(path.Dir(f.Path)))
		return bad
	case f.Kind != Regular:
		say(Wrong, fmt.Sprintf("%s, where a program belongs", f.Kind), drains, h.line(s, h.shipped()))
		return bad
	case f.Content != nil && f.Content.ELF && f.Content.Size < leastELF:
		say(Wrong, fmt.Sprintf("a program cut off after %d bytes", f.Content.Size), "slurmctld ships a hook up to its first zero byte: a compiled program cannot be shipped (configless), and its stump drains the node",
			h.wrapper(path.Base(f.Path)))
		return bad
	}
	if c := f.Distrust; c != nil {
		say(Wrong, notAlone+Rule{}.culpritSeen(*c), "slurmd runs it as root and does not look whose it is", "chown root:root "+quoted(c.Path)+" && chmod go-w "+quoted(c.Path)+compareFile)
	}
	need := uint32(0o500)
	if h.task {
		need = 0o555
	}
	if f.Mode&need != need {
		say(Wrong, fmt.Sprintf("mode %#o", f.Mode), drains, "chmod 0755 "+quoted(f.Path))
	}
	if fs := f.System; fs != nil && fs.Network != "" {
		say(Warning, "on a network file system ("+fs.Network+")", "when its server hangs each hook hangs with it, and the node with that; until slurmd's limit it takes no job",
			"install -D -o root -g root -m 0755 "+quoted(f.Path)+" "+quoted(path.Join(path.Dir(config.Default().Backend), path.Base(f.Path)))+"   # on each node, and name that in slurm.conf")
	}
	return bad
}

// leastELF is less than the smallest header of a program that can be run.
const leastELF = 64

// wrapper puts the package's script, which can be shipped, in the place of a program.
func (h slot) wrapper(name string) string {
	return fmt.Sprintf("install -m 0755 %s %s   # on the controller, then: scontrol reconfigure",
		h.shipped(), path.Join(config.SlurmFolders()[1], name))
}

// judgeCrash warns of a hook that drains the node when it cannot run.
func (h slot) judgeCrash(s Site, f File) []Result {
	const why = "if it crashes, because no thread is available for example, or is killed, the node drains; " +
		"the package's script exits 0 then"
	switch {
	case !h.drains():
		return nil
	case h.isProgram(f):
		return []Result{{h.check, Warning, f.Path, "the program itself", why, h.line(s, h.shipped())}}
	case f.Content != nil && f.Content.Shell && slices.Contains(f.Content.Execs, h.program):
		return []Result{{h.check, Warning, f.Path, "a script that execs " + h.program, why,
			"call " + h.shipped() + " instead, or take over its text if this is an earlier version of it"}}
	}
	return nil
}

// isProgram reports a file that is the slot's program.
func (h slot) isProgram(f File) bool {
	return path.Base(f.Path) == h.program || path.Base(f.Real) == h.program
}

// isOurs reports a file that is the slot's program, or a script that names it.
func (h slot) isOurs(f File) bool {
	if h.isProgram(f) {
		return true
	}
	return f.Content != nil && f.Content.Shell && slices.Contains(f.Content.Names, h.program)
}

// counted judges how often the slot's program is run, and whether another's stands in its place.
func (h slot) counted(s Site, shown string, paths, order []string, ours int) []Result {
	for _, p := range paths {
		if base := path.Base(p); slices.Contains(ourPrograms, base) && base != h.program {
			return []Result{{h.check, Wrong, shown, h.key + "=" + p, "that is the program of another hook: it does nothing here", h.line(s, h.shipped())}}
		}
	}
	if len(order) == 0 {
		return nil // said already
	}
	switch {
	case ours == 0 && h.task:
		return []Result{{h.check, Warning, shown, h.key + "=" + strings.Join(paths, ", ") + " does not name " + h.program, h.without,
			fmt.Sprintf("[ ! -x %[1]s ] || %[1]s   # as a line of %[2]s", h.shipped(), quoted(paths[len(paths)-1]))}}
	case ours == 0:
		return []Result{{h.check, Wrong, shown, fmt.Sprintf("%s= runs %s: none is %s, and no script there names it", h.key, strings.Join(order, ", "), h.program), h.without,
			fmt.Sprintf("[ ! -x %[1]s ] || %[1]s || exit $?   # as a line of %[2]s", h.shipped(), quoted(paths[len(paths)-1]))}}
	case ours > 1:
		return []Result{{h.check, Wrong, shown, fmt.Sprintf("%s= runs %s %d times: %s", h.key, h.program, ours, strings.Join(order, ", ")),
			"the second finds what the first has recorded, and each costs its time", "name it once"}}
	}
	return nil
}

func (h slot) wellSaid(paths, order []string, files []File) string {
	how := "itself"
	for _, f := range files {
		if h.isOurs(f) && !h.isProgram(f) {
			how = "by " + path.Base(f.Path)
		}
	}
	if len(order) == 1 {
		return fmt.Sprintf("%s=, %s %s", h.key, h.program, how)
	}
	return fmt.Sprintf("%s= runs in this order: %s; %s %s", h.key, strings.Join(order, ", "), h.program, how)
}

// judgePair judges what concerns several keys.
func judgePair(s Site, c slurmconf.Conf) []Result {
	const name = "slurm-pair"
	_, prolog := c.Get("Prolog")
	_, epilog := c.Get("Epilog")
	var bad []Result
	if prolog != epilog {
		has, lacks := "Epilog", "Prolog"
		if prolog {
			has, lacks = lacks, has
		}
		bad = append(bad, Result{name, Wrong, c.Path, has + "= without " + lacks + "=", "an end without a start to compare with proves nothing, and a start without an end leaves its record open",
			everywhere(s.inConf(lacks + "=" + path.Join(snippetFolder, "hooks", strings.ToLower(lacks))))})
	}
	for _, key := range []string{"PrologSlurmctld", "EpilogSlurmctld", "SrunProlog", "SrunEpilog", "UnkillableStepProgram", "RebootProgram"} {
		if v, ok := c.Get(key); ok && strings.HasPrefix(path.Base(v.Text), "bookend-") {
			bad = append(bad, Result{name, Wrong, c.Path, key + "=" + v.Text, "that runs elsewhere than on the job's node, or as another user: Bookend does nothing there", "take that line out; " + s.inConf(strings.TrimSuffix(key, "Slurmctld")+"="+v.Text)})
		}
	}
	if len(bad) > 0 {
		return bad
	}
	return well(name, c.Path, "Prolog= and Epilog= go together")
}
