package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// here is this machine's architecture as Debian calls it.
func here() (string, error) {
	out, err := command("dpkg", "--print-architecture")
	return strings.TrimSpace(out), err
}

// useOldLibrary has the fake GPUs' libraries built for the oldest Debian, too, with what build.sh took for the backend.
func useOldLibrary() error {
	arch, err := here()
	if err != nil {
		return err
	}
	folder, err := filepath.Abs(filepath.Join("build/sysroots", arch))
	if err != nil {
		return err
	}
	libraries, err := one(filepath.Join(folder, "usr/lib/*-linux-gnu"))
	if err != nil {
		return fmt.Errorf("%w (make packages)", err)
	}
	return os.Setenv("CC", fmt.Sprintf("gcc --sysroot=%s -B%s -L%[2]s", folder, libraries))
}

// deb is the package as it is.
func (b *bench) deb() string {
	arch, err := here()
	b.must("ask for the architecture", err)
	path, err := one(filepath.Join(b.Packages, "bookend_*_"+arch+".deb"))
	b.must("find the package (make packages)", err)
	return path
}

// next is the same code as a later version, built again with build.sh; it returns its folder.
func (b *bench) next() string {
	arch, err := here()
	b.must("ask for the architecture", err)
	dir := filepath.Join(b.dir, "next")
	if _, err := os.Stat(filepath.Join(dir, "SHA256SUMS")); err == nil {
		return dir
	}
	version, err := command("dpkg-deb", "-f", b.deb(), "Version")
	b.must("ask for the version", err)
	cmd := exec.Command("deploy/packages/build.sh", arch)
	later := strings.TrimSuffix(strings.TrimSpace(version), "-1")
	if strings.Contains(later, "+") {
		later += ".next"
	} else {
		later += "+next"
	}
	cmd.Env = append(os.Environ(), "OUT="+dir, "VERSION="+later)
	_, err = finish(cmd)
	b.must("build a later version", err)
	return dir
}

func (b *bench) nextDeb() string {
	path, err := one(filepath.Join(b.next(), "*.deb"))
	b.must("find the later package", err)
	return path
}

// olderDeb is the package with the programs and the configuration of another commit, as the release before.
func (b *bench) olderDeb() (string, error) {
	tree, files := filepath.Join(b.dir, "older-tree"), filepath.Join(b.dir, "older-files")
	if _, err := command("sh", "-c", fmt.Sprintf("mkdir %[1]s && git archive %[2]s | tar -x -C %[1]s", tree, b.Older)); err != nil {
		return "", err
	}
	if _, err := command("make", "-C", tree, "build", "VERSION=older"); err != nil {
		return "", err
	}
	if _, err := command("dpkg-deb", "-R", b.deb(), files); err != nil {
		return "", err
	}
	if err := replaceWith(files, tree); err != nil {
		return "", err
	}
	deb := filepath.Join(b.dir, "older.deb")
	_, err := command("dpkg-deb", "--root-owner-group", "-b", files, deb)
	return deb, err
}

// replaceWith puts the programs and the configuration of a built tree into an unpacked package. What that has and the tree
// has not stays away.
func replaceWith(files, tree string) error {
	programs, err := filepath.Glob(filepath.Join(files, "usr/libexec/bookend/*"))
	if err != nil {
		return err
	}
	for _, path := range append(programs, filepath.Join(files, "usr/bin/bookend")) {
		data, err := os.ReadFile(filepath.Join(tree, "bin", filepath.Base(path)))
		if os.IsNotExist(err) {
			if err := os.Remove(path); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, data, 0o755); err != nil {
			return err
		}
	}
	data, err := os.ReadFile(filepath.Join(tree, "configs/bookend.yaml"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(files, "etc/bookend/bookend.yaml"), data, 0o644); err != nil {
		return err
	}
	control := filepath.Join(files, "DEBIAN/control")
	text, err := os.ReadFile(control)
	if err != nil {
		return err
	}
	var b strings.Builder
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "Version: ") {
			line = "Version: 0.0.0~older-1\n"
		}
		b.WriteString(line)
	}
	sums := filepath.Join(files, "DEBIAN/md5sums")
	if err := os.Remove(sums); err != nil {
		return err
	}
	if _, err := command("sh", "-c", fmt.Sprintf("cd %s && find usr -type f -exec md5sum {} + >DEBIAN/md5sums", files)); err != nil {
		return err
	}
	return os.WriteFile(control, []byte(b.String()), 0o644)
}
