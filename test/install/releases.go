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
	later += map[bool]string{true: ".next", false: "+next"}[strings.Contains(later, "+")]
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

// older makes DIR/older.deb of a package: the programs and the configuration of a commit in their places. What the
// commit has no program for stays away.
const older = `set -e
cd "$DIR" && mkdir older-tree && dpkg-deb -R "$DEB" older-files
git -C "$OLDPWD" archive "$COMMIT" | tar -x -C older-tree
make -C older-tree build VERSION=older
cd older-files
for path in usr/libexec/bookend/* usr/bin/bookend; do
	if [ -e "../older-tree/bin/${path##*/}" ]; then cp "../older-tree/bin/${path##*/}" "$path"; else rm "$path"; fi
done
cp ../older-tree/configs/bookend.yaml etc/bookend/bookend.yaml
sed -i 's/^Version: .*/Version: 0.0.0~older-1/' DEBIAN/control
find usr -type f -exec md5sum {} + >DEBIAN/md5sums
dpkg-deb --root-owner-group -b . ../older.deb`

// olderDeb is the package with the programs and the configuration of another commit, as the release before.
func (b *bench) olderDeb() (string, error) {
	cmd := exec.Command("sh", "-c", older)
	cmd.Env = append(os.Environ(), "DIR="+b.dir, "DEB="+b.deb(), "COMMIT="+b.Older)
	_, err := finish(cmd)
	return filepath.Join(b.dir, "older.deb"), err
}
