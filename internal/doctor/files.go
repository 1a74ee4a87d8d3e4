package doctor

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"bookend/internal/safefile"
)

// Kind is what a path leads to.
type Kind string

// The kinds.
const (
	Regular Kind = "file"
	Folder  Kind = "directory"
	Other   Kind = "neither file nor directory"
)

// File is what was seen of one path.
type File struct {
	Path   string
	Error  string // why it could not be looked at
	Kind   Kind   // of what the path leads to, as is all below
	Target string // of the path itself, if it is a symbolic link
	Real   string // where all links lead to
	Mode   uint32 // permissions, with setuid, setgid and sticky bit
	// Distrust is the first on the way, the path itself included, that a user could have written; nil if there is none.
	Distrust *safefile.Untrusted
}

const permissions = 0o7777

// inspect looks at a path, and reports whether it is there.
func inspect(path string) (f File, there bool) {
	f.Path = path
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	if err == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
		if f.Target, err = os.Readlink(path); err == nil {
			err = unix.Stat(path, &st)
		}
	}
	switch missing := errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR); {
	case missing && f.Target == "":
		return f, false
	case missing:
		f.Error = "leads to " + f.Target + ", which does not exist"
		return f, true
	case err != nil:
		f.Error = err.Error()
		return f, true
	}
	f.Kind, f.Mode = Other, st.Mode&permissions
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		f.Kind = Regular
	case unix.S_IFDIR:
		f.Kind = Folder
	}
	f.Real, _ = filepath.EvalSymlinks(path)
	if err := safefile.Trusted(path); err != nil && !errors.As(err, &f.Distrust) {
		f.Distrust = &safefile.Untrusted{Path: path, Why: err.Error()}
	}
	return f, true
}

// compare follows a fix if a user could have written the file or folder. To a shell it is a comment.
const compare = "   # a user could have written it: compare it with a copy you trust, or install it again"

// notAlone begins what is said of an owner or mode that lets others write, on the way or behind a link too.
const notAlone = "others can change it: "

// judgeFile reports what is wrong with one file or folder that exists.
func (r Rule) judgeFile(v *view, f File) {
	at, extra := quoted(f.Path), f.Mode&^r.Mode
	say := func(level, seen, fix string) { v.say(level, seen, fix).Path = f.Path }
	mode := fmt.Sprintf("mode %#o, should be %#o: ", f.Mode, r.Mode)
	switch c := f.Distrust; {
	case f.Error != "":
		say(Unknown, f.Error, "stat "+at)
	case f.Target != "" && r.By == Made:
		say(Wrong, "a symbolic link to "+f.Target+": none is followed here", "rm "+at)
	case f.Kind != r.Kind:
		say(Wrong, fmt.Sprintf("%s, where a %s belongs", f.Kind, r.Kind),
			"take it out of "+quoted(filepath.Dir(f.Path)))
	case r.key != "" && f.Mode&unix.S_ISVTX != 0: // for everybody, as /tmp: it is not to be closed
		shared := safefile.Untrusted{Path: f.Path, Mode: f.Mode}
		say(Wrong, notAlone+distrusted(shared), closing(shared, r.key))
	case c != nil && (c.Path == f.Path || c.Path == f.Real):
		say(Wrong, notAlone+distrusted(*c), r.mend(f))
	case c != nil: // a folder above or behind a link; a command about the file itself could meet another by then
		level, said := Wrong, notAlone+distrusted(*c)
		if r.key == logKey && c.UID == 0 && c.Mode&0o002 == 0 {
			level = Warning
		}
		if !slices.ContainsFunc(v.found, func(r Result) bool { return r.Seen == said }) {
			say(level, said, closing(*c, r.key))
		}
	case r.Need&^f.Mode != 0:
		say(Wrong, mode+"too little", r.chmod(f))
	case extra&^r.Rather != 0:
		say(Wrong, mode+"others may do more", r.chmod(f))
	case extra&0o777 != 0: // setgid on a folder only hands its group on
		say(Warning, mode+"others may do more", r.chmod(f))
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

func (r Rule) chmod(f File) string {
	mode := r.Mode
	if mode == permissions { // not Bookend's: any that suffices
		mode = 0o755
	}
	return fmt.Sprintf("chmod %04o %s", mode, quoted(f.Path))
}

// mend is the command that puts the owner and mode of the file itself right.
func (r Rule) mend(f File) string {
	own := fmt.Sprintf("chown root:root %s && %s", quoted(f.Path), r.chmod(f))
	switch {
	case r.By == Made && r.Kind == Regular && f.Distrust.UID != 0:
		// Not given back: its owner may have it open, or have put a link in its place by now.
		return "rm " + quoted(f.Path) + "   # what it says may be forged; if one is needed, the hooks make it again"
	case r.By == Made: // the hooks check what they made each time
		return own
	}
	return own + compare
}

// quoted is a path as a shell takes it.
func quoted(path string) string {
	const plain = "/._-+:@%=,abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	if path != "" && strings.Trim(path, plain) == "" {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

// runs reports whether a file is a script that names a program of Bookend's.
func runs(path, program string) bool {
	const maxScript = 64 << 10
	// Threat: none by content: it is only searched for names. A pipe that has taken its place is not waited for.
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer file.Close()
	if st, err := file.Stat(); err != nil || !st.Mode().IsRegular() {
		return false
	}
	text, _ := io.ReadAll(io.LimitReader(file, maxScript))
	return names(text, program)
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
