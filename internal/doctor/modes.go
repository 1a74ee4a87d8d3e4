package doctor

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"bookend/internal/config"
)

// compare follows a fix if a user could have written the file or folder. To a shell it is a comment.
const compare = "   # a user could have written it: compare it with a copy you trust, or install it again"

// notAlone begins what is said of an owner or mode that lets others write, on the way or behind a link too.
const notAlone = "not root's alone all the way: "

// judgeRules reports what is wrong with each file of a check, and sums up what is well.
func judgeRules(v *view, rules []Rule) string {
	there, i := 0, 0
	for _, r := range rules {
		for _, look := range r.looks(v.Site) {
			exist := 0
			for _, f := range v.seen[i] {
				if !f.Missing {
					r.judgeFile(v, f)
					exist++
				}
			}
			if exist == 0 && r.Absent != "" {
				v.say(r.Absent, "missing", r.missing()).at(look.Paths[0]).because(r.Without)
			}
			there, i = there+exist, i+1
		}
	}
	if rules[0].Name == "config" && v.Mistake != "" {
		v.wrong(v.Mistake, "correct it; bookend config check lists all").
			because("the hooks observe with the shipped defaults (BKD-CONFIG)")
	}
	if unused := v.Config.Unused; rules[0].Name == "config" && len(unused) > 0 {
		v.warn(fmt.Sprintf("%s (1 of %d)", unused[0], len(unused)), "remove it; bookend config check lists all")
	}
	if there == 0 {
		return "not there yet: the first hook that needs it makes it"
	}
	return fmt.Sprintf("%d files and directories are root's, with the right modes", there)
}

func (r Rule) missing() string {
	if r.By == Foreign {
		return "let " + r.key + " say where it is, or install its package"
	}
	return "install Bookend's package again, or what docs/admin.md installs"
}

// judgeFile reports what is wrong with one file or folder that exists.
func (r Rule) judgeFile(v *view, f File) {
	at, c := quoted(f.Path), f.Distrust
	switch {
	case f.Error != "":
		v.unknown(f.Error, "stat "+at).at(f.Path)
		return
	case f.Target != "" && r.By == Made:
		v.wrong("a symbolic link to "+f.Target+": none is followed here", "rm "+at).at(f.Path)
		return
	case f.Kind != r.Kind:
		v.wrong(fmt.Sprintf("%s, where a %s belongs", f.Kind, r.Kind), "take it out of "+quoted(filepath.Dir(f.Path))).
			at(f.Path)
		return
	case c != nil:
		r.judgeTrust(v, f, *c)
		return // a command about the file itself could meet another by then
	}
	if extra := f.Mode &^ r.Mode; extra&^(r.Rather&0o7000) != 0 { // setgid on a folder only hands its group on
		level := Wrong
		if extra&^r.Rather == 0 {
			level = Warning
		}
		v.say(level, fmt.Sprintf("mode %#o, should be %#o: others may do more", f.Mode, r.Mode), r.chmod(f)).at(f.Path)
	}
	if r.Need&^f.Mode != 0 {
		v.wrong(fmt.Sprintf("mode %#o, should be %#o: too little", f.Mode, r.Mode), r.chmod(f)).at(f.Path)
	}
}

// judgeTrust judges what users could have written: the file itself, or a folder above it or behind a link, which is
// reported once.
func (r Rule) judgeTrust(v *view, f File, c Culprit) {
	level, fix := Wrong, c.fix(r.key)
	switch itself := c.Path == f.Path || c.Path == f.Real; {
	case itself:
		fix = r.mend(f, c)
	case r.key == logKey && c.UID == 0 && c.Mode&0o002 == 0:
		level = Warning
	}
	said := notAlone + c.String()
	if !slices.ContainsFunc(v.found, func(r Result) bool { return r.Seen == said }) {
		v.say(level, said, fix).at(f.Path)
	}
}

func (c Culprit) String() string {
	switch {
	case c.UID != 0:
		return fmt.Sprintf("%s belongs to user %d", c.Path, c.UID)
	case c.Mode&0o022 != 0:
		return fmt.Sprintf("%s has mode %#o: others may write", c.Path, c.Mode)
	}
	return c.Why
}

// fix closes a folder of root's. From a user's, or one for everybody, what root uses is moved instead.
func (c Culprit) fix(key string) string {
	if c.UID == 0 && c.Mode&0o1000 == 0 {
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
func (r Rule) mend(f File, c Culprit) string {
	switch {
	case r.By == Made && r.Kind == Regular && c.UID != 0:
		// Not given back: its owner may have it open, or have put a link in its place by now.
		return "rm " + quoted(f.Path) + "   # what it says may be forged; if one is needed, the hooks make it again"
	case r.By == Made: // the hooks check what they made each time
		return fmt.Sprintf("chown root:root %s && %s", quoted(f.Path), r.chmod(f))
	}
	return fmt.Sprintf("chown root:root %s && %s", quoted(f.Path), r.chmod(f)) + compare
}

// matches reports whether a path is one of patterns.
func matches(path string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, err := filepath.Match(p, path)
		return ok && err == nil
	})
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

// DropOptions are the options with which the drop folder's own file system is mounted, by
// deploy/systemd/run-bookend-drop.mount. A job has up to two folders of one small file in it.
const DropOptions = "size=16M,nr_inodes=8k,mode=0711,nosuid,nodev,noexec"

func dropFolder(s Site) string { return filepath.Join(s.Config.Paths.Run, "drop") }

func dropCheck() Check {
	return Check{
		Name: "drop-filesystem",
		why:  "users write here: without a small tmpfs of its own, one user can fill it for all hooks",
		path: dropFolder, judge: judgeDrop,
		looks: func(s Site) []Look { return []Look{{Paths: []string{dropFolder(s)}, Kind: Folder}} },
	}
}

// judgeDrop warns before the first hook too: it would make a folder of the tmpfs that all hooks share.
func judgeDrop(v *view) string {
	f := v.seen[0][0]
	switch path := dropFolder(v.Site); {
	case f.Error != "":
		v.unknown(f.Error, "stat "+quoted(path))
	case !f.Tmpfs && path == config.Default().Paths.Run+"/drop":
		v.warn("not a tmpfs of its own", "systemctl enable --now run-bookend-drop.mount   # of deploy/systemd")
	case !f.Tmpfs:
		v.warn("not a tmpfs of its own", fmt.Sprintf(
			"install -d -o root -g root -m 0711 %s && mount -t tmpfs -o %s tmpfs %[1]s", quoted(path), DropOptions))
	}
	return "a tmpfs of its own"
}
