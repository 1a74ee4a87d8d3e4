// Command install shows that the packages of build/packages do what an admin expects of them: fresh Debian chroots, a real
// Slurm in them with jobs on fake GPUs, upgrades and removals while a job runs. It prints a line for each thing shown, and
// ends with 1 where one is not. show.sh and debian.sh show them; stand.go gives them GPUs and Slurm.
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
	"os/exec"
	"os/signal"
	"strings"

	"golang.org/x/sys/unix"

	"bookend/test/cluster"
	"bookend/test/rig"
)

const parts = `made,debian12,debian13,debian11,rpm`

const explained = `parts to show, separated by commas:
made      checksums, contents, same bytes twice, C library, lintian, rpmlint
debian12  install, setup for each kind of site, doctor, a job under Slurm 22.05; upgrade, downgrade, removal and purge with jobs running
debian13  install, doctor, a job under Slurm 24.11; removal
debian11  install, doctor, removal; the backend under glibc 2.31
rpm       rpm --root: into an empty root; install, upgrade, removal with scripts`

func main() {
	if len(os.Args) == 4 && os.Args[1] == "stand" { // for debian.sh
		if err := stand(os.Args[2], os.Args[3]); err != nil {
			fmt.Println("error", oneLine(err))
		}
		return
	}
	only := flag.String("only", parts, explained)
	older := flag.String("older", "17e423f", "commit of the project that plays the release before")
	packages := flag.String("packages", "build/packages", "directory with the packages")
	keep := flag.Bool("keep", false, "leave the scratch directory for a look")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), `usage: make install-test INSTALL="FLAGS"`)
		flag.PrintDefaults()
	}
	flag.Parse()
	if err := perform(*packages, *older, *keep, strings.Split(*only, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "install-test: FAILED:", err)
		os.Exit(1)
	}
}

func perform(packages, older string, keep bool, only []string) error {
	for _, name := range only {
		if !strings.Contains(","+parts+",", ","+name+",") {
			return fmt.Errorf("no part %q", name)
		}
	}
	// A killed run's remains go first.
	if err := errors.Join(rig.OwnMounts(), cluster.SweepDead()); err != nil {
		return err
	}
	dir, err := cluster.Scratch()
	if err != nil {
		return err
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, unix.SIGTERM, unix.SIGHUP)
	script := exec.Command("test/install/show.sh", append([]string{packages, dir}, only...)...)
	script.Env = append(os.Environ(), "INSTALL_STAND=/proc/"+fmt.Sprint(os.Getpid())+"/exe", "INSTALL_OLDER="+older)
	script.Stdout, script.Stderr = os.Stdout, os.Stderr
	if err = script.Start(); err == nil {
		go func() { _ = script.Process.Signal(<-stop) }() // it takes away what the part made
		err = script.Wait()
	}
	if keep {
		fmt.Println("install-test: kept:", dir)
		return err
	}
	return errors.Join(err, cluster.Remove(dir))
}
