// Command install shows that the packages of build/packages do what an admin expects of them: fresh Debian chroots, a real
// Slurm in them with jobs on fake GPUs, upgrades and removals while a job runs. It prints a line for each thing shown, and
// ends with 1 where one is not.
//
//	go run ./test/install                      all parts
//	go run ./test/install -only debian12       one or more parts, separated by commas
//	go run ./test/install -older COMMIT        another commit of the project as the release before
//
// It runs as root, in a mount namespace of its own; all it makes lies in a scratch folder that goes with it, but for the
// Debian systems that test/chroot/make.sh keeps, and what it builds, in build/. No systemd runs in a chroot: what the
// packages tell systemd is not shown.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"bookend/test/cluster"
	"bookend/test/mountns"
)

// part is one of the things that are shown.
type part struct {
	name string
	what string
	show func(*bench)
}

var parts = []part{
	{"made", "checksums, contents, same bytes twice, C library, lintian, rpmlint", byScript},
	{"debian12", "install, doctor, a job under Slurm 22.05; upgrade, downgrade, removal and purge with jobs running", showDebian12},
	{"debian13", "install, doctor, a job under Slurm 24.11; removal", showDebian13},
	{"debian11", "install, doctor, removal; the backend under glibc 2.31", showDebian11},
	{"rpm", "rpm --root: into an empty root; install, upgrade, removal with scripts", byScript},
}

func main() {
	var names []string
	explained := ""
	for _, p := range parts {
		names = append(names, p.name)
		explained += fmt.Sprintf("\n%-9s %s", p.name, p.what)
	}
	only := flag.String("only", strings.Join(names, ","), "parts to show:"+explained)
	older := flag.String("older", "17e423f", "commit of the project that plays the release before")
	packages := flag.String("packages", "build/packages", "directory with the packages")
	keep := flag.Bool("keep", false, "leave the scratch directory for a look")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), `usage: make install-test INSTALL="FLAGS"`)
		flag.PrintDefaults()
	}
	flag.Parse()
	if err := perform(strings.Split(*only, ","), options{Packages: *packages, Older: *older, Keep: *keep}); err != nil {
		fmt.Fprintln(os.Stderr, "install-test: FAILED:", err)
		os.Exit(1)
	}
}

func perform(only []string, o options) error {
	for _, name := range only {
		if !slices.ContainsFunc(parts, func(p part) bool { return p.name == name }) {
			return fmt.Errorf("no part %q", name)
		}
	}
	if err := mountns.Enter(); err != nil {
		return err
	}
	if err := cluster.SweepDead(); err != nil { // what a killed run left
		return err
	}
	b, err := newBench(o)
	if err != nil {
		return err
	}
	if err := useOldLibrary(); err != nil {
		return errors.Join(err, b.end())
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, unix.SIGTERM, unix.SIGHUP)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, p := range parts {
			if slices.Contains(only, p.name) {
				b.run(p)
			}
		}
	}()
	select {
	case <-done:
	case s := <-stop:
		return errors.Join(fmt.Errorf("ended by %v", s), b.end())
	}
	return errors.Join(b.verdict(time.Now()), b.end())
}
