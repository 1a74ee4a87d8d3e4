package doctor

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"bookend/internal/slurm"
	"bookend/internal/slurmconf"
)

type slot struct {
	check, key, program string
	why, without        string // what happens if the file cannot be run, or is not named
}

const healthKey = "HealthCheckProgram"

func slots() []slot {
	const (
		drains = "the node drains at the next job if slurmd cannot run it"
		task   = "if it cannot be run, every job's tasks fail, or every job's output has an error"
	)
	return []slot{
		{"slurm-prolog", "Prolog", "bookend-prolog", drains, "no job's start is looked at: nothing can be compared"},
		{"slurm-epilog", "Epilog", "bookend-epilog", drains, "no job's end is looked at: leftovers are not seen"},
		{"slurm-taskprolog", "TaskProlog", "bookend-prolog", task, "the job's output is found only if its path can be " +
			"told, and the start report comes with the end report"},
		{"slurm-taskepilog", "TaskEpilog", "bookend-epilog", task,
			"at the end of a script its processes that still use a GPU are not named"},
		{"slurm-healthcheck", healthKey, "bookend-healthcheck", "the health check never runs",
			"between jobs nothing is looked at: leftovers are not found, and no drain gets Bookend's reason"},
	}
}

// drains reports a hook whose failure drains the node: the two of which Slurm takes all lines (slurm.SeveralHooks); of
// the others, and before, the last.
func (h slot) drains() bool { return h.key == "Prolog" || h.key == "Epilog" }

// task reports a hook that runs as the job's user, and may be left out.
func (h slot) task() bool { return strings.HasPrefix(h.key, "Task") }

// named are the hooks of a slot as slurm.conf names them: an absolute path or pattern each, in the order of its lines.
func (h slot) named(conf slurmconf.Conf) (paths []string) {
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

// otherwise says what runs the health check besides slurm.conf, below the root; empty if nothing does.
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
		return none + ": " + h.without
	case len(paths) == 0 && h.drains():
		v.wrong(none+": Slurm does not call "+h.program, setUp).Why = h.without
		return ""
	case len(paths) == 0:
		v.warn(none, setUp).Why = h.without
		return ""
	}
	if len(paths) > 1 && v.slurmdLacks(slurm.SeveralHooks) {
		v.wrong(fmt.Sprintf("%d lines %s=, but slurmd is %s", len(paths), h.key, v.Survey.Slurm.Version),
			setUp+"; it makes one line of them").
			Why = "before " + slurm.SeveralHooks.Series() + " only one of them counts"
	}
	order, ours := h.judgeFiles(v, paths)
	all := h.key + "= runs " + strings.Join(order, ", ")
	switch {
	case len(order) == 0: // said already
	case ours == 0 && h.task():
		v.warn(fmt.Sprintf("%s: none names %s", all, h.program), setUp).Why = h.without
	case ours == 0 && other == "": // a script that runs it through another file is not seen through
		fix := setUp
		if h.key == healthKey { // it is taken
			fix = "systemctl enable --now bookend-healthcheck.timer   # or, with Node Health Check, check_bookend in " +
				"nhc.conf (/usr/share/doc/bookend/nhc/bookend.nhc)"
		}
		v.unknown(fmt.Sprintf("%s: none is %s or names it", all, h.program), fix).Why = h.without
	case ours > 1:
		v.wrong(fmt.Sprintf("%s: %s %d times", all, h.program, ours), "name it once").
			Why = "the second finds what the first has recorded"
	}
	if every, _ := seconds(v.conf(), "HealthCheckInterval"); h.key == healthKey && every == 0 {
		v.wrong("HealthCheckInterval is 0", v.inConf("HealthCheckInterval=300"))
	}
	return all
}

func (h slot) judgeFiles(v *view, paths []string) (order []string, ours int) {
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
			if order = append(order, path.Base(f.path)); h.isProgram(f) || runs(f.path, h.program) {
				ours++
			}
		}
	}
	return order, ours
}

// matching are the files that a path or pattern of slurm.conf leads to, in the order in which slurmd runs them: those
// of a pattern in reverse alphabetical order, without those whose name begins with a dot.
func matching(pattern string) (found []entry) {
	paths, _ := filepath.Glob(pattern)
	for _, p := range slices.Backward(paths) {
		if f, there := inspect(p); there && (p == pattern || !strings.HasPrefix(path.Base(p), ".")) {
			found = append(found, f)
		}
	}
	return found
}

// judgeFile reports what is wrong with one file that slurmd runs, Bookend's or not. It runs it as root without checking
// its owner.
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
	has := func(flag string) bool { return slurmconf.HasWord(flags.Text, flag) }
	seen := "PrologFlags=" + flags.Text
	if !slices.ContainsFunc([]string{"Alloc", "Contain", "NoHold", "X11", "RunInJob", "ForceRequeueOnFail"}, has) {
		v.warn(seen+" has neither Alloc nor Contain", v.inConf("PrologFlags=Alloc"))
	}
	for _, flag := range []string{"Serial", "RunInJob"} {
		if has(flag) {
			v.warn(seen+": "+flag, "take "+flag+" out of PrologFlags= in "+v.path)
		}
	}
	return seen
}
