package doctor

import (
	"fmt"
	"runtime"
	"slices"
	"strings"

	"bookend/internal/config"
)

// What stands behind a command where what others could have written may not be what it was. A shell takes it for a
// comment.
const (
	compareFile   = "   # others could have written it: install its package anew, or compare it with a copy you trust"
	compareText   = "   # others could have written it: read every line, or compare it with a copy you trust"
	compareFolder = "   # others could have changed what is in it: compare it with a copy you trust, or install it anew"
)

// mend is the command that puts right whose one file or folder is, and its mode. A program of Bookend's is installed anew:
// it may not be what it was.
func (r Rule) mend(s Site, path string, uid, mode uint32) string {
	switch {
	case r.instead != "":
		return r.instead
	case r.By == Installed && r.Kind == Regular && !r.text:
		return r.install(s, path)
	}
	if r.Kind == Regular && r.By == Made && uid != 0 {
		// Not given back: whoever owned it may have it open still, or have put a link in its place by now.
		return "rm " + quoted(path) + "   # what it says may be forged; where one is needed the hooks make it anew"
	}
	command := fmt.Sprintf("chmod %04o %s", r.Mode, quoted(path))
	if uid != 0 {
		command = fmt.Sprintf("chown root:root %s && %s", quoted(path), command)
	}
	if uid == 0 && mode&0o022 == 0 || r.By == Made { // the hooks look again at what they made, each time
		return command
	}
	switch {
	case r.Kind == Folder:
		return command + compareFolder
	case r.text:
		return command + compareText
	}
	return command + compareFile
}

// culpritFix repairs a folder of root's, or of Bookend's own; out of another user's, or of one for everybody, what root
// uses is moved instead.
func (r Rule) culpritFix(s Site, path string, c Culprit) string {
	for _, own := range Rules() {
		if own.Kind == Folder && own.unusedReason(s) == "" && matches(c.Path, own.Paths(s)) {
			return own.mend(s, c.Path, c.UID, c.Mode)
		}
	}
	switch {
	case c.Mode&0o1000 != 0:
	case c.UID == 0 && c.Mode&0o022 != 0:
		return "chmod go-w " + quoted(c.Path) + compareFolder
	case c.UID != 0 && systems(c.Path):
		return fmt.Sprintf("chown root:root %s && chmod go-w %[1]s", quoted(c.Path)) + compareFolder
	}
	key := r.key
	if key == "" {
		key = placeKeys[r.place]
	}
	switch {
	case r.Name == "config":
		return fmt.Sprintf("read it, then: cp --remove-destination %s %s", quoted(path), r.Shown)
	case r.By == Foreign:
		return "let " + key + " name one in a folder that is root's alone"
	case key != "":
		return fmt.Sprintf("let %s name one that only root can write, all the way, such as %s", key, shipped(key))
	case r.Kind == Regular:
		return r.install(s, r.Shown)
	}
	return "keep it where only root can write, as shipped in " + r.Shown
}

// placeKeys are the keys that say where what has none of its own is made.
var placeKeys = map[string]string{"run": "paths.run", "var": "paths.var", "log": "paths.log"}

// shipped is what a key is as shipped.
func shipped(key string) string {
	c := config.Default()
	return map[string]string{
		"backend": c.Backend, "paths.run": c.Paths.Run, "paths.var": c.Paths.Var, "paths.log": c.Paths.Log, "metrics.textfile": c.Metrics.Textfile,
	}[key]
}

// systems reports whether a folder is above one of those in which something lies as shipped: root's on every system.
func systems(folder string) bool {
	return slices.ContainsFunc(Rules(), func(r Rule) bool { return strings.HasPrefix(r.Shown, strings.TrimSuffix(folder, "/")+"/") })
}

// anew is the command after which the right thing takes the place of a wrong one.
func (r Rule) anew(s Site, path string) string {
	if r.By == Installed {
		return "rm -r " + quoted(path) + " && " + r.install(s, path)
	}
	return "rm -r " + quoted(path)
}

// install is the command that installs what belongs at path: where a package brought Bookend by that, else from the folder
// in which Bookend was built.
func (r Rule) install(s Site, path string) string {
	switch {
	case r.Kind == Folder:
		return fmt.Sprintf("install -d -o root -g root -m %04o %s", r.Mode, quoted(path))
	case r.By != Installed:
		return ""
	case s.Survey.System.Package != "" && (path == r.Shown || r.place == "snippets"):
		return s.reinstall()
	case r.place == "snippets":
		return "cp -r deploy/slurm/. " + snippetFolder
	case r.Name == "config":
		return fmt.Sprintf("install -D -o root -g root -m %04o configs/bookend.yaml %s", r.Mode, quoted(path))
	}
	return fmt.Sprintf("install -D -o root -g root -m %04o bin/%s %s", r.Mode, r.Shown[strings.LastIndexByte(r.Shown, '/')+1:], quoted(path))
}

// Package is the kind of package by which Bookend was installed; empty where it was by none.
type Package string

// The kinds of packages.
const (
	Deb Package = "deb"
	RPM Package = "rpm"
)

// reinstall is the command that puts all files of the package back, those that were deleted from /etc too; what an admin
// has changed there stays.
func (s Site) reinstall() string {
	const where = "   # in the folder where that file is"
	if s.Survey.System.Package == RPM {
		machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
		return "rpm -U --replacepkgs " + quoted(fmt.Sprintf("bookend-%s-1.%s.rpm", s.Version, machine)) + where
	}
	file := fmt.Sprintf("./bookend_%s-1_%s.deb", s.Version, runtime.GOARCH)
	return "apt-get install -y --reinstall -o Dpkg::Options::=--force-confmiss " + quoted(file) + where
}

// fromBuild reports whether a fix needs the folder in which Bookend was built.
func fromBuild(fix string) bool {
	return slices.ContainsFunc([]string{" bin/", " configs/", " deploy/"}, func(s string) bool { return strings.Contains(fix, s) })
}

// fixedPart is a pattern up to the folder in which its first wildcard stands.
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
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("/._-+:@%=,", c)
	}
	if path != "" && !strings.ContainsFunc(path, func(c rune) bool { return !plain(c) }) {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
