package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"bookend/internal/config"
)

// slurmText is a slurm.conf in which all is as it must be. DIR stands for the node's folder.
const slurmText = `ClusterName=lab
SlurmctldHost=head
SlurmUser=slurm
SlurmdPidFile=DIR/slurmd.pid
Prolog=DIR/hooks/prolog
Epilog=DIR/hooks/epilog
TaskProlog=DIR/libexec/bookend-prolog
TaskEpilog=DIR/libexec/bookend-epilog
HealthCheckProgram=DIR/libexec/hc
HealthCheckInterval=300
PrologFlags=Alloc,Contain
PrologEpilogTimeout=60
ProctrackType=proctrack/cgroup
TaskPlugin=task/affinity,task/cgroup
GresTypes=gpu
Include nodes.conf
`

// cardText is what the driver's /proc says of one card.
const cardText = "Model: \t\t NVIDIA H200\nGPU UUID: \t GPU-8f0b1c00-77c1-4d0e-9b3a-5e2f00c0a00%d\nBus " +
	"Location: \t 0000:%s:00.0\nDevice Minor: \t %d\nGPU Excluded:\t No\n"

// surround makes the rest of the node: slurm.conf and its like, a slurmd, the driver, and what else is looked at.
func (n node) surround() {
	write := func(name, text string) { put(n.T, n.in(name), strings.ReplaceAll(text, "DIR", n.dir), 0o644) }
	write("slurm/slurm.conf", slurmText)
	write("slurm/nodes.conf", "NodeName=n[1-4] CPUs=8 Gres=gpu:2 State=UNKNOWN\nPartitionName=main Nodes=ALL\n")
	write("slurm/gres.conf", "NodeName=n[1-4] Name=gpu File=DIR/dev/nvidia[0-1]\n")
	write("slurm/cgroup.conf", "ConstrainDevices=yes\n")
	for _, hook := range []string{"prolog", "epilog"} {
		text, err := os.ReadFile("../../deploy/slurm/hooks/" + hook)
		must(n.T, err)
		put(n.T, n.in("hooks/"+hook), string(text), 0o755)
	}
	put(n.T, n.in("libexec/hc"), "#!/bin/sh\nexec "+n.in("libexec/bookend-healthcheck")+"\n", 0o755)
	put(n.T, n.in("sbin/slurmd"), "#!/bin/sh\n[ -n \"$SLURM_CONF\" ] || exit 1\n[ \"$1\" = -V ] && echo slurm "+
		"24.11.5 || cat "+n.in("sbin/listed")+" >&2\n", 0o755)
	put(n.T, n.in("sbin/listed"), listed(0, 1), 0o644)
	put(n.T, n.in("slurmd.pid"), "101\n", 0o644)
	n.runs(101, "slurmd", n.in("sbin/slurmd"))
	write("sys/module/nvidia/version", "580.1\n")
	for i, bus := range []string{"1b", "3d"} {
		write("proc/driver/nvidia/gpus/0000:"+bus+":00.0/information", fmt.Sprintf(cardText, i, bus, i))
		must(n.T, os.MkdirAll(n.in("dev"), 0o755))
		must(n.T, unix.Mkfifo(n.in(fmt.Sprintf("dev/nvidia%d", i)), 0o666)) // no file and no folder, as a device
	}
}

// runs makes a process: a folder of /proc.
func (n node) runs(pid int, name, exe string, args ...string) {
	folder := fmt.Sprintf("proc/%d/", pid)
	put(n.T, n.in(folder+"comm"), name+"\n", 0o644)
	put(n.T, n.in(folder+"cmdline"), strings.Join(append([]string{exe}, args...), "\x00")+"\x00", 0o644)
	put(n.T, n.in(folder+"environ"), "PATH=/bin\x00", 0o600)
	must(n.T, os.Symlink(exe, n.in(folder+"exe")))
	must(n.T, os.Symlink("/", n.in(folder+"root")))
	put(n.T, n.in(folder+"maps"), "", 0o400)
	must(n.T, os.Mkdir(n.in(folder+"fd"), 0o500))
}

// holds lets a process of root's in a cgroup have a device node of the driver open.
func holds(pid int, name, cgroup, device string) func(node) {
	return func(n node) {
		n.runs(pid, name, "/usr/bin/"+name)
		folder := fmt.Sprintf("proc/%d/", pid)
		put(n.T, n.in(folder+"stat"), fmt.Sprintf("%d (%s) S 1%s\n", pid, name, strings.Repeat(" 9", 40)), 0o444)
		put(n.T, n.in(folder+"status"), fmt.Sprintf("Name:\t%s\nUid:\t0\t0\t0\t0\nNSpid:\t%d\n", name, pid), 0o444)
		put(n.T, n.in(folder+"cgroup"), "0::"+cgroup+"\n", 0o444)
		must(n.T, os.Symlink(n.in("dev/"+device), n.in(folder+"fd/3")))
	}
}

// backendSaying is a backend that knows two cards; replaced changes what it says.
func backendSaying(version string, replaced map[string]string) string {
	card := func(i int, bus string) string {
		return fmt.Sprintf(`{"device":{"id":"GPU-8f0b1c00-77c1-4d0e-9b3a-5e2f00c0a00%d","bus_id":"0000:%s:00.0","minor":%d},"memory":{},"processes":[],"nvidia":{"nvml_index":%d,"mig_mode":false}}`, i, bus, i, i)
	}
	text := `{"bookend":1,"kind":"hello","hello":{"backend":"nvidia","version":"` + version + `"}}
{"bookend":1,"kind":"snapshot","snapshot":{"at":1,"driver":{"version":"580.1"},"readings":[` + card(0, "1b") + "," + card(1, "3d") + `]}}
{"bookend":1,"kind":"done"}`
	for old, now := range replaced {
		text = strings.ReplaceAll(text, old, now)
	}
	return "#!/bin/sh\nread request\ncat <<'END'\n" + text + "\nEND\n"
}

// edit replaces a line, or a part of one, of a file of the node; DIR stands for its folder.
func edit(name, old, now string) func(node) {
	return func(n node) {
		n.Helper()
		text, err := os.ReadFile(n.in(name))
		must(n.T, err)
		old, now := strings.ReplaceAll(old, "DIR", n.dir), strings.ReplaceAll(now, "DIR", n.dir)
		if old != "" && !strings.Contains(string(text), old) {
			n.Fatalf("%s has no %q", name, old)
		}
		changed := strings.Replace(string(text), old, now, 1)
		if old == "" {
			changed = string(text) + now
		}
		must(n.T, os.WriteFile(n.in(name), []byte(changed), 0o644))
	}
}

// conf edits slurm.conf.
func conf(old, now string) func(node) { return edit("slurm/slurm.conf", old, now) }

// saying lets the backend say something else.
func saying(old, now string) func(node) {
	return func(n node) {
		put(n.T, n.in("libexec/bookend-gpu"), backendSaying("test", map[string]string{old: now}), 0o755)
	}
}

// file makes a file of the node.
func file(name, text string, mode os.FileMode) func(node) {
	return func(n node) {
		must(n.T, os.MkdirAll(filepath.Dir(n.in(name)), 0o755))
		put(n.T, n.in(name), strings.ReplaceAll(text, "DIR", n.dir), mode)
	}
}

func both(all ...func(node)) func(node) {
	return func(n node) {
		for _, f := range all {
			f(n)
		}
	}
}

// listed is what slurmd -G says of GPUs with these minors.
func listed(minors ...int) (text string) {
	for _, m := range minors {
		text += fmt.Sprintf("slurmd: Gres Name=gpu Type=(null) Count=1 Index=%d ID=7696487 File=/dev/nvidia%d "+
			"Links=(null) Flags=HAS_FILE\n", m, m)
	}
	return text
}

// card lets the driver's /proc say something else of a GPU.
func card(bus, old, now string) func(node) {
	return edit("proc/driver/nvidia/gpus/0000:"+bus+":00.0/information", old, now)
}

func gpuMap(m map[int]string) func(node) {
	return set(func(c *config.Config) { c.NVIDIA.GPUMap = m })
}

func gone(name string) func(node) {
	return func(n node) { must(n.T, os.RemoveAll(n.in(name))) }
}

func set(change func(*config.Config)) func(node) {
	return func(n node) { change(&n.site.Config) }
}

// slurmd lets slurmd and scontrol be of a version.
func slurmdSays(version string) func(node) {
	text := "#!/bin/sh\necho " + version + "\n"
	return both(file("sbin/slurmd", text, 0o755), file("bin/scontrol", text, 0o755))
}

func mode(name string, m uint32) func(node) {
	return func(n node) { must(n.T, unix.Chmod(n.in(name), m)) }
}

// given lets a file belong to a user.
func given(name string) func(node) {
	return func(n node) { must(n.T, os.Chown(n.in(name), user, 0)) }
}

// moved lets a link lead to a user's folder.
func moved(name string) func(node) {
	return func(n node) {
		to := n.in("home/" + filepath.Base(name))
		must(n.T, os.MkdirAll(n.in("home"), 0o755))
		must(n.T, os.Chown(n.in("home"), user, 0))
		must(n.T, os.Rename(n.in(name), to))
		must(n.T, os.Symlink(to, n.in(name)))
	}
}
