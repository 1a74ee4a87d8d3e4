package doctor

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
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
	listed := "slurmd: Gres Name=gpu Type=(null) Count=1 Index=%d ID=7696487 File=/dev/nvidia%[1]d Links=(null) " +
		"Flags=HAS_FILE\n"
	write("sbin/listed", fmt.Sprintf(listed, 0)+fmt.Sprintf(listed, 1))
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

// holds lets a process of root's in a cgroup have the driver open.
func (n node) holds(pid int, name, cgroup string) {
	n.runs(pid, name, "/usr/bin/"+name)
	folder := fmt.Sprintf("proc/%d/", pid)
	put(n.T, n.in(folder+"stat"), fmt.Sprintf("%d (%s) S 1%s\n", pid, name, strings.Repeat(" 9", 40)), 0o444)
	put(n.T, n.in(folder+"status"), fmt.Sprintf("Name:\t%s\nUid:\t0\t0\t0\t0\nNSpid:\t%d\n", name, pid), 0o444)
	put(n.T, n.in(folder+"cgroup"), "0::"+cgroup+"\n", 0o444)
	must(n.T, os.Symlink(n.in("dev/nvidiactl"), n.in(folder+"fd/3")))
}
