package main

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// root is a Debian of its own.
type root struct {
	dir string
	env []string
}

// debian makes a fresh Debian with /proc, /sys, /dev, a tmpfs on /run and the folders of this machine's mounted.
func (b *bench) debian(suite string, packages []string, binds ...string) root {
	r := root{dir: filepath.Join(b.dir, b.part)}
	_, err := command("test/chroot/make.sh", append([]string{"--fresh", suite, r.dir}, packages...)...)
	b.must("make a fresh "+suite, err)
	b.later(func() error {
		_, err := command("test/chroot/make.sh", "--remove", r.dir)
		return err
	})
	_, err = command("test/chroot/make.sh", append([]string{"--mount", r.dir}, binds...)...)
	b.must("mount what "+suite+" needs", err)
	return r
}

// in is a path as this machine sees it.
func (r root) in(path string) string { return filepath.Join(r.dir, path) }

// run runs a command as root in it.
func (r root) run(argv ...string) (string, error) {
	cmd := exec.Command("chroot", append([]string{r.dir}, argv...)...)
	cmd.Dir = "/"
	cmd.Env = append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C", "TZ=UTC",
		"DEBIAN_FRONTEND=noninteractive"}, r.env...)
	return finish(cmd)
}

// answers checks that a command succeeds and says all pieces.
func (r root) answers(argv []string, pieces ...string) error {
	out, err := r.run(argv...)
	if err != nil {
		return fmt.Errorf("%q: %w", argv, err)
	}
	return says(out, pieces...)
}

// bring copies a file to /root of it and returns its path there.
func (r root) bring(file string) (string, error) {
	path := filepath.Join("/root", filepath.Base(file))
	_, err := command("cp", file, r.in(path))
	return path, err
}

// apt installs a package's file as an admin does: in /root as "./bookend_….deb".
func (r root) apt(deb string) (string, error) {
	path, err := r.bring(deb)
	if err != nil {
		return "", err
	}
	return r.run("sh", "-c", "cd /root && apt-get install -y ./"+filepath.Base(path))
}

// dpkg installs a package's file and keeps the admin's configuration, as automation does.
func (r root) dpkg(deb string) error {
	path, err := r.bring(deb)
	if err != nil {
		return err
	}
	_, err = r.run("dpkg", "-i", "--force-confold", path)
	return err
}

// installed is the version that dpkg knows of, "" where there is none.
func (r root) installed() string {
	out, err := r.run("dpkg-query", "-W", "-f", "${Status} ${Version}", "bookend")
	version, ok := strings.CutPrefix(out, "install ok installed ")
	if err != nil || !ok {
		return ""
	}
	return version
}

// intact checks that all files are as the package has them, but for the admin's.
func (r root) intact() error {
	out, err := r.run("dpkg", "--verify", "bookend")
	for line := range strings.Lines(out) {
		if !strings.Contains(line, " c /etc/") {
			err = errors.Join(err, fmt.Errorf("dpkg --verify: %s", line))
		}
	}
	return err
}

// hooks are the paths at which slurmd must always find something to start.
var hooks = []string{"/usr/libexec/bookend/bookend-prolog", "/usr/libexec/bookend/bookend-epilog"}

const stubMark = "# Left by the removal of Bookend"

// stubbed checks that at each hook's path is a small script of root's that says so and ends well.
func (r root) stubbed() error {
	var errs []error
	for _, hook := range append(hooks, "/usr/libexec/bookend/bookend-healthcheck") {
		errs = append(errs, r.isStub(hook))
	}
	return errors.Join(errs...)
}

func (r root) isStub(hook string) error {
	said, err := command("stat", "-c", "%F %a %u:%g", r.in(hook))
	if err == nil && said != "regular file 755 0:0\n" {
		err = fmt.Errorf("%s is a %s", hook, said)
	}
	out, errTask := r.run("env", "-i", "SLURM_SCRIPT_CONTEXT=prolog_task", hook)
	if out != "" {
		errTask = fmt.Errorf("%s as a task's hook says %q", hook, out)
	}
	return errors.Join(err, holds(r.in(hook), stubMark), errTask,
		r.answers([]string{"env", "-i", "SLURM_SCRIPT_CONTEXT=prolog_slurmd", hook}, "Bookend is not installed", hook))
}

// programs checks that at each hook's path is the program again, and that dpkg has forgotten what a removal told it.
func (r root) programs() error {
	var errs []error
	for _, hook := range hooks {
		errs = append(errs, r.answers([]string{hook, "--version"}, filepath.Base(hook)),
			absent(r.in(hook+".removed"), r.in(hook+".new")))
	}
	return errors.Join(append(errs, r.undiverted())...)
}

func (r root) undiverted() error {
	out, err := r.run("dpkg-divert", "--list", "*bookend*")
	if out != "" {
		err = fmt.Errorf("diversions: %s", out)
	}
	return err
}
