package cluster

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"syscall"
)

// Version is a release of Slurm's: major and minor are the year and month of its branch.
type Version struct{ Major, Minor, Micro int }

func (v Version) String() string { return fmt.Sprintf("%02d.%02d.%d", v.Major, v.Minor, v.Micro) }

// Since reports whether the version is of a branch or of a later one: 24.05 is Since(24, 5).
func (v Version) Since(major, minor int) bool {
	return v.Major > major || v.Major == major && v.Minor >= minor
}

// Root is the root folder of the Slurm that clusters run unless told otherwise.
func Root() string { return cmp.Or(os.Getenv("BOOKEND_SLURM_ROOT"), "/") }

// VersionIn is the version of the Slurm in a root folder.
func VersionIn(root string) (Version, error) {
	path, err := lookUp(root, "slurmd")
	if err != nil {
		return Version{}, err
	}
	cmd := exec.Command(path, "-V")
	if root != "/" {
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	}
	cmd.Dir = "/"
	out, err := cmd.CombinedOutput()
	if err != nil {
		return Version{}, fmt.Errorf("ask slurmd below %q for its version: %w: %s", root, err, out)
	}
	return parseVersion(string(out))
}

// parseVersion reads "slurm-wlm 22.05.8" or "slurm 26.05.5".
func parseVersion(text string) (Version, error) {
	m := regexp.MustCompile(`^slurm\S* (\d+)\.(\d+)\.(\d+)`).FindStringSubmatch(text)
	if m == nil {
		return Version{}, fmt.Errorf("version %q: want \"slurm MAJOR.MINOR.MICRO\"", text)
	}
	var n [3]int
	for i := range n {
		n[i], _ = strconv.Atoi(m[i+1])
	}
	return Version{n[0], n[1], n[2]}, nil
}
