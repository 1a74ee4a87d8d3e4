package doctor

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"bookend/internal/config"
	"bookend/internal/slurmconf"
)

func nodeChecks() []Check {
	return []Check{
		{Name: "versions", Area: areaNode, Holds: "all programs of Bookend are of one release", Look: lookNowhere, Judge: judgeVersions},
		onConf("pyxis", areaNode, "task hooks do not run inside containers: no pyxis in plugstack.conf beside TaskProlog= or TaskEpilog=", nil, judgePyxis),
		onConf("job-container", areaNode, "jobs see `/run/bookend`: job_container/tmpfs gives them no private folder in its place", nil, judgeContainer),
		{Name: "collector", Area: areaNode, Holds: "node_exporter, where it runs, collects the folder of `metrics.textfile`, or a link there leads to that file", Look: lookCollected, Judge: judgeCollector},
		{Name: "syslog", Area: areaNode, Holds: "with `log.syslog` there is somebody to log to", Look: lookSyslog, Judge: judgeSyslog},
		{Name: "clock", Area: areaNode, Holds: "somebody keeps the node's clock", Look: lookNowhere, Judge: judgeClock},
	}
}

func judgeVersions(s Site, _ Seen) []Result {
	const name = "versions"
	var bad []Result
	n := 0
	for _, r := range Rules() {
		said, asked := s.Survey.Programs[r.Name]
		if !asked || said.Missing || r.place != "programs" {
			continue // the rule says so
		}
		fields := strings.Fields(said.Text)
		path := r.Paths(s)[0]
		switch {
		case said.Text == "" || len(fields) != 2:
			bad = append(bad, Result{name, Unknown, path, "does not tell its version: " + said.trouble(), "whether it fits the others is then not known", r.install(s, path)})
		case s.Version != "" && fields[1] != s.Version:
			bad = append(bad, Result{name, Wrong, path, fmt.Sprintf("version %.60s, bookend is %s", fields[1], s.Version), "programs of two releases were not tried together: one may not read what the other has recorded", installAll(s)})
		default:
			n++
		}
	}
	if len(bad) > 0 {
		return bad
	}
	return well(name, s.Self, "%s, as %d %s", firstWord(s.Version, "its own"), n, plural("hook", n))
}

func firstWord(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

func judgePyxis(s Site, c slurmconf.Conf) []Result {
	const name = "pyxis"
	has := slices.ContainsFunc(s.Survey.Slurm.Plugins, func(l string) bool { return strings.Contains(l, "pyxis") })
	var hooks []string
	for _, key := range []string{"TaskProlog", "TaskEpilog"} {
		if v, ok := c.Get(key); ok && v.Text != "" {
			hooks = append(hooks, key)
		}
	}
	path := filepath.Join(filepath.Dir(c.Path), "plugstack.conf")
	switch {
	case !has:
		return well(name, path, "no pyxis")
	case len(hooks) == 0:
		return well(name, path, "pyxis, and no task hook")
	}
	level := Warning
	if v, ok := s.slurmdVersion(); ok && !v.before(24, 11, 0) {
		level = Wrong
	}
	return []Result{{name, level, path, "pyxis, and " + strings.Join(hooks, "= and ") + "= in slurm.conf",
		"a task hook of a container job is looked for inside the container: where it is not there, up to 24.05 that is an error in the user's log, from 24.11 on the job's tasks fail",
		s.inConf(include("bookend-pyxis.conf")) + "   # in place of another file of Bookend's; or take " + strings.Join(hooks, "= and ") + "= out: the end report then has all"}}
}

func judgeContainer(s Site, c slurmconf.Conf) []Result {
	const name = "job-container"
	kind, _ := c.Get("JobContainerType")
	if !strings.HasSuffix(strings.ToLower(kind.Text), "tmpfs") {
		return well(name, c.Path, "no job_container/tmpfs")
	}
	dirs := config.PrivateFolders()
	path := filepath.Join(filepath.Dir(c.Path), "job_container.conf")
	if f := s.Survey.Slurm.Container; f != nil {
		if v, ok := f.Get("Dirs"); ok {
			dirs = strings.Split(v.Text, ",")
		}
	}
	for _, d := range dirs {
		if within(s.Config.Paths.Run, d) || within(filepath.Dir(s.ConfigPath), d) || within(s.Config.Backend, d) {
			return []Result{{name, Warning, path, "jobs have a private " + d, "task hooks find neither the job's report, nor the configuration, nor themselves there", "take " + d + " out of Dirs= in " + path}}
		}
	}
	return well(name, path, "jobs have a private %s: output that they write there gets no end report", strings.Join(dirs, ", "))
}

// within reports a path below a folder, or the folder itself.
func within(path, folder string) bool {
	folder = strings.TrimSuffix(strings.TrimSpace(folder), "/")
	return folder != "" && (path == folder || strings.HasPrefix(path, folder+"/"))
}

// collected is the folder that node_exporter reads; running is false where none does.
func (s Site) collected() (folder string, running bool) {
	for _, d := range s.Survey.Daemons.Exporter {
		running = true
		for _, long := range []string{"--collector.textfile.directory", "-collector.textfile.directory"} {
			if f := d.option("", long); f != "" {
				return strings.Trim(f, `"'`), true
			}
		}
	}
	return "", running
}

func lookCollected(s Site) Look {
	folder, _ := s.collected()
	if folder == "" || s.Config.Metrics.Textfile == "" {
		return Look{}
	}
	return Look{Place: "metrics", Paths: []string{filepath.Join(folder, filepath.Base(s.Config.Metrics.Textfile))}, Kind: Regular}
}

func judgeCollector(s Site, seen Seen) []Result {
	const name = "collector"
	file := s.Config.Metrics.Textfile
	folder, running := s.collected()
	const why = "Bookend's figures reach no monitoring"
	switch {
	case file == "":
		return well(name, s.ConfigPath, "metrics.textfile is empty: none are written")
	case s.Survey.Daemons.Unknown != "":
		return []Result{{name, Unknown, file, "whether node_exporter runs could not be told: " + s.Survey.Daemons.Unknown, why, "pgrep -a node_exporter"}}
	case !running:
		return well(name, file, "no node_exporter runs here")
	case folder == "":
		return []Result{{name, Warning, file, "node_exporter runs without --collector.textfile.directory", why, "--collector.textfile.directory=" + quoted(filepath.Dir(file)) + "   # to node_exporter's arguments"}}
	case filepath.Clean(folder) == filepath.Dir(file):
		return well(name, file, "node_exporter collects %s", folder)
	}
	if len(seen.Files) > 0 && (seen.Files[0].Real == file || strings.HasSuffix(seen.Files[0].Error, file+", which does not exist")) {
		return well(name, file, "node_exporter collects %s, where a link leads to it", folder)
	}
	return []Result{{name, Warning, file, "node_exporter collects " + folder, why, fmt.Sprintf("ln -s %s %s", quoted(file), quoted(filepath.Join(folder, filepath.Base(file))))}}
}

func lookSyslog(s Site) Look {
	return Look{Place: "dev", Paths: []string{filepath.Join(s.Config.Paths.Dev, "log")}, Kind: Other}
}

func judgeSyslog(s Site, seen Seen) []Result {
	const name = "syslog"
	path := filepath.Join(s.Config.Paths.Dev, "log")
	switch {
	case !s.Config.Log.Syslog:
		return well(name, path, "not used: log.syslog is false")
	case seen.Unknown != "":
		return []Result{{name, Unknown, path, "could not be looked at: " + seen.Unknown, "", "ls -l " + quoted(path)}}
	case len(seen.Files) == 0 || seen.Files[0].Missing || seen.Files[0].Error != "":
		what := "there is none"
		if !s.Config.Log.File {
			return []Result{{name, Wrong, path, what, "log.file is false too: what the hooks find is logged nowhere", "file: true   # below log: in bookend.yaml"}}
		}
		return []Result{{name, Warning, path, what, "what the hooks find stands in bookend.log alone, on this node", "systemctl enable --now systemd-journald-dev-log.socket   # or syslog: false, below log: in bookend.yaml"}}
	case seen.Files[0].Kind != Other:
		return []Result{{name, Warning, path, "a " + string(seen.Files[0].Kind) + ", where syslog listens", "nothing is logged there", "systemctl restart systemd-journald-dev-log.socket"}}
	}
	return well(name, path, "listens")
}

func judgeClock(s Site, _ Seen) []Result {
	const name = "clock"
	sys := s.Survey.System
	const path = "the kernel's clock"
	const why = "records and logs of several nodes cannot be put in order, and munge refuses Slurm's messages once it is minutes off"
	switch {
	case sys.Unknown != "" || sys.ClockWhy != "":
		return []Result{{name, Unknown, path, "could not be asked: " + sys.Unknown + sys.ClockWhy, why, "timedatectl"}}
	case sys.Unsynced:
		return []Result{{name, Warning, path, "nobody keeps it", why, "systemctl enable --now chronyd   # or systemd-timesyncd"}}
	}
	return well(name, path, "kept by a time service")
}
