package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"bookend/internal/config"
	"bookend/internal/slurm"
	"bookend/internal/slurmcmd"
	"bookend/internal/slurmconf"
)

// judgeDevices checks that a job can open only its own GPUs: cgroup.conf must say so, and task/cgroup carry it out.
func judgeDevices(v *view) string {
	s := v.Survey.Slurm
	if count, unsure := v.given(); count <= 0 && unsure == "" {
		return "not applicable: slurm.conf has no GPUs of this node"
	}
	v.path = filepath.Join(filepath.Dir(s.Conf.Path), "cgroup.conf")
	constrain, set := s.Cgroup.Get("ConstrainDevices")
	cgroup, _ := s.Cgroup.Get("CgroupPlugin")
	plugins, _ := v.conf().Get("TaskPlugin")
	fix := "ConstrainDevices=yes   # in " + v.path + " (configless: in slurmctld's), then: scontrol reconfigure"
	switch yes, known := isYes(constrain.Text); {
	case s.CgroupUnread != "":
		v.unknown("could not be read: "+s.CgroupUnread, "make it readable for root")
	case strings.EqualFold(cgroup.Text, "disabled"):
		v.wrong("CgroupPlugin=disabled: nothing is constrained", "CgroupPlugin=autodetect   # in "+v.path)
	case !set && s.Cgroup.Doubt() != "":
		v.unknown(s.Cgroup.Doubt(), "correct that line")
	case !set:
		v.wrong("ConstrainDevices is not set, and its default is no", fix)
	case !known || !yes: // a word that Slurm does not know keeps the default
		v.wrong(fmt.Sprintf("ConstrainDevices=%.60s", constrain.Text), fix)
	}
	if !slurmconf.HasWord(plugins.Text, "task/cgroup") && !slurmconf.HasWord(plugins.Text, "cgroup") {
		v.wrong(fmt.Sprintf("TaskPlugin=%.60s: ConstrainDevices has no effect without task/cgroup", plugins.Text),
			v.inConf("TaskPlugin=task/affinity,task/cgroup")).Path = s.Conf.Path
	}
	return "ConstrainDevices=yes"
}

// isYes reads a boolean as Slurm and systemd write it.
func isYes(text string) (yes, known bool) {
	text = strings.ToLower(text)
	yes = slices.Contains([]string{"yes", "true", "1", "up"}, text)
	return yes, yes || slices.Contains([]string{"no", "false", "0", "down", "off"}, text)
}

// judgeRequeue tells what a site gets where an epilog's exit status may start a failed job again at once.
func judgeRequeue(v *view) string {
	drains := v.Config.Mode == config.Enforce
	for _, p := range v.Config.Policy.Partitions {
		drains = drains || p.Mode == config.Enforce
	}
	if !drains || v.conf().Expedites() != slurm.Yes || v.slurmdLacks(slurm.TellsRun) {
		return "no exit status of an epilog decides whether a failed job starts again"
	}
	v.warn("SlurmctldParameters has enable_expedited_requeue, and Bookend may drain: a failed job starts again at "+
		"once only for a fault of a GPU, and for a leftover scontrol drains the node",
		"bookend explain requeue   # nothing is wrong: what jobs and admins get")
	return ""
}

func mpsDir(s Site) string { return filepath.Join(s.Root, "tmp/nvidia-mps") }

// judgeLeftovers looks for the directory of an MPS daemon that is gone, and says whether jobs share /dev/shm.
func judgeLeftovers(v *view) string {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		defer unix.Close(fd)
		// Threat: any user may listen there: nothing is sent or read, and this child has a deadline.
		err = unix.Connect(fd, &unix.SockaddrUnix{Name: filepath.Join(v.path, "control")})
	}
	if errors.Is(err, unix.ECONNREFUSED) {
		v.warn("the MPS daemon of this directory is gone", "rm -r "+quoted(v.path))
	}
	for _, key := range []string{"JobContainerType", "NamespaceType"} { // until 25.05, and since
		if kind, _ := v.conf().Get(key); slices.Contains([]string{"tmpfs", "linux"}, path.Base(kind.Text)) {
			return "none; each job has its own /dev/shm: " + key + "=" + kind.Text
		}
	}
	return "none; jobs share /dev/shm, and what they leave there stays: JobContainerType=job_container/tmpfs mends that"
}

const logindConf = "systemd/logind.conf"

func logindMain(s Site) string { return filepath.Join(s.Root, "etc", logindConf) }

// judgeRemoveIPC checks what logind does at the last logout of a user.
func judgeRemoveIPC(v *view) string {
	files, installed := v.logindFiles()
	if !installed {
		return "not applicable: no systemd-logind"
	}
	value, where := "", v.path
	for _, file := range files {
		if f, _ := inspect(file); f.real == os.DevNull { // it hides a package's
			continue
		}
		text, err := slurmcmd.ReadText(file)
		if err != nil {
			v.unknown("could not be read: "+err.Error(), "systemd-analyze cat-config "+logindConf)
			return ""
		}
		set, shipped := loginValue(string(text))
		if value = cmp.Or(set, value, shipped); set != "" {
			where = file
		}
	}
	v.path = where
	if yes, known := isYes(value); known && !yes {
		return "RemoveIPC=no"
	}
	v.warn(fmt.Sprintf("RemoveIPC=%.20s", cmp.Or(value, "yes, its default")),
		"RemoveIPC=no   # below [Login] in "+quoted(where)+", then: systemctl restart systemd-logind")
	return ""
}

// logindFiles returns the files of logind's configuration, the one that counts most last. Drop-ins count in the order
// of their names, and one of the admin's hides a package's of the same name.
func (s Site) logindFiles() (files []string, installed bool) {
	dropIns := map[string]string{}
	for _, dir := range []string{"usr/lib", "lib", "usr/local/lib", "run", "etc"} {
		main := filepath.Join(s.Root, dir, logindConf)
		if _, there := inspect(main); there {
			files = append(files, main)
		}
		_, program := inspect(filepath.Join(s.Root, dir, "systemd/systemd-logind"))
		installed = installed || program
		found, _ := filepath.Glob(main + ".d/*.conf")
		for _, file := range found {
			dropIns[path.Base(file)] = file
		}
	}
	for _, name := range slices.Sorted(maps.Keys(dropIns)) {
		files = append(files, dropIns[name])
	}
	return files, installed
}

// loginValue returns what a file of logind's sets RemoveIPC to, and what a comment in it gives as the default: a
// distribution's own default is a comment in the file that it ships.
func loginValue(text string) (set, shipped string) {
	line := regexp.MustCompile(`(?m)^[ \t]*([#;]?)[ \t]*RemoveIPC[ \t]*=[ \t]*(\S+)`)
	for section := range strings.SplitSeq("\n"+text, "\n[") {
		if !strings.HasPrefix(section, "Login]") {
			continue
		}
		for _, found := range line.FindAllStringSubmatch(section, -1) {
			if found[1] == "" {
				set = found[2]
			} else {
				shipped = found[2]
			}
		}
	}
	return set, shipped
}
