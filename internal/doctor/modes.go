package doctor

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"bookend/internal/config"
)

// What follows a fix if a user could have written the file or folder. To a shell it is a comment.
const (
	compareFile   = "   # a user could have written it: compare it with a copy you trust, or install its package again"
	compareFolder = "   # a user could have changed what is in it: compare it with a copy you trust, or install " +
		"it again"
)

// notAlone begins what is said of a folder above, or behind a link.
const notAlone = "not root's alone all the way: "

// judgeRules reports what is wrong with each file of a check, and sums up what is well.
func judgeRules(v *view, rules []Rule) string {
	there, i, left := 0, 0, 0
	var last File
	for _, r := range rules {
		for _, look := range r.looks(v.Site) {
			seen, exist := v.seen[i], 0
			for _, f := range seen.Files {
				if !f.Missing {
					r.judgeFile(v, f)
					exist, last = exist+1, f
				}
			}
			if exist == 0 && r.Absent != "" {
				r.judgeMissing(v, look.Paths[0])
			}
			there, left, i = there+exist, left+seen.Left, i+1
		}
	}
	well := fmt.Sprintf("all %d are root's, with the right modes", there)
	switch {
	case i == 0:
		return "not used by this configuration"
	case there == 0:
		return "not there yet: the first hook that needs it makes it"
	case there == 1:
		well = fmt.Sprintf("root's, %#o", last.Mode)
	}
	if left > 0 {
		well += fmt.Sprintf("; %d more were not looked at", left)
	}
	return well
}

func (r Rule) judgeMissing(v *view, path string) {
	fix := r.install(path)
	switch {
	case r.By == Foreign && r.Kind == Folder:
		fix += ", or let " + r.key + " name a file in a folder that exists"
	case r.By == Foreign:
		fix = "let " + r.key + " say where it is, or install its package"
	}
	v.say(r.Absent, "missing", fix).at(path).because(r.Without)
}

// judgeFile reports what is wrong with one file or folder that exists.
func (r Rule) judgeFile(v *view, f File) {
	at := quoted(f.Path)
	switch {
	case f.Error != "":
		v.unknown(f.Error, "stat "+at).at(f.Path)
		return
	case f.Target != "" && r.By == Made:
		v.wrong("a symbolic link to "+f.Target+": none is followed here", "rm "+at).at(f.Path)
		return
	case f.Kind != r.Kind:
		fix := "rm -r " + at
		if r.By == Installed {
			fix += " && " + r.install(f.Path)
		}
		v.wrong(fmt.Sprintf("%s, where a %s belongs", f.Kind, r.Kind), fix).at(f.Path)
		return
	}
	if c := f.Distrust; c != nil && c.Path != f.Path && c.Path != f.Real {
		r.judgeAbove(v, f, *c)
		if c.UID != 0 || c.Mode&0o002 != 0 {
			return // a command about the file itself could meet another by then
		}
	}
	if f.UID != 0 {
		v.wrong(fmt.Sprintf("belongs to user %d, not to root", f.UID), r.mend(f)).at(f.Path)
	}
	r.judgeMode(v, f)
	if r.By == Made && r.Kind == Regular && f.Links > 1 {
		v.wrong(fmt.Sprintf("has %d names: a user may have opened another", f.Links), "rm "+at).at(f.Path)
	}
}

// judgeMode judges permission bits: those too many, by what they allow, and those too few.
func (r Rule) judgeMode(v *view, f File) {
	level := Wrong
	extra := f.Mode &^ r.Mode
	if extra&^r.Rather == 0 {
		level = Warning
	}
	if extra&^(r.Rather&0o7000) != 0 { // setgid on a folder only hands its group on
		v.say(level, fmt.Sprintf("mode %#o, should be %#o: %s", f.Mode, r.Mode, allows(extra, f.Kind)),
			r.mend(f)).at(f.Path)
	}
	if r.Need&^f.Mode != 0 {
		v.say(cmp.Or(r.Short, Wrong), fmt.Sprintf("mode %#o, should be %#o: too little", f.Mode, r.Mode),
			r.mend(f)).at(f.Path)
	}
}

// allows says in words what bits let whom do.
func allows(bits uint32, kind Kind) string {
	reach := "start it"
	if kind == Folder {
		reach = "reach what is in it"
	}
	var words []string
	for _, b := range []struct {
		bits uint32
		text string
	}{
		{0o4000, "setuid"}, {0o2000, "setgid"}, {0o1000, "sticky bit"},
		{0o020, "its group may write"}, {0o002, "everybody may write"},
		{0o040, "its group may read"}, {0o004, "everybody may read"},
		{0o010, "its group may " + reach}, {0o001, "everybody may " + reach}, {0o100, "its owner may " + reach},
	} {
		if bits&b.bits != 0 {
			words = append(words, b.text)
		}
	}
	return strings.Join(words, ", ")
}

// judgeAbove judges a folder above, or behind a link. One that the table has itself is reported there.
func (r Rule) judgeAbove(v *view, f File, c Culprit) {
	for _, own := range Rules() {
		if own.Kind == Folder && matches(c.Path, own.Paths(v.Site)) {
			return
		}
	}
	level := Wrong
	if c.UID == 0 && c.Mode&0o002 == 0 && r.Above != "" {
		level = r.Above
	}
	said := notAlone + c.String()
	if slices.ContainsFunc(v.found, func(r Result) bool { return r.Seen == said }) {
		return
	}
	v.say(level, said, c.fix(r.key)).at(f.Path)
}

func (c Culprit) String() string {
	switch {
	case c.UID != 0:
		return fmt.Sprintf("%s belongs to user %d", c.Path, c.UID)
	case c.Mode&0o022 != 0:
		return fmt.Sprintf("%s has mode %#o: %s", c.Path, c.Mode, allows(c.Mode&0o022, Folder))
	}
	return c.Why
}

// fix closes a folder of root's. From a user's, or one for everybody, what root uses is moved instead.
func (c Culprit) fix(key string) string {
	if c.UID == 0 && c.Mode&0o1000 == 0 {
		return "chmod go-w " + quoted(c.Path) + compareFolder
	}
	if key == "" {
		key = "the configuration"
	}
	return fmt.Sprintf("move it to where only root can write, and let %s say so; or, if that folder should be "+
		"root's: chown root:root %s && chmod go-w %[2]s", key, quoted(c.Path)) + compareFolder
}

// mend is the command that puts owner and mode right.
func (r Rule) mend(f File) string {
	path := quoted(f.Path)
	written := f.UID != 0 || f.Mode&0o022 != 0
	switch {
	case r.By == Made && r.Kind == Regular && f.UID != 0:
		// Not given back: its owner may have it open, or have put a link in its place by now.
		return "rm " + path + "   # what it says may be forged; if one is needed, the hooks make it again"
	case r.By == Foreign && r.Kind == Folder: // the collector's own
		return "let " + r.key + " name a file in a folder that only root can write"
	}
	command := fmt.Sprintf("chmod %04o %s", r.Mode, path)
	if f.UID != 0 {
		command = fmt.Sprintf("chown root:root %s && %s", path, command)
	}
	switch {
	case !written || r.By == Made: // the hooks check what they made each time
		return command
	case r.Kind == Folder:
		return command + compareFolder
	}
	return command + compareFile
}

// install is the command that installs what belongs at path, from the folder in which Bookend was built.
func (r Rule) install(path string) string {
	if r.Kind == Folder {
		return fmt.Sprintf("install -d -o root -g root -m %04o %s", r.Mode, quoted(path))
	}
	built := "bin/" + filepath.Base(path)
	if r.Name == "config" {
		built = "configs/" + filepath.Base(config.DefaultFile)
	}
	return fmt.Sprintf("install -D -o root -g root -m %04o %s %s   # in the build's folder; or install the package "+
		"again",
		r.Mode, built, quoted(path))
}

// matches reports whether a path is one of patterns.
func matches(path string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, err := filepath.Match(p, path)
		return ok && err == nil
	})
}

// fixedPart is a pattern up to the folder in which its first wildcard is.
func fixedPart(pattern string) string {
	before, _, wild := strings.Cut(pattern, "*")
	if !wild {
		return pattern
	}
	return before[:strings.LastIndexByte(before, '/')]
}

// quoted is a path as a shell takes it.
func quoted(path string) string {
	plain := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			strings.ContainsRune("/._-+:@%=,", c)
	}
	if path != "" && !strings.ContainsFunc(path, func(c rune) bool { return !plain(c) }) {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
