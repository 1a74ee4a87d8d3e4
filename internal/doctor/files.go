package doctor

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"bookend/internal/safefile"
	"bookend/internal/slurmcmd"
)

type kind string

const (
	regular kind = "file"
	folder  kind = "directory"
	other   kind = "neither file nor directory"
)

type entry struct {
	path     string
	unread   string // why it could not be looked at
	kind     kind   // of what the path leads to, as is all below
	real     string // where all links lead to
	mode     uint32
	distrust *safefile.Untrusted // the first on the way, the path itself included, that a user could have written
}

func inspect(path string) (f entry, there bool) {
	f = entry{path: path, kind: other}
	var st unix.Stat_t
	err, target := unix.Stat(path, &st), ""
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		if target, err = os.Readlink(path); err != nil {
			return f, false
		}
		f.unread = "leads to " + target + ", which does not exist"
		return f, true
	}
	if err != nil {
		f.unread = err.Error()
		return f, true
	}
	f.mode = st.Mode & 0o7777
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		f.kind = regular
	case unix.S_IFDIR:
		f.kind = folder
	}
	f.real, _ = filepath.EvalSymlinks(path)
	if err := safefile.Trusted(path); err != nil && !errors.As(err, &f.distrust) {
		f.distrust = &safefile.Untrusted{Path: path, Why: err.Error()}
	}
	return f, true
}

// compare follows a fix if a user could have written the file or folder. To a shell it is a comment.
const compare = "   # a user could have written it: compare it with a copy you trust, or install it again"

// notAlone begins what is said of an owner or mode that lets others write, on the way or behind a link too.
const notAlone = "others can change it: "

func (r rule) judgeFile(v *view, f entry) {
	at := quoted(f.path)
	say := func(level, seen, fix string) { v.say(level, seen, fix).Path = f.path }
	chmod := fmt.Sprintf("chmod %04o %s", r.mode, at)
	switch c := f.distrust; {
	case f.unread != "":
		say(Unknown, f.unread, "stat "+at)
	case f.kind != r.kind:
		say(Wrong, fmt.Sprintf("%s, where a %s belongs", f.kind, r.kind),
			"take it out of "+quoted(filepath.Dir(f.path)))
	case c != nil && (c.Path == f.path || c.Path == f.real):
		say(Wrong, notAlone+distrusted(*c), "chown root:root "+at+" && "+chmod+compare)
	case c != nil: // a folder above or behind a link; a command about the file itself could meet another by then
		said := notAlone + distrusted(*c)
		if !slices.ContainsFunc(v.found, func(r Result) bool { return r.Seen == said }) {
			say(Wrong, said, closing(*c, r.key))
		}
	case r.need&^f.mode != 0:
		say(Wrong, fmt.Sprintf("mode %#o, should be %#o: too little", f.mode, r.mode), chmod)
	}
}

func distrusted(c safefile.Untrusted) string {
	switch {
	case c.UID != 0:
		return fmt.Sprintf("%s belongs to user %d", c.Path, c.UID)
	case c.Mode&0o022 != 0:
		return fmt.Sprintf("%s is writable by others (mode %#o)", c.Path, c.Mode)
	}
	return c.Why
}

// closing closes a folder of root's. From a user's, or one for everybody, what root uses is moved instead.
func closing(c safefile.Untrusted, key string) string {
	if c.UID == 0 && c.Mode&unix.S_ISVTX == 0 {
		return "chmod go-w " + quoted(c.Path) + compare
	}
	return fmt.Sprintf("move it to where only root can write, and let %s say so", cmp.Or(key, "the configuration"))
}

func quoted(path string) string {
	const plain = "/._-+:@%=,abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	if path != "" && strings.Trim(path, plain) == "" {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

// runs reports whether a file is a script that names a program of Bookend's.
func runs(path, program string) bool {
	text, err := slurmcmd.ReadText(path)
	return err == nil && names(text, program)
}

// names reports whether a script names a program, itself or by the package's script, or by the check that it has for
// Node Health Check; in no comment, and not as the beginning of a longer name. A linker's program names none.
func names(script []byte, program string) bool {
	words := program + "|/hooks/(task-)?" + strings.TrimPrefix(program, "bookend-")
	if program == "bookend-healthcheck" {
		words += "|check_bookend"
	}
	plain := regexp.MustCompile(`(?m)^\s*#.*$`).ReplaceAll(script, nil)
	return !bytes.HasPrefix(script, []byte("\x7fELF")) &&
		regexp.MustCompile(`(?m)(`+words+`)([^-_.[:alnum:]]|$)`).Match(plain)
}
