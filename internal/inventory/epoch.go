package inventory

import (
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"bookend/internal/gpu"
)

const maxLine = 256

// ReadEpoch names the driver's epoch. A part that cannot be read stays empty, that is unknown.
func ReadEpoch(proc, sys string) gpu.Epoch {
	e := gpu.Epoch{Boot: readWord(filepath.Join(proc, "sys/kernel/random/boot_id"))}
	for _, v := range gpu.Vendors {
		if v.Library == "" { // no backend asks it yet: its module says nothing of the driver that is asked
			continue
		}
		module := filepath.Join(sys, "module", v.Module)
		if e.Module = moduleIdentity(module); e.Module != "" {
			e.Driver = readWord(filepath.Join(module, "version"))
			break
		}
	}
	return e
}

// moduleIdentity tells one loading of the module from the next. The inode of its sysfs folder does: sysfs
// creates the folder at each load and numbers folders in a cycle (since Linux 4.14), so an unloaded module's
// number does not come back. srcversion, a checksum over the module's sources, covers older kernels, where the
// number may come back, unless the very same build is loaded again.
func moduleIdentity(folder string) string {
	var st unix.Stat_t
	if err := unix.Stat(folder, &st); err != nil {
		return ""
	}
	return fmt.Sprintf("%s@%d", readWord(filepath.Join(folder, "srcversion")), st.Ino)
}

// readWord reads a file of one line. Anything but one printable word is unknown.
func readWord(file string) string {
	text, err := readBounded(file, maxLine)
	if err != nil {
		return ""
	}
	word := strings.TrimSpace(text)
	for _, c := range word {
		if c <= ' ' || c > '~' {
			return ""
		}
	}
	return word
}
