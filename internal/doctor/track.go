package doctor

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"bookend/internal/slurmconf"
)

func trackChecks() []Check {
	return []Check{
		onConf("proctrack", areaTrack, "Slurm tracks processes by cgroup: `ProctrackType=proctrack/cgroup`", nil, judgeProctrack),
		onConf("constrain-devices", areaTrack, "jobs can open only cards that they were given: `TaskPlugin=` has task/cgroup, cgroup.conf has `ConstrainDevices=yes`", []string{"TaskPlugin"}, judgeConstrain),
		{Name: "cgroup-mode", Area: areaTrack, Holds: "the node's cgroups are such that Slurm's plugin works on them", Look: lookNowhere, Judge: judgeCgroup},
		{Name: "ssh-logins", Area: areaTrack, Holds: "processes of logins belong to their user's job: pam_slurm_adopt in sshd's PAM configuration, without pam_systemd, and PrologFlags=Contain", Look: lookNowhere, Judge: judgeSSH},
		{Name: "linger", Area: areaTrack, Holds: "systemd keeps no user's processes without a login", Look: lookNowhere, Judge: judgeLinger},
	}
}

func judgeProctrack(s Site, c slurmconf.Conf) []Result {
	const name = "proctrack"
	v, ok := c.Get("ProctrackType")
	switch kind := strings.ToLower(v.Text); {
	case !ok:
		return well(name, c.Path, "not set: by cgroup, Slurm's default")
	case strings.HasSuffix(kind, "cgroup"):
		return well(name, c.Path, "%s", v.Text)
	case strings.HasSuffix(kind, "linuxproc"), strings.HasSuffix(kind, "pgid"):
		return []Result{{name, Warning, c.Path, v.Text, "a process that leaves its parent or its group outlives the job, with the memory it has: leftovers are likely, and no cgroup proves whose they are",
			s.inConf("ProctrackType=proctrack/cgroup")}}
	}
	return []Result{{name, Warning, c.Path, v.Text, "whose a process is Bookend reads from Slurm's cgroups alone; where there are none it is a hint", s.inConf("ProctrackType=proctrack/cgroup")}}
}

func judgeConstrain(s Site, c slurmconf.Conf) []Result {
	const name = "constrain-devices"
	const why = "a job can open cards that were given to others, by mistake too: BKD-TRESPASS tells of it, nothing keeps it from happening"
	var bad []Result
	if v, _ := c.Get("TaskPlugin"); !slurmconf.HasWord(v.Text, "task/cgroup") && !slurmconf.HasWord(v.Text, "cgroup") {
		seen := "TaskPlugin=" + v.Text + " has no task/cgroup"
		if v.Text == "" {
			seen = "no TaskPlugin="
		}
		bad = append(bad, Result{name, Warning, c.Path, seen, why, s.inConf("TaskPlugin=task/cgroup,task/affinity")})
	}
	file := filepath.Join(filepath.Dir(c.Path), "cgroup.conf")
	cg := s.Survey.Slurm.Cgroup
	if cg == nil {
		return append(bad, Result{name, Warning, file, "there is none: ConstrainDevices is no", why, "ConstrainDevices=yes   # in " + file + ", then restart slurmd"})
	}
	if v, _ := cg.Get("ConstrainDevices"); !yes(v.Text) {
		bad = append(bad, Result{name, Warning, file, "ConstrainDevices is not yes", why, "ConstrainDevices=yes   # in " + file + ", then restart slurmd"})
	}
	if len(bad) > 0 {
		return bad
	}
	return well(name, file, "ConstrainDevices=yes, by task/cgroup")
}

func yes(text string) bool {
	return slices.Contains([]string{"yes", "true", "1", "y"}, strings.ToLower(text))
}

func judgeCgroup(s Site, _ Seen) []Result {
	const name = "cgroup-mode"
	path := filepath.Join(s.Config.Paths.Sys, "fs/cgroup")
	mode := s.Survey.System.Cgroup
	plugin := ""
	if cg := s.Survey.Slurm.Cgroup; cg != nil {
		v, _ := cg.Get("CgroupPlugin")
		plugin = strings.ToLower(v.Text)
	}
	const why = "whose a process is Bookend reads from Slurm's cgroups"
	switch v, known := s.slurmdVersion(); {
	case s.Survey.System.Unknown != "":
		return []Result{{name, Unknown, path, "could not be looked at: " + s.Survey.System.Unknown, why, "stat -f " + quoted(path)}}
	case mode == "":
		return []Result{{name, Unknown, path, "no cgroups are mounted there", why, "mount | grep cgroup"}}
	case mode == "v1" && strings.HasSuffix(plugin, "/v2"), mode == "v2" && strings.HasSuffix(plugin, "/v1"):
		return []Result{{name, Wrong, path, fmt.Sprintf("the node has %s, cgroup.conf says CgroupPlugin=%s", mode, plugin), "slurmd does not start so, or tracks nothing", "CgroupPlugin=autodetect   # in cgroup.conf, then restart slurmd"}}
	case mode == "hybrid" && strings.HasSuffix(plugin, "/v2"):
		return []Result{{name, Wrong, path, "hybrid: v1 and v2 at once, and cgroup.conf says CgroupPlugin=" + plugin, "slurmd refuses hybrid mode with that plugin", "boot with systemd.unified_cgroup_hierarchy=1"}}
	case mode == "v2" && known && v.before(22, 5, 0):
		return []Result{{name, Wrong, path, fmt.Sprintf("v2, and slurmd is %s", v), "Slurm knows v2 from 22.05 on", "upgrade Slurm"}}
	}
	return well(name, path, "%s", mode)
}

func judgeSSH(s Site, _ Seen) []Result {
	const name = "ssh-logins"
	path := filepath.Join(s.Root, "etc/pam.d/sshd")
	sys := s.Survey.System
	adopts := slices.Contains(sys.SSH, "pam_slurm_adopt.so")
	const why = "what a user starts in a login over ssh belongs to no job: it outlives the job, and memory it holds has no known owner"
	switch {
	case sys.Unknown != "":
		return []Result{{name, Unknown, path, "could not be looked at: " + sys.Unknown, why, "stat " + quoted(path)}}
	case sys.NoSSH:
		return well(name, path, "none: no logins over ssh")
	case !adopts && slices.Contains(sys.SSH, "pam_slurm.so"):
		return []Result{{name, Warning, path, "pam_slurm, not pam_slurm_adopt: it lets in who has a job, and adopts nothing", why, "account required pam_slurm_adopt.so   # in " + path + ", in place of pam_slurm.so"}}
	case !adopts:
		return []Result{{name, Warning, path, "no pam_slurm_adopt", why, "account required pam_slurm_adopt.so   # the last account line of " + path}}
	}
	var bad []Result
	if slices.Contains(sys.SSH, "pam_systemd.so") {
		bad = append(bad, Result{name, Warning, path, "pam_systemd beside pam_slurm_adopt", "it moves each login out of the job's cgroup again: " + why, "take pam_systemd.so out of what " + path + " includes; systemctl mask systemd-logind"})
	}
	if c := s.Survey.Slurm.Conf; c != nil {
		flags, _ := c.Get("PrologFlags")
		if !slurmconf.HasWord(flags.Text, "Contain") && !slurmconf.HasWord(flags.Text, "X11") && !slurmconf.HasWord(flags.Text, "RunInJob") {
			bad = append(bad, Result{name, Wrong, path, "pam_slurm_adopt, but PrologFlags=" + flags.Text, "without Contain a job has no step that could adopt a login: it is refused, or belongs to no job", s.inConf("PrologFlags=Contain")})
		}
	}
	if len(bad) > 0 {
		return bad
	}
	return well(name, path, "adopted by pam_slurm_adopt")
}

func judgeLinger(s Site, _ Seen) []Result {
	const name = "linger"
	path := filepath.Join(s.Root, "var/lib/systemd/linger")
	users := s.Survey.System.Lingerers
	switch {
	case s.Survey.System.Unknown != "":
		return []Result{{name, Unknown, path, "could not be looked at: " + s.Survey.System.Unknown, "", "ls " + quoted(path)}}
	case len(users) == 0:
		return well(name, path, "nobody lingers")
	}
	said, fix := strings.Join(users[:min(len(users), maxSaid)], ", "), "loginctl disable-linger "+quoted(users[0])
	if len(users) > 1 {
		fix = fmt.Sprintf("loginctl disable-linger $(ls %s)", quoted(path))
	}
	return []Result{{name, Warning, path, fmt.Sprintf("processes of %d %s stay without a login: %s", len(users), plural("user", len(users)), said),
		"what such a service starts is in no job's cgroup: it outlives jobs, with the memory it has", fix}}
}
