package cluster

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"bookend/test/rig"
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
func VersionIn(root string) (v Version, err error) {
	err = rig.Attempt(func() {
		cmd := exec.Command(lookUp(root, "slurmd"), "-V")
		if root != "/" {
			cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
		}
		cmd.Dir = "/"
		_, number, _ := strings.Cut(string(rig.Have(cmd.Output())), " ") // "slurm-wlm 22.05.8" or "slurm 26.05.5"
		rig.Have(fmt.Sscanf(number, "%d.%d.%d", &v.Major, &v.Minor, &v.Micro))
	})
	return v, err
}
