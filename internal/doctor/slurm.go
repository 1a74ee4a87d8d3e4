package doctor

import (
	"fmt"
	"path"
	"strings"

	"bookend/internal/config"
	"bookend/internal/slurmconf"
)

func slurmChecks() []Check {
	return []Check{
		{Name: "slurm-conf", Area: areaSlurm, Holds: "slurm.conf is found, as slurmd finds it, and can be read with all that it includes", Look: lookNowhere, Judge: judgeConf},
		{Name: "slurm-version", Area: areaSlurm, Holds: "slurmd is of a version that tells hooks enough: 22.05 to 26.05 were tried", Look: lookNowhere, Judge: judgeVersion},
		{Name: "scontrol-version", Area: areaSlurm, Holds: "scontrol, where the configuration lets it be used, is of slurmd's version", Look: lookNowhere, Judge: judgeScontrol},
		onConf("slurmd-user", areaSlurm, "slurmd, and so its hooks, run as root", nil, judgeUser),
	}
}

// included is the one line of slurm.conf that calls all of Bookend, where its snippets are installed (deploy/slurm).
func included() string { return include("bookend.conf") }

// include is the line for one of the snippets.
func include(snippet string) string {
	return "Include " + path.Join(snippetFolder, snippet)
}

// lines are what slurm.conf needs for Bookend where they are not.
func lines() (all []string) {
	for _, h := range slots() {
		if h.key != healthKey {
			all = append(all, h.key+"="+h.shipped())
		}
	}
	return append(all, "PrologFlags=Alloc", "PrologEpilogTimeout=60")
}

func judgeConf(s Site, _ Seen) []Result {
	const name = "slurm-conf"
	const why = "whether Slurm calls the hooks, and how, is written there"
	v := s.Survey.Slurm
	switch {
	case v.Unknown != "":
		return []Result{{name, Unknown, slurmConf, "could not be looked at: " + v.Unknown, why, "look why it does not answer: ls -l " + quoted(config.SlurmFolders()[1])}}
	case v.Unread != "":
		return []Result{{name, Unknown, v.Tried[len(v.Tried)-1], "could not be read: " + v.Unread, why, "let slurm.gres_conf name the gres.conf that slurmd uses, beside its slurm.conf"}}
	case v.Conf == nil:
		return []Result{{name, Unknown, slurmConf, "in none of: " + strings.Join(v.Tried, ", "),
			"this is no compute node, or its slurm.conf lies elsewhere: then run doctor with SLURM_CONF set to it. Where Slurm is yet to be set up, these lines call the hooks",
			included() + "   # as its last line, with the snippets of the package; without it, and if every node has its scripts:\n" + strings.Join(lines(), "\n")}}
	}
	if doubt := v.Conf.Doubt(); doubt != "" {
		return []Result{{name, Unknown, v.Conf.Path, doubt, "what stands there could change any answer about Slurm; slurmd does not start with a file that it cannot read", "correct that line, or make what it includes readable"}}
	}
	if l, ok := v.Conf.Crowded(); ok {
		return []Result{{name, Wrong, v.Conf.Path, fmt.Sprintf("%s has %s= and %s= in one line", l.Where(), l.Pairs[0][0], l.Pairs[1][0]),
			"Slurm takes one key a line here: neither it nor any of its commands starts with this file", "write each into a line of its own"}}
	}
	for file, problem := range v.Beside {
		return []Result{{name, Unknown, v.Conf.Path, file + " beside it could not be read: " + problem, "cards and cgroups are described there", "make it readable for root"}}
	}
	how := fmt.Sprintf("read, %d lines", len(v.Conf.Lines))
	if s.configless() {
		how += "; handed out by slurmctld (configless)"
	}
	if n := v.Conf.Node(s.NodeName); !n.Found && n.Unsure == "" {
		return []Result{{name, Warning, v.Conf.Path, how + fmt.Sprintf("; it has no node %q", s.NodeName), "which cards Slurm gives out here is then not known", "run doctor on a compute node"}}
	}
	return well(name, v.Conf.Path, "%s", how)
}

// slurmdVersion is what slurmd says, as numbers; ok is false where it does not tell.
func (s Site) slurmdVersion() (v version, ok bool) {
	return parseVersion(s.Survey.Programs["slurmd"].Text)
}

// version is one of Slurm's: 24.05.8 is {24, 5, 8}.
type version [3]int

func (v version) before(major, minor, micro int) bool {
	other := version{major, minor, micro}
	for i := range v {
		if v[i] != other[i] {
			return v[i] < other[i]
		}
	}
	return false
}

func (v version) String() string { return fmt.Sprintf("%d.%02d.%d", v[0], v[1], v[2]) }

// parseVersion reads "slurm 22.05.8" or "slurm-wlm 24.11.5".
func parseVersion(text string) (v version, ok bool) {
	fields := strings.Fields(text)
	if len(fields) < 2 || !strings.HasPrefix(fields[0], "slurm") {
		return v, false
	}
	number, _, _ := strings.Cut(fields[1], "-")
	n, err := fmt.Sscanf(strings.ReplaceAll(number, ".", " "), "%d %d %d", &v[0], &v[1], &v[2])
	return v, n >= 2 && (err == nil || n == 2)
}

func judgeVersion(s Site, _ Seen) []Result {
	const name = "slurm-version"
	if s.Survey.Slurm.Conf == nil {
		return []Result{{name, Unknown, slurmConf, notJudged + "slurm.conf was not read", "", ""}}
	}
	said := s.Survey.Programs["slurmd"]
	v, ok := s.slurmdVersion()
	say := func(level Level, seen, why, fix string) []Result {
		return []Result{{name, level, "slurmd", seen, why, fix}}
	}
	const upgrade = "upgrade Slurm to one that still gets fixes"
	switch {
	case said.Missing:
		return say(Unknown, "is neither running nor in the usual folders", "what its hooks are told depends on its version", "slurmd -V   # in the folder where it lies")
	case !ok:
		return say(Unknown, "does not tell its version: "+said.trouble(), "what its hooks are told depends on it", "slurmd -V")
	case v.before(21, 8, 0):
		return say(Wrong, v.String()+": not supported", "its hooks are told neither SLURM_JOB_GPUS nor how a job ended: cards would be guessed from device numbers", upgrade)
	case v.before(22, 5, 0):
		return say(Wrong, v.String()+": not supported", "its epilog is not told how a job ended nor where its output is, and it ends a slow hook without warning", upgrade)
	case !v.before(22, 5, 0) && v.before(22, 5, 4):
		return say(Warning, v.String(), "a hook that closes its output early counts as failed in 22.05.0 to 22.05.3, and drains the node", upgrade+": 22.05.4 or later")
	case !v.before(23, 2, 3) && v.before(23, 2, 5):
		return say(Warning, v.String(), "what a hook leaves to write after its end is killed in 23.02.3 and 23.02.4: records may not reach the disk", upgrade+": 23.02.5 or later")
	case v.before(23, 2, 0):
		return well(name, "slurmd", "%s; its epilogs know neither SLUID nor start time: a second epilog of one run is measured anew, and never drains", v)
	case !v.before(26, 6, 0):
		return well(name, "slurmd", "%s: newer than those that were tried, 22.05 to 26.05", v)
	}
	return well(name, "slurmd", "%s", v)
}

// trouble says why a program did not tell what it was asked.
func (a Said) trouble() string {
	switch {
	case a.Unknown != "":
		return a.Unknown
	case a.Refused != "":
		return "not started: " + a.Refused
	case a.Failed != "":
		return a.Failed
	case a.Missing:
		return "missing"
	}
	return fmt.Sprintf("it says %.60q", a.Text)
}

func judgeScontrol(s Site, _ Seen) []Result {
	const name = "scontrol-version"
	path, by := s.Config.Slurm.Scontrol, s.Config.Drain.ReasonBy
	if by == config.ReasonByNone {
		return well(name, path, "not run: drain.reason_by is %s", by)
	}
	if s.Survey.Slurm.Conf == nil {
		return []Result{{name, Unknown, slurmConf, notJudged + "slurm.conf was not read", "", ""}}
	}
	said := s.Survey.Programs["scontrol"]
	have, known := parseVersion(said.Text)
	want, told := s.slurmdVersion()
	const why = "scontrol of another version than slurmctld's is refused: no drain gets its reason"
	switch {
	case said.Missing && !told:
		return []Result{{name, Unknown, path, "missing, and so is slurmd", why, "let slurm.scontrol say where it is"}}
	case said.Missing:
		return []Result{{name, Wrong, path, "missing", why, "let slurm.scontrol say where it is; drain.reason_by: none does without"}}
	case !known:
		return []Result{{name, Unknown, path, "does not tell its version: " + said.trouble(), why, quoted(path) + " -V"}}
	case !told:
		return []Result{{name, Unknown, path, have.String() + "; slurmd's is not known", why, "slurmd -V"}}
	case have[0] != want[0] || have[1] != want[1]:
		return []Result{{name, Wrong, path, fmt.Sprintf("%s, slurmd is %s", have, want), why, "let slurm.scontrol name the one that was installed with slurmd"}}
	}
	return well(name, path, "%s, as slurmd", have)
}

func judgeUser(s Site, c slurmconf.Conf) []Result {
	if v, ok := c.Get("SlurmdUser"); ok && v.Text != "root" && !strings.HasPrefix(v.Text, "root(") && v.Text != "0" {
		return []Result{{"slurmd-user", Wrong, c.Path, "SlurmdUser=" + v.Text, "hooks then run as that user: they can neither ask who holds a card nor keep records", s.inConf("SlurmdUser=root")}}
	}
	return well("slurmd-user", c.Path, "root")
}
