package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func showMade(b *bench) {
	b.shows("SHA256SUMS names each package, and fits", b.sums())
	b.shows("the .deb has what it must have, root's, with the right modes", b.holds())
	b.shows("another directory, the same bytes", b.again())
	b.oldGlibc()
	b.checkers()
}

func (b *bench) sums() error {
	if _, err := command("sh", "-c", "cd "+b.Packages+" && sha256sum --check --strict SHA256SUMS"); err != nil {
		return err
	}
	sums, err := os.ReadFile(filepath.Join(b.Packages, "SHA256SUMS"))
	if err != nil {
		return err
	}
	var errs []error
	for _, pattern := range []string{"*.deb", "*.rpm"} {
		found, _ := filepath.Glob(filepath.Join(b.Packages, pattern))
		if len(found) == 0 {
			errs = append(errs, fmt.Errorf("no %s", pattern))
		}
		for _, path := range found {
			errs = append(errs, says(string(sums), "  "+filepath.Base(path)+"\n"))
		}
	}
	return errors.Join(errs...)
}

// held is what must be in a package, as dpkg lists it.
var held = []string{
	"-rwxr-xr-x root/root ./usr/libexec/bookend/bookend-prolog",
	"-rwxr-xr-x root/root ./usr/libexec/bookend/bookend-epilog",
	"-rwxr-xr-x root/root ./usr/libexec/bookend/bookend-healthcheck",
	"-rwxr-xr-x root/root ./usr/libexec/bookend/bookend-gpu",
	"-rwxr-xr-x root/root ./usr/bin/bookend",
	"-rw-r--r-- root/root ./etc/bookend/bookend.yaml",
	"-rw-r--r-- root/root ./etc/bookend/slurm/bookend.conf",
	"-rw-r--r-- root/root ./etc/logrotate.d/bookend",
	"-rw-r--r-- root/root ./usr/lib/tmpfiles.d/bookend.conf",
	"-rw-r--r-- root/root ./usr/lib/systemd/system/run-bookend-drop.mount",
	"-rw-r--r-- root/root ./usr/share/bash-completion/completions/bookend",
	"-rw-r--r-- root/root ./usr/share/zsh/vendor-completions/_bookend",
	"-rw-r--r-- root/root ./usr/share/fish/vendor_completions.d/bookend.fish",
	"-rw-r--r-- root/root ./usr/share/doc/bookend/copyright",
	"-rw-r--r-- root/root ./usr/share/doc/bookend/docs/findings.md",
	"-rw-r--r-- root/root ./usr/share/doc/bookend/licences/go/LICENSE",
}

func (b *bench) holds() error {
	found, _ := filepath.Glob(filepath.Join(b.Packages, "*.deb"))
	pages, _ := filepath.Glob("deploy/man/*.[1-8]")
	wanted := held
	for _, page := range append(pages, "deploy/man/bookend.1") {
		wanted = append(wanted, fmt.Sprintf("-rw-r--r-- root/root ./usr/share/man/man%s/%s.gz", filepath.Ext(page)[1:], filepath.Base(page)))
	}
	var errs []error
	for _, deb := range found {
		out, err := command("dpkg-deb", "--contents", deb)
		if err != nil {
			return err
		}
		listed := map[string]bool{}
		for line := range strings.Lines(out) {
			f := strings.Fields(line)
			listed[f[0]+" "+f[1]+" "+strings.Join(f[5:], " ")] = true
		}
		for _, want := range wanted {
			if !listed[want] {
				errs = append(errs, fmt.Errorf("%s lacks %s", filepath.Base(deb), want))
			}
		}
	}
	return errors.Join(errs...)
}

// again builds a copy of the tree as it lies here, in another folder, and compares.
func (b *bench) again() error {
	tree, out := filepath.Join(b.dir, "a", "copy"), filepath.Join(b.dir, "again")
	if err := os.MkdirAll(tree, 0o755); err != nil {
		return err
	}
	if _, err := command("sh", "-c", "git ls-files -z | xargs -0 cp --parents --no-dereference -t "+tree); err != nil {
		return err
	}
	arch, err := here()
	if err != nil {
		return err
	}
	var told [2]string
	for i, question := range [][]string{{"deploy/packages/version.sh"}, {"git", "log", "-1", "--format=%ct"}} {
		if told[i], err = command(question[0], question[1:]...); err != nil {
			return err
		}
	}
	cmd := exec.Command(filepath.Join(tree, "deploy/packages/build.sh"), arch)
	cmd.Env = append(os.Environ(), "OUT="+out, "VERSION="+strings.TrimSpace(told[0]), "SOURCE_DATE_EPOCH="+strings.TrimSpace(told[1]))
	if _, err := finish(cmd); err != nil {
		return err
	}
	made, err := filepath.Glob(filepath.Join(out, "bookend*"))
	if err == nil && len(made) != 2 {
		err = fmt.Errorf("made %q, want two packages", made)
	}
	for _, path := range made {
		err = errors.Join(err, same(path, filepath.Join(b.Packages, filepath.Base(path))))
	}
	return err
}

func same(a, b string) error {
	x, errA := os.ReadFile(a)
	y, errB := os.ReadFile(b)
	if err := errors.Join(errA, errB); err != nil {
		return err
	}
	if !bytes.Equal(x, y) {
		return fmt.Errorf("%s differs: %d and %d bytes", filepath.Base(a), len(x), len(y))
	}
	return nil
}

// oldGlibc shows what the backend needs of the C library, and that the check would notice more.
func (b *bench) oldGlibc() {
	found, _ := filepath.Glob(filepath.Join(b.Packages, "*/bin/bookend-gpu"))
	out, err := command("deploy/packages/glibc.sh", append([]string{"2.28"}, found...)...)
	b.shows(strings.ReplaceAll(strings.TrimSpace(out), "\n", "; "), err)
	source, program := filepath.Join(b.dir, "late.c"), filepath.Join(b.dir, "late")
	b.must("write a program", os.WriteFile(source, []byte("#include <math.h>\n#include <stdlib.h>\nint main(int n, char **v) { return (int)exp(atof(v[n - 1])); }\n"), 0o644))
	_, err = command("gcc", "-O0", "-o", program, source, "-lm")
	b.must("build it against this machine's C library", err)
	out, err = command("deploy/packages/glibc.sh", "2.28", program)
	if err == nil {
		err = fmt.Errorf("it said %q", out)
	} else {
		err = says(out, "newer than 2.28")
	}
	b.shows("a program that needs a newer one is refused", err)
}

// checkerPackages is what looks at packages, and rpm, in one kept Debian.
var checkerPackages = []string{"lintian", "rpmlint", "rpm", "cpio"}

// checkers runs Debian's lintian and rpmlint. What they are told to leave alone stands in deploy/packages, with reasons.
func (b *bench) checkers() {
	r := b.debian("bookworm", checkerPackages)
	debs, _ := filepath.Glob(filepath.Join(b.Packages, "*.deb"))
	rpms, _ := filepath.Glob(filepath.Join(b.Packages, "*.rpm"))
	for _, path := range append(append(debs, rpms...), "deploy/packages/rpmlint.toml") {
		_, err := r.bring(path)
		b.must("bring "+path, err)
	}
	out, err := r.run("sh", "-c", "lintian --allow-root --fail-on error,warning --tag-display-limit 0 /root/*.deb")
	b.shows("lintian has no error and no warning", errors.Join(err, quiet(err, out)))
	out, err = r.run("sh", "-c", "rpmlint --config /root/rpmlint.toml /root/*.rpm")
	b.shows("rpmlint has no error and no warning", errors.Join(err, says(out, " 0 errors, 0 warnings")))
	for _, path := range rpms {
		out, err = r.run("rpm", "--checksig", "/root/"+filepath.Base(path))
		b.shows("rpm finds the digests of "+filepath.Base(path)+" right", errors.Join(err, says(out, "digests OK")))
	}
}

// quiet: what a checker says although it is content.
func quiet(err error, out string) error {
	if err == nil && strings.TrimSpace(out) != "" {
		return errors.New(out)
	}
	return nil
}
