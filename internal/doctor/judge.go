package doctor

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// maxSaid bounds what one check says of many files; the rest is counted.
const maxSaid = 8

// notAlone begins what is said of a folder above, or behind a link.
const notAlone = "not root's alone all the way: "

// above reports whether it is a folder above that is wrong.
func (r Result) above() bool { return strings.HasPrefix(r.Seen, notAlone) }

func (r Rule) check() Check { return Check{Name: r.Name, Look: r.look, Judge: r.judge} }

// Paths are where it is on a site; patterns of filepath.Match may stand in them.
func (r Rule) Paths(s Site) []string { return r.paths(s) }

// unusedReason is why this site does without it; empty where it does not.
func (r Rule) unusedReason(s Site) string {
	if r.unused == nil {
		return ""
	}
	return r.unused(s)
}

// matches reports whether a path is one of patterns.
func matches(path string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, err := filepath.Match(p, path)
		return ok && err == nil
	})
}

func (r Rule) look(s Site) Look {
	if r.unusedReason(s) != "" {
		return Look{}
	}
	return Look{Place: r.place, Paths: r.Paths(s), First: r.first, Kind: r.Kind}
}

// judge says of each file what is wrong, or of all together that they are well.
func (r Rule) judge(s Site, seen Seen) []Result {
	paths := r.Paths(s)
	shown := paths[0]
	switch {
	case r.unusedReason(s) != "":
		return []Result{{r.Name, OK, shown, r.unusedReason(s), "", ""}}
	case seen.Unknown != "":
		return []Result{{r.Name, Unknown, shown, "could not be looked at: " + seen.Unknown, r.Why, "look why it does not answer: stat " + quoted(fixedPart(shown))}}
	}
	var bad []Result
	well, there := "", 0
	for _, f := range seen.Files {
		if f.Missing {
			continue
		}
		there++
		wrong := r.judgeFile(s, f)
		if len(wrong) == 0 {
			well = wellSeen(f)
			shown = f.Path
		}
		bad = append(bad, unsaid(bad, wrong)...)
	}
	switch {
	case there == 0:
		return []Result{r.missing(s, seen)}
	case len(bad) > maxSaid:
		more := Result{r.Name, bad[maxSaid].Level, paths[0], fmt.Sprintf("and %d more of the kind", len(bad)-maxSaid), r.Why, bad[maxSaid].Fix}
		bad = append(bad[:maxSaid:maxSaid], more)
	case len(bad) == 0 && there > 1:
		well, shown = fmt.Sprintf("all %d are root's, %#o or less", there, r.Mode), paths[0]
	}
	if len(bad) > 0 {
		return bad
	}
	if seen.Left > 0 {
		well += fmt.Sprintf("; %d more were not looked at", seen.Left)
	}
	return []Result{{r.Name, OK, shown, well, "", ""}}
}

// unsaid leaves out what is wrong with a folder above many files, once it was said.
func unsaid(said, wrong []Result) []Result {
	return slices.DeleteFunc(wrong, func(w Result) bool {
		return slices.ContainsFunc(said, func(r Result) bool { return w.above() && r.Seen == w.Seen && r.Fix == w.Fix })
	})
}

func wellSeen(f File) string {
	text := fmt.Sprintf("root's, %#o", f.Mode)
	if f.Target != "" {
		text += ", by a link to " + f.Target
	}
	return text
}

// missing judges that nothing is there.
func (r Rule) missing(s Site, seen Seen) Result {
	path := r.Paths(s)[0]
	if len(seen.Files) > 0 {
		path = seen.Files[0].Path
	}
	level, follows := r.absent(s)
	switch {
	case level == OK:
		return Result{r.Name, OK, path, follows, "", ""}
	case r.By == Foreign && r.Kind == Folder:
		return Result{r.Name, level, path, "missing: the hooks make none here", follows, r.install(s, path) + "   # or install what makes it, or let " + r.key + " name a file in a folder that is there"}
	case r.By == Foreign && r.first && len(r.Paths(s)) > 1: // no key names it
		return Result{r.Name, level, path, "in none of the usual folders", follows, "ldconfig -p   # shows where the loader finds it, if anywhere: let " + r.key + " name it there, or install the driver"}
	case r.By == Foreign:
		return Result{r.Name, level, path, "missing", follows, "let " + r.key + " say where it is"}
	}
	return Result{r.Name, level, path, "missing", follows, r.install(s, path)}
}

// judgeFile lists what is wrong with one file or folder that is there.
func (r Rule) judgeFile(s Site, f File) []Result {
	say := func(level Level, seen, fix string) Result { return Result{r.Name, level, f.Path, seen, r.Why, fix} }
	switch {
	case f.Error != "":
		return []Result{say(Unknown, f.Error, "stat "+quoted(f.Path))}
	case f.Target != "" && r.NoLink:
		return []Result{say(Wrong, "a symbolic link to "+f.Target+": none is followed here", "rm "+quoted(f.Path))}
	case f.Kind != r.Kind:
		return []Result{say(Wrong, fmt.Sprintf("%s, where a %s belongs", f.Kind, r.Kind), r.anew(s, f.Path))}
	}
	var bad []Result
	if c := f.Distrust; c != nil && c.Path != f.Path && c.Path != f.Real {
		level := Wrong
		if c.UID == 0 && c.Mode&0o002 == 0 && r.Above != "" {
			level = r.Above
		}
		above := say(level, notAlone+r.culpritSeen(*c), r.culpritFix(s, f.Path, *c))
		if c.UID != 0 || c.Mode&0o002 != 0 {
			return []Result{above} // a command about the file itself could meet another by then
		}
		bad = append(bad, above)
	}
	if f.UID != 0 {
		bad = append(bad, say(Wrong, fmt.Sprintf("belongs to user %d, not to root", f.UID), r.mend(s, f.Path, f.UID, f.Mode)))
	}
	bad = append(bad, r.judgeMode(s, f)...)
	if r.Single && f.Links > 1 {
		bad = append(bad, say(Wrong, fmt.Sprintf("has %d names: somebody may hold another", f.Links), r.anew(s, f.Path)))
	}
	return bad
}

// judgeMode judges permission bits: those too many, by what they allow, and those too few.
func (r Rule) judgeMode(s Site, f File) []Result {
	var bad []Result
	fix := r.mend(s, f.Path, 0, f.Mode)
	if extra := f.Mode &^ r.Mode; extra != 0 {
		level := Wrong
		if extra&^r.Rather == 0 {
			level = Warning
		}
		if extra&^(r.Rather&0o7000) != 0 { // setgid on a folder only hands its group on
			bad = append(bad, Result{r.Name, level, f.Path, fmt.Sprintf("mode %#o, should be %#o: %s", f.Mode, r.Mode, allows(extra, f.Kind)), r.Why, fix})
		}
	}
	if lacks := r.Need &^ f.Mode; lacks != 0 {
		level := cmp.Or(r.ShortLevel, Wrong)
		bad = append(bad, Result{r.Name, level, f.Path, fmt.Sprintf("mode %#o, should be %#o: too little", f.Mode, r.Mode), r.Short, fmt.Sprintf("chmod %04o %s", r.Mode, quoted(f.Path))})
	}
	return bad
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
		{0o4000, "it runs with its owner's rights, whoever starts it (setuid)"},
		{0o2000, "it runs with its group's rights, whoever starts it (setgid)"},
		{0o1000, "sticky bit"},
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

func (r Rule) culpritSeen(c Culprit) string {
	switch {
	case c.UID != 0:
		return fmt.Sprintf("%s belongs to user %d", c.Path, c.UID)
	case c.Mode&0o022 != 0:
		return fmt.Sprintf("%s has mode %#o: %s", c.Path, c.Mode, allows(c.Mode&0o022, Folder))
	}
	return c.Why
}
