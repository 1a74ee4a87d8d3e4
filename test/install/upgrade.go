package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"bookend/test/cluster"
)

// change installs another version, and watches meanwhile that slurmd would always find something to start.
func (n *node) change(deb string) error {
	want, err := command("dpkg-deb", "-f", deb, "Version")
	if err != nil {
		return err
	}
	if err := n.watched(func() error { return n.dpkg(deb) }); err != nil {
		return err
	}
	if have := n.installed(); have != strings.TrimSpace(want) {
		return fmt.Errorf("installed is %q, want %q", have, want)
	}
	return errors.Join(n.intact(), n.programs())
}

// watched does something and looks all the while whether each hook is there and may be started.
func (n *node) watched(do func() error) error {
	var looks, missed int
	err := meanwhile(do, func() {
		for _, hook := range hooks {
			looks++
			if unix.Access(n.in(hook), unix.X_OK) != nil {
				missed++
			}
		}
	})
	if missed > 0 || looks < 1000 {
		err = errors.Join(err, fmt.Errorf("in %d of %d looks a hook could not have been started", missed, looks))
	}
	return err
}

// meanwhile does something, and something else again and again until it is done.
func meanwhile(do func() error, again func()) error {
	var stop atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !stop.Load() {
			again()
		}
	}()
	err := do()
	stop.Store(true)
	<-done
	return err
}

// goesUpAndDown shows an upgrade and a downgrade between the ends of a job, and while a hook runs.
func (n *node) goesUpAndDown() {
	old, later := n.b.deb(), n.b.nextDeb()
	for _, way := range []struct{ name, from, to string }{{"upgrade", old, later}, {"downgrade", later, old}} {
		n.b.must("install what it begins with", n.dpkg(way.from))
		n.b.shows(way.name+" while a job runs: record whole, both reports, node idle", n.during(way.to))
		n.b.must("install what it begins with", n.dpkg(way.from))
		n.b.shows(way.name+" while the prolog runs: the same", n.duringProlog(way.to))
		n.b.must("install what it begins with", n.dpkg(way.from))
		n.b.shows(way.name+" while the epilog runs: the same", n.duringEpilog(way.to))
	}
	n.b.shows("the admin's configuration is kept", holds(n.in("/etc/bookend/bookend.yaml"), "on_unknown: drain"))
}

// meetsOlder shows the same with the code of an earlier commit, whose records the later one finds and the other way round.
func (n *node) meetsOlder() {
	deb, err := n.b.olderDeb()
	n.b.must("build commit "+n.b.Older, err)
	now := n.b.deb()
	// One from before counters of later releases were kept says that it does not know them, and counts anew.
	n.known = "counts are damaged"
	n.b.shows("downgrade to the code of "+n.b.Older+" while a job runs: record whole, both reports, node idle", n.during(deb))
	n.b.shows("upgrade from the code of "+n.b.Older+" while a job runs: the same", n.during(now))
	n.known = ""
}

func (n *node) during(deb string) error {
	id, err := n.begins()
	if err != nil {
		return err
	}
	err = n.change(deb)
	return errors.Join(err, n.tells(), n.ends(id))
}

// slowly makes the driver answer so late that a hook can be replaced while it runs.
func (n *node) slowly(do func() error) error {
	const call = "on.nvmlInit_v2"
	if err := n.world.Set(call, "sleep 2000"); err != nil {
		return err
	}
	return errors.Join(do(), n.world.Set(call, ""))
}

func (n *node) duringProlog(deb string) error {
	_ = os.Remove(n.signal())
	var id cluster.JobID
	err := n.slowly(func() (err error) {
		if id, err = n.slurm.Submit(n.user, n.world.FakeCUDA()+" alloc --mib 2000 --sleep 0", oneGPU); err != nil {
			return err
		}
		return n.replaces("bookend-prolog", deb)
	})
	return errors.Join(err, n.ends(id))
}

func (n *node) duringEpilog(deb string) error {
	id, err := n.begins()
	if err != nil {
		return err
	}
	err = n.slowly(func() error {
		if err := n.tells(); err != nil {
			return err
		}
		return n.replaces("bookend-epilog", deb)
	})
	return errors.Join(err, n.ends(id))
}

// replaces installs a version while a hook runs, and makes sure that it was so.
func (n *node) replaces(hook, deb string) error {
	file := "/usr/libexec/bookend/" + hook // the path in its own namespace; this machine runs none
	if err := n.until(hook+" runs", func() bool { return runs(file) }); err != nil {
		return err
	}
	ran := false
	err := meanwhile(func() error { return n.change(deb) }, func() {
		ran = ran || runs(file+" (deleted)")
		time.Sleep(5 * time.Millisecond)
	})
	if !ran {
		err = errors.Join(err, fmt.Errorf("no %s ran on when its file was replaced", hook))
	}
	return err
}

// runs says whether a process has this executable. A deleted one's name ends so in /proc.
func runs(file string) bool {
	links, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, link := range links {
		if exe, err := os.Readlink(link); err == nil && strings.HasSuffix(exe, file) {
			return true
		}
	}
	return false
}

// isRemoved shows what remains of a removed package while slurm.conf still names its hooks, and that a new installation
// and a purge are clean.
func (n *node) isRemoved() {
	id, err := n.begins()
	n.b.must("start a job", err)
	err = n.watched(func() error { _, err := n.run("dpkg", "-r", "bookend"); return err })
	n.b.needs("dpkg -r while a job runs: at each moment slurmd could start each hook", err)
	n.b.shows("a stub is at each hook's path; it ends with 0, says so, and is silent in a user's task", n.stubbed())
	n.b.must("let the job end", n.tells())
	_, err = n.slurm.Wait(id, patience)
	n.b.shows("the job ends, the node stays up", errors.Join(err, n.isUp()))
	n.b.shows("the stub told syslog and slurmd's log", n.stubTold())
	n.b.shows("slurm.conf can still be read", n.slurm.Scontrol("reconfigure"))
	n.b.shows("the next job runs, the node stays up", n.runsWithoutUs())
	err = n.watched(func() error { return n.dpkg(n.b.deb()) })
	n.b.needs("installing it again replaces the stubs", errors.Join(err, n.intact(), n.programs()))
	n.b.shows("the admin's configuration is still there", holds(n.in("/etc/bookend/bookend.yaml"), "mode: enforce"))
	n.runsJob()
	n.purges()
}

func (n *node) stubTold() error {
	log, err := n.slurm.SlurmdLog("n1")
	return errors.Join(err, says(log, "Bookend is not installed"), says(n.log.said(),
		"bookend: Bookend is not installed, but slurm.conf still names /usr/libexec/bookend/bookend-epilog"))
}

func (n *node) runsWithoutUs() error {
	id, err := n.slurm.Submit(n.user, "echo done", oneGPU)
	if err != nil {
		return err
	}
	if _, err = n.slurm.Wait(id, patience); err != nil {
		return err
	}
	out, err := n.slurm.Output(id)
	if err == nil && out != "done\n" {
		err = fmt.Errorf("the job's log: %q", out)
	}
	return errors.Join(err, n.isUp())
}

// purges shows a purge; slurm.conf still names what goes with it.
func (n *node) purges() {
	n.b.shows("dpkg -P warns that slurm.conf names what is gone now",
		n.answers([]string{"dpkg", "-P", "bookend"}, "still names what is gone now"))
	n.b.shows("stubs, configuration, records and logs are gone", absent(n.in("/usr/libexec/bookend"), n.in("/etc/bookend"),
		n.in("/var/lib/bookend"), n.in("/var/log/bookend"), n.in("/run/bookend")))
	n.b.shows("dpkg knows nothing of it any more", n.undiverted())
}
