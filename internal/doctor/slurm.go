package doctor

import (
	"cmp"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"bookend/internal/config"
	"bookend/internal/slurm"
	"bookend/internal/slurmconf"
)

func slurmConfPath(s Site) string {
	if c := s.Survey.Slurm.Conf; c != nil {
		return c.Path
	}
	return "slurm.conf"
}

func (s Site) inConf(line string) string {
	return fmt.Sprintf("%s   # in %s (configless: in slurmctld's), then: scontrol reconfigure", line, slurmConfPath(s))
}

const setUp = "bookend setup --write   # where slurm.conf is maintained; then what it prints"

func judgeConf(v *view) string {
	s := v.Survey.Slurm
	switch {
	case s.Unread != "":
		v.unknown("could not be read: "+s.Unread, "make it readable for root, on a file system that answers")
		return ""
	case s.Conf == nil:
		v.unknown("not found where slurmd looks for it",
			"bookend setup --write --slurm-conf FILE   # then add the Include line that it prints").
			Why = "this is no compute node, or its slurm.conf is elsewhere: then run doctor with SLURM_CONF set to it"
		return ""
	}
	if doubt := cmp.Or(s.Conf.Doubt(), s.Gres.Doubt()); doubt != "" {
		v.unknown(doubt, "correct that line, or make what it includes readable; slurmd does not start with it either")
	}
	if n := s.Conf.Node(v.NodeName); !n.Found && n.Unsure == "" {
		v.warn(fmt.Sprintf("it has no node %q", v.NodeName), "run doctor on a compute node, with SLURMD_NODENAME set "+
			"if its name is not the host's").Why = "which GPUs Slurm gives out here is then not known"
	}
	return fmt.Sprintf("read, %d lines", len(s.Conf.Lines))
}

func (s Site) slurmdVersion() (slurm.Version, bool) {
	return slurm.ParseVersion(s.Survey.Slurm.Version)
}

func (s Site) slurmdLacks(f slurm.Version) bool {
	have, ok := s.slurmdVersion()
	return ok && !have.Has(f)
}

func judgeVersion(v *view) string {
	have, ok := v.slurmdVersion()
	switch s := v.Survey.Slurm; {
	case !ok:
		v.unknown("does not tell its version: "+cmp.Or(s.Silent, fmt.Sprintf("%.60q", s.Version)), "slurmd -V")
	case !have.Has(slurm.Oldest):
		v.wrong(have.String()+": not supported", "upgrade Slurm to "+slurm.Oldest.Series()+" or later").
			Why = "its hooks are not told which GPUs a job has, or how it ended"
	case !slurm.Newest.Has(have):
		v.warn(fmt.Sprintf("%s: not known, the newest that Bookend was tried with is %s", have, slurm.Newest.Series()),
			"look for a newer Bookend, and let it observe for a week: mode: observe in bookend.yaml").
			Why = "its hooks may be told other things, and its cgroups have other names"
	}
	return have.String()
}

// seconds returns a key's time; set is false if it has none, or no limit. An unreadable number counts as none.
func seconds(c slurmconf.Conf, key string) (n int, set bool) {
	const noLimit = 65534 // as Slurm writes it
	v, _ := c.Get(key)
	number, err := strconv.ParseUint(strings.TrimSpace(v.Text), 0, 16) // Slurm reads 0x3c too
	return int(number), err == nil && number < noLimit
}

func judgeTimeout(v *view) string {
	for _, h := range []struct {
		hook, key string
		total     config.Duration
	}{
		{"prolog", "PrologTimeout", v.Config.Deadlines.Prolog.Total},
		{"epilog", "EpilogTimeout", v.Config.Deadlines.Epilog.Total},
	} {
		key, total := h.key, time.Duration(h.total)
		limit, set := seconds(v.conf(), key)
		if !set || v.slurmdLacks(slurm.HookTimeouts) { // which has one key for both
			key = "PrologEpilogTimeout"
			limit, set = seconds(v.conf(), key)
		}
		// A child that the driver keeps from dying takes longer than the deadline.
		fix := v.inConf(fmt.Sprintf("%s=%d", key, max(60, int((total+5*time.Second)/time.Second))))
		if !set {
			v.warn("no limit for the "+h.hook, fix).Why = "what the kernel does not let end keeps the node for ever; " +
				"a limit stops scripts of the site's own too, and then drains the node"
		} else if time.Duration(limit)*time.Second < total {
			v.wrong(fmt.Sprintf("%s=%d, and deadlines.%s.total is %v", key, limit, h.hook, total), fix)
		}
	}
	return "longer than the deadlines of the hooks"
}

func judgeCgroups(v *view) string {
	kind, _ := v.conf().Get("ProctrackType")
	if kind.Text != "" && !strings.HasSuffix(strings.ToLower(kind.Text), "cgroup") {
		v.warn("ProctrackType="+kind.Text, v.inConf("ProctrackType=proctrack/cgroup"))
	}
	return "processes are tracked by cgroups"
}

func judgePyxis(v *view) string {
	have, known := v.slurmdVersion()
	level := Warning
	if known && have.Has(slurm.TaskHookFails) {
		level = Wrong
	}
	for _, key := range []string{"TaskProlog", "TaskEpilog"} {
		hook, set := v.conf().Get(key)
		if !set || !v.Survey.Slurm.Pyxis {
			continue
		}
		fix := slurmconf.PyxisFix(key, hook, have)
		if path.Base(hook.Line.File) == slurmconf.Written {
			fix = "bookend setup --pyxis yes --write   # where slurm.conf is maintained: it sets no task hooks"
		}
		v.say(level, "pyxis, and "+key+"="+hook.Text, fix)
	}
	return "no pyxis with a task hook"
}

type slot struct{ check, key, program string }

const healthKey = "HealthCheckProgram"

func slots() []slot {
	return []slot{
		{"slurm-prolog", "Prolog", "bookend-prolog"},
		{"slurm-epilog", "Epilog", "bookend-epilog"},
		{"slurm-taskprolog", "TaskProlog", "bookend-prolog"},
		{"slurm-taskepilog", "TaskEpilog", "bookend-epilog"},
		{"slurm-healthcheck", healthKey, "bookend-healthcheck"},
	}
}

// without returns what happens if the file is not named.
func (h slot) without() string { return why(h.check + " without") }

// drains reports whether the hook's failure drains the node; of these two Slurm runs all lines (slurm.SeveralHooks).
func (h slot) drains() bool { return h.key == "Prolog" || h.key == "Epilog" }

func (h slot) task() bool { return strings.HasPrefix(h.key, "Task") }

// named returns the hooks of a slot as slurm.conf names them: an absolute path or pattern each, in the order of lines.
func (h slot) named(conf slurmconf.Conf) (paths []string) {
	values := conf.All(h.key)
	if len(values) > 1 && !h.drains() {
		values = values[len(values)-1:] // only the last one counts
	}
	for _, v := range values {
		switch {
		case v.Text == "" || strings.EqualFold(v.Text, "(null)"):
		case path.IsAbs(v.Text):
			paths = append(paths, v.Text)
		default: // Slurm distributes it along with slurm.conf
			paths = append(paths, path.Join(path.Dir(conf.Path), v.Text))
		}
	}
	return paths
}

// otherwise returns the name of what runs the health check other than slurm.conf; empty if nothing does.
func (h slot) otherwise(s Site) string {
	const timer = "etc/systemd/system/timers.target.wants/bookend-healthcheck.timer"
	if h.key != healthKey {
		return ""
	}
	if nhc := filepath.Join(s.Root, "etc/nhc/nhc.conf"); runs(nhc, h.program) {
		return path.Base(nhc)
	}
	if _, there := inspect(filepath.Join(s.Root, timer)); there {
		return path.Base(timer)
	}
	return ""
}

func (h slot) judge(v *view) string {
	paths, other, none := h.named(v.conf()), h.otherwise(v.Site), "no "+h.key+"="
	switch {
	case len(paths) == 0 && other != "":
		return h.program + " by " + other
	case len(paths) == 0 && h.task():
		return none + ": " + h.without()
	case len(paths) == 0 && h.drains():
		v.wrong(none+": Slurm does not call "+h.program, setUp).Why = h.without()
		return ""
	case len(paths) == 0:
		v.warn(none, setUp).Why = h.without()
		return ""
	}
	if len(paths) > 1 && v.slurmdLacks(slurm.SeveralHooks) {
		v.wrong(fmt.Sprintf("%d lines %s=, but slurmd is %s", len(paths), h.key, v.Survey.Slurm.Version),
			setUp+"; it makes one line of them").
			Why = "before " + slurm.SeveralHooks.Series() + " only one of them counts"
	}
	order, ours, later := h.judgeFiles(v, paths)
	all := h.key + "= runs " + strings.Join(order, ", ")
	switch {
	case len(order) == 0: // already reported
	case ours == 0 && h.task():
		v.warn(fmt.Sprintf("%s: none names %s", all, h.program), setUp).Why = h.without()
	case ours == 0 && other == "": // a script that runs it through another file is not recognised
		fix := setUp
		if h.key == healthKey { // the key is in use
			fix = "systemctl enable --now bookend-healthcheck.timer   # or, with Node Health Check, check_bookend in " +
				"nhc.conf (/usr/share/doc/bookend/nhc/bookend.nhc)"
		}
		v.unknown(fmt.Sprintf("%s: none is %s or names it", all, h.program), fix).Why = h.without()
	case ours > 1:
		v.wrong(fmt.Sprintf("%s: %s %d times", all, h.program, ours), "name it once").
			Why = "the second finds what the first has recorded"
	case h.drains() && len(later) > 0:
		h.judgeOrder(v, all, later)
	}
	if h.key == healthKey {
		v.judgeInterval(other, h.without())
	}
	return all
}

func (h slot) judgeOrder(v *view, all string, later []string) {
	fix := fmt.Sprintf("let Bookend's run last: by the last %s= line, or in a pattern by a name such as 00-bookend, "+
		"as slurmd runs a pattern's files in reverse order", h.key)
	v.warn(fmt.Sprintf("%s: %s runs after Bookend's", all, strings.Join(later, ", ")), fix).Why =
		"what a later script starts or ends on a GPU is not seen, so it may be reported, and drain, as the job's"
}

// judgeInterval checks that slurmd runs the health check again and again: two states mean only once, when it starts.
func (v *view) judgeInterval(other, without string) {
	states, _ := v.conf().Get("HealthCheckNodeState")
	every, _ := seconds(v.conf(), "HealthCheckInterval")
	for _, once := range []string{"START_ONLY", "REBOOT_ONLY"} {
		if slurmconf.HasWord(states.Text, once) && other == "" {
			v.warn("HealthCheckNodeState="+once+": Slurm runs it only when slurmd starts",
				v.inConf("HealthCheckNodeState=ANY,CYCLE")).Why = without
			return
		}
	}
	if every == 0 {
		v.wrong("HealthCheckInterval is 0", v.inConf("HealthCheckInterval=300"))
	}
}

// judgeFiles judges what slurmd runs, and returns the names in order, how many run Bookend's hook, and what runs later.
func (h slot) judgeFiles(v *view, paths []string) (order []string, ours int, later []string) {
	for _, p := range paths {
		files := matching(p)
		if len(files) == 0 {
			fix := "install it on this node, or take its line out of " + slurmConfPath(v.Site)
			if strings.Contains(p, "bookend") {
				fix = setUp
			}
			v.wrong(h.key+"=: does not exist, or no file matches", fix).Path = p
		}
		for _, f := range files {
			h.judgeFile(v, f)
			order, later = append(order, path.Base(f.path)), append(later, path.Base(f.path))
			if h.isProgram(f) || runs(f.path, h.program) {
				ours, later = ours+1, nil
			}
		}
	}
	return order, ours, later
}

// matching returns the files of a path or pattern that slurmd runs: in reverse alphabetical order, no leading dots.
func matching(pattern string) (found []entry) {
	paths, _ := filepath.Glob(pattern)
	for _, p := range slices.Backward(paths) {
		if f, there := inspect(p); there && (p == pattern || !strings.HasPrefix(path.Base(p), ".")) {
			found = append(found, f)
		}
	}
	return found
}

// judgeFile reports what is wrong with one file, which slurmd runs as root and without checking its owner.
func (h slot) judgeFile(v *view, f entry) {
	r := rule{mode: 0o755, need: 0o500, key: "slurm.conf"}
	if h.task() {
		r.need = 0o555
	}
	r.judgeFile(v, f)
	if h.drains() && f.regular && h.isProgram(f) {
		itself := v.warn("the program itself", setUp)
		itself.Path, itself.Why = f.path, "if it crashes, because no thread is available for example, or is killed, "+
			"the node drains; the package's script exits 0 then"
	}
}

func (h slot) isProgram(f entry) bool {
	return path.Base(f.path) == h.program || path.Base(f.real) == h.program
}

func judgeFlags(v *view) string {
	flags, _ := v.conf().Get("PrologFlags")
	seen := "PrologFlags=" + flags.Text
	have, _ := v.slurmdVersion()
	if !slurmconf.Allocates(flags.Text, have) {
		v.warn(seen+" has neither Alloc nor Contain", v.inConf("PrologFlags=Alloc"))
	}
	for _, f := range slurmconf.FlagCosts {
		if slurmconf.HasWord(flags.Text, f[0]) {
			v.warn(seen+": "+f[0], "take "+f[0]+" out of PrologFlags= in "+v.path+", unless you need it").Why = f[1]
		}
	}
	return seen
}
