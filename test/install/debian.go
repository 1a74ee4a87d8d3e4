package main

import (
	"errors"
	"os"
	"os/exec"
	"strings"
)

// installs shows that apt installs the package's file, before slurm.conf names anything.
func (n *node) installs() {
	out, err := n.apt(n.b.deb())
	if err == nil && n.installed() == "" {
		err = errors.New(out)
	}
	n.b.needs("apt install ./bookend_*.deb", err)
	n.b.shows("all files are as packaged", n.intact())
	version, err := n.run("bookend", "version")
	n.b.shows("bookend version: "+strings.TrimSpace(version), err)
}

// examine runs doctor and returns what it said with its exit code.
func (n *node) examine(flags ...string) (string, int, error) {
	out, err := n.run(append([]string{"bookend", "doctor"}, flags...)...)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return out, exit.ExitCode(), nil
	}
	return out, 0, err
}

// runsJob shows that a job is run, and where one sees it.
func (n *node) runsJob() {
	id, err := n.begins()
	n.b.needs("a job starts", err)
	n.b.must("let it end", n.tells())
	n.b.shows("it ends: node idle, record whole, both reports in its log, both ends in bookend.log", n.ends(id))
	n.b.shows("its metrics", holds(n.in("/var/lib/bookend/bookend.prom"),
		`bookend_last_run_timestamp_seconds{hook="prolog"} 1`, `bookend_last_run_timestamp_seconds{hook="epilog"} 1`,
		`bookend_drains_total{hook="epilog"} 0`))
}

func showDebian12(b *bench) {
	n := b.newNode("bookworm")
	n.installs()
	n.doctorsWithout()
	n.starts(func() (string, error) { return packaged, nil })
	n.doctorsWith()
	n.isMended()
	n.runsJob()
	n.rotates()
	n.goesUpAndDown()
	n.meetsOlder()
	n.isCutShort()
	n.isRemoved()
}

func showDebian13(b *bench) {
	n := b.newNode("trixie", "systemd")
	n.installs()
	n.isEnabled()
	n.doctorsWithout()
	n.starts(n.setsUp)
	n.doctorsWith()
	n.runsJob()
	n.leaves()
}

func showDebian11(b *bench) {
	n := b.newNode("bullseye")
	n.installs()
	libc, _ := n.run("dpkg-query", "-W", "-f", "${Version}", "libc6")
	b.shows("the backend starts under glibc "+libc,
		n.answers([]string{"/usr/libexec/bookend/bookend-gpu", "--version"}, "bookend-gpu"))
	n.doctorsWithout()
	b.must("configure", n.configure("observe"))
	b.shows("it reads two fake GPUs there", n.answers([]string{"bookend", "snapshot"}, "nvidia0", "nvidia1", "0 MiB used"))
	// Its Slurm is not started, but configured, as far as doctor asks.
	b.must("write a slurm.conf", os.WriteFile(n.in("/etc/slurm/slurm.conf"), []byte("ClusterName=old\nSlurmctldHost=localhost\n"+
		"NodeName=localhost CPUs=1\nPartitionName=main Nodes=localhost\nInclude "+packaged+"\n"), 0o644))
	n.env = []string{"SLURM_CONF=/etc/slurm/slurm.conf"} // not that of a slurmd of this machine's, which /proc shows too
	out, _, err := n.examine()
	if err == nil {
		err = says(out, "20.11")
	}
	b.shows("bookend doctor says that Slurm 20.11 is not supported", err)
	n.leaves()
}

// doctorsWithout shows what doctor says of a node as it was found.
func (n *node) doctorsWithout() {
	out, _, err := n.examine()
	if err == nil {
		err = says(strings.ToLower(out), "driver")
	}
	n.b.shows("bookend doctor says that there is no driver", err)
}

// doctorsWith shows that doctor is content where the driver is.
func (n *node) doctorsWith() {
	n.b.must("configure", n.configure("enforce"))
	n.b.shows("bookend doctor is content with the fake libraries", n.doctorIsContent())
}

// rotates shows that logrotate takes the file.
func (n *node) rotates() {
	_, err := n.run("logrotate", "--force", "/etc/logrotate.d/bookend")
	if err == nil {
		_, err = os.Stat(n.in("/var/log/bookend/bookend.log.1"))
	}
	n.b.shows("logrotate moves bookend.log aside", err)
}

// leaves shows removal and purge where no job runs.
func (n *node) leaves() {
	_, err := n.run("apt-get", "remove", "-y", "bookend")
	n.b.needs("apt remove", err)
	n.b.shows("a stub is at each hook's path; it ends with 0, says so, and is silent in a user's task", n.stubbed())
	if n.slurm != nil {
		id, err := n.begins()
		if err == nil {
			err = n.tells()
		}
		if err == nil {
			_, err = n.slurm.Wait(id, patience)
		}
		n.b.shows("a job runs with the stubs, and the node stays up", errors.Join(err, n.isUp()))
	}
	if n.slurm != nil {
		n.leavesOthers()
		return
	}
	_, err = n.run("apt-get", "purge", "-y", "bookend")
	n.b.shows("apt purge takes stubs, configuration, records and logs away", errors.Join(err, absent(n.in("/usr/libexec/bookend"),
		n.in("/etc/bookend"), n.in("/var/lib/bookend"), n.in("/var/log/bookend"))))
}
