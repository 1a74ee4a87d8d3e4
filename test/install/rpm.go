package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// showRPM uses Debian's rpm: there is no RHEL here.
func showRPM(b *bench) {
	r := b.debian("bookworm", checkerPackages)
	arch, err := command("uname", "-m")
	b.must("ask for the architecture", err)
	pattern := "*." + strings.TrimSpace(arch) + ".rpm"
	now, err := one(filepath.Join(b.Packages, pattern))
	b.must("find the .rpm (make packages)", err)
	later, err := one(filepath.Join(b.next(), pattern))
	b.must("find the later .rpm", err)
	for _, path := range []*string{&now, &later} {
		*path, err = r.bring(*path)
		b.must("bring the .rpm", err)
	}
	b.intoEmptyRoot(r, now)
	b.withScripts(r, now, later)
}

// intoEmptyRoot: without a shell there no script can run.
func (b *bench) intoEmptyRoot(r root, rpm string) {
	_, err := r.run("sh", "-c", "mkdir /empty && rpm --root /empty --initdb && rpm --root /empty --nodeps --noscripts -i "+rpm)
	b.needs("rpm --root installs it into an empty root (by Debian's rpm: there is no RHEL here)", err)
	out, err := r.run("rpm", "--root", "/empty", "--nodeps", "-V", "bookend")
	b.shows("rpm --verify finds all as packaged", errors.Join(err, quiet(err, out)))
	out, err = r.run("rpm", "--root", "/empty", "-q", "--configfiles", "bookend")
	b.shows("its configuration is marked as such", errors.Join(err, says(out, "/etc/bookend/bookend.yaml", "/etc/logrotate.d/bookend")))
	out, err = r.run("sh", "-c", "chroot /empty /usr/bin/bookend version && chroot /empty /usr/libexec/bookend/bookend-epilog --version")
	b.shows("its static programs start where nothing else is", errors.Join(err, says(out, "bookend-epilog")))
}

// withScripts: in a Debian whose rpm knows of no other package.
func (b *bench) withScripts(r root, now, later string) {
	_, err := r.run("rpm", "--nodeps", "-i", now)
	b.needs("rpm -i, with its scripts", err)
	yaml := r.in("/etc/bookend/bookend.yaml")
	b.must("configure", os.WriteFile(yaml, []byte("version: 1\nmode: enforce\n"), 0o644))
	_, err = r.run("rpm", "--nodeps", "-U", later)
	b.shows("rpm -U keeps the admin's configuration", errors.Join(err, contains(yaml, "mode: enforce"), r.isProgram()))
	_, err = r.run("rpm", "--nodeps", "-U", "--oldpackage", now)
	b.shows("rpm -U --oldpackage, the same", errors.Join(err, contains(yaml, "mode: enforce"), r.isProgram()))
	own := r.in("/etc/bookend/slurm/prolog.d/50-own.sh")
	b.must("write a hook of the site's", os.WriteFile(own, []byte("#!/bin/sh\n"), 0o755))
	b.must("leave what a removal that was cut short leaves", os.MkdirAll(r.in("/etc/bookend/slurm.kept/old"), 0o755))
	_, err = r.run("rpm", "-e", "bookend")
	b.shows("rpm -e leaves a stub at each hook's path", errors.Join(err, r.stubbed(), quiet(nil, strings.Join(r.beside(), " "))))
	b.shows("and what slurm.conf includes, and the admin's configuration", errors.Join(
		contains(r.in("/etc/bookend/slurm/bookend.conf"), "Prolog="), contains(yaml+".rpmsave", "mode: enforce"), contains(r.in("/etc/bookend/slurm/prolog.d/00-bookend.sh"), "bookend-prolog"), contains(own, "#!/bin/sh"),
		absent(r.in("/etc/bookend/slurm.kept"), r.in("/etc/bookend/slurm/old"))))
	_, err = r.run("rpm", "--nodeps", "-i", now)
	b.shows("rpm -i replaces the stubs", errors.Join(err, r.isProgram()))
}

// beside is what lies beside the stubs.
func (r root) beside() (left []string) {
	found, _ := filepath.Glob(r.in("/usr/libexec/bookend/*.*"))
	return found
}

func contains(path, piece string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := says(string(text), piece); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// isProgram checks that rpm's hooks start.
func (r root) isProgram() error {
	var errs []error
	for _, hook := range hooks {
		out, err := r.run(hook, "--version")
		errs = append(errs, err, says(out, filepath.Base(hook)))
	}
	return errors.Join(errs...)
}
