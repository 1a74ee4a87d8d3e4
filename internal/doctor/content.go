package doctor

import (
	"bytes"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// networks are the file systems that other machines serve, by their numbers in the kernel (statfs).
var networks = map[uint32]string{
	0x6969: "nfs", 0xff534d42: "cifs", 0xfe534d42: "smb", 0x517b: "smb", 0x5346414f: "afs", 0x00c36400: "ceph", 0x0bd00bd0: "lustre",
	0x47504653: "gpfs", 0x19830326: "beegfs", 0x65735546: "fuse", 0x01021997: "9p", 0x20030528: "orangefs", 0x7461636f: "ocfs2", 0x01161970: "gfs2",
}

// ourPrograms are the names of Bookend's programs that Slurm starts.
var ourPrograms = []string{"bookend-prolog", "bookend-epilog", "bookend-healthcheck"}

// maxScript is how much of a script is read.
const maxScript = 64 << 10

// read looks at what a file is and what it lies on.
func (f *File) read() {
	if f.Missing || f.Error != "" || f.Kind != Regular {
		return
	}
	f.System = system(f.Path)
	// Threat: none by content: it is only searched for names. A pipe in its place is not waited for.
	file, err := os.OpenFile(f.Path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer file.Close()
	st, err := file.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return
	}
	text, _ := io.ReadAll(io.LimitReader(file, maxScript))
	f.Content = contentOf(text, st.Size())
}

func contentOf(text []byte, size int64) *Content {
	c := Content{Size: size, ELF: bytes.HasPrefix(text, []byte("\x7fELF")), Shell: bytes.HasPrefix(text, []byte("#!"))}
	if c.ELF {
		return &c
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		c.add(line)
	}
	return &c
}

// ourScripts are the programs that the package's scripts run, by how a script of the site's own names these.
var ourScripts = map[string]string{
	"/hooks/prolog": "bookend-prolog", "/hooks/task-prolog": "bookend-prolog", "/hooks/epilog": "bookend-epilog",
	"/hooks/task-epilog": "bookend-epilog", "/hooks/healthcheck": "bookend-healthcheck",
}

// add notes what a line of a script names. The package's own scripts name the program once, as hook.
func (c *Content) add(line string) {
	execs := slices.Contains(strings.Fields(line), "exec")
	if execs && strings.Contains(line, "$hook") {
		c.Execs = withNew(c.Execs, c.Names...)
	}
	for _, name := range append([]string{nhcCheck}, ourPrograms...) {
		if !namesProgram(line, name) {
			continue
		}
		c.Names = withNew(c.Names, name)
		if execs {
			c.Execs = withNew(c.Execs, name)
		}
	}
	for script, name := range ourScripts {
		if namesProgram(line, script) {
			c.Names = withNew(c.Names, name)
		}
	}
}

func withNew(all []string, names ...string) []string {
	for _, name := range names {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// namesProgram reports a program's name in a line, as a word of its own.
func namesProgram(line, name string) bool {
	for {
		_, rest, ok := strings.Cut(line, name)
		if !ok {
			return false
		}
		if rest == "" || !strings.ContainsRune("-_.abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", rune(rest[0])) {
			return true
		}
		line = rest
	}
}
