package main

import (
	"errors"
	"fmt"
	"os"
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

// bring copies a file to /root of it and returns its path there.
func (r root) bring(file string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	path := filepath.Join("/root", filepath.Base(file))
	return path, os.WriteFile(r.in(path), data, 0o644)
}

// apt installs a package's file as an admin does.
func (r root) apt(deb string) (string, error) {
	path, err := r.bring(deb)
	if err != nil {
		return "", err
	}
	// In /root as "./bookend_….deb".
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
	info, err := os.Lstat(r.in(hook))
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Mode().Perm() != 0o755 {
		return fmt.Errorf("%s: mode %v", hook, info.Mode())
	}
	if owner, err := command("stat", "-c", "%u:%g", r.in(hook)); err != nil || owner != "0:0\n" {
		return fmt.Errorf("%s: owner %q, %v", hook, owner, err)
	}
	text, err := os.ReadFile(r.in(hook))
	if err != nil || !strings.Contains(string(text), stubMark) {
		return fmt.Errorf("%s is no stub, %v", hook, err)
	}
	out, err := r.run("env", "-i", "SLURM_SCRIPT_CONTEXT=prolog_slurmd", hook)
	if err == nil {
		err = says(out, "Bookend is not installed", hook)
	}
	if err == nil {
		out, err = r.run("env", "-i", "SLURM_SCRIPT_CONTEXT=prolog_task", hook)
		if out != "" {
			err = fmt.Errorf("%s as a task's hook says %q", hook, out)
		}
	}
	return err
}

// programs checks that at each hook's path is the program again, and that dpkg has forgotten what a removal told it.
func (r root) programs() error {
	var errs []error
	for _, hook := range hooks {
		out, err := r.run(hook, "--version")
		errs = append(errs, err)
		if err == nil {
			errs = append(errs, says(out, filepath.Base(hook)))
		}
		errs = append(errs, absent(r.in(hook+".removed"), r.in(hook+".new")))
	}
	out, err := r.run("dpkg-divert", "--list", "*bookend*")
	if out != "" {
		err = fmt.Errorf("diversions: %s", out)
	}
	return errors.Join(append(errs, err)...)
}
