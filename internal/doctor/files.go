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

	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/safefile"
	"bookend/internal/slurmcmd"
)

type entry struct {
	path     string
	unread   string              // why it could not be examined
	regular  bool                // the path leads to a regular file
	real     string              // the path after all links
	mode     uint32              // of the file that the path leads to
	distrust *safefile.Untrusted // the first on the way, the path itself included, that a user could have written
	closed   *safefile.ClosedDir // the first directory on the way that keeps users out
}

func inspect(path string) (f entry, there bool) {
	f = entry{path: path}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR):
		target, err := os.Readlink(path)
		f.unread = "leads to " + target + ", which does not exist"
		return f, err == nil
	case err != nil:
		f.unread = err.Error()
		return f, true
	}
	f.regular, f.mode = info.Mode().IsRegular(), uint32(info.Mode().Perm())
	f.real, _ = filepath.EvalSymlinks(path)
	if err := safefile.Trusted(path); err != nil && !errors.As(err, &f.distrust) {
		f.distrust = &safefile.Untrusted{Path: path, Why: err.Error()}
	}
	_ = errors.As(safefile.Passable(path), &f.closed)
	return f, true
}

// compare follows a fix if a user could have written the file or directory. To a shell it is a comment.
const compare = "   # a user could have written it: compare it with a copy you trust, or install it again"

// notAlone begins the message about an owner or mode that lets others write, on the way or behind a link too.
const notAlone = "others can change it: "

func (r rule) judgeFile(v *view, f entry) {
	at := quoted(f.path)
	say := func(level, seen, fix string) { v.say(level, seen, fix).Path = f.path }
	chmod := fmt.Sprintf("chmod %04o %s", r.mode, at)
	c, seen := f.distrust, notAlone
	if c != nil {
		seen += c.Path + ": " + c.Why
	}
	switch {
	case f.unread != "":
		say(Unknown, f.unread, "stat "+at)
	case !f.regular:
		say(Wrong, "not a file", "take it out of "+quoted(filepath.Dir(f.path)))
	case c != nil && (c.Path == f.path || c.Path == f.real):
		say(Wrong, seen, "chown root:root "+at+" && "+chmod+compare)
	case c != nil && slices.ContainsFunc(v.found, func(r Result) bool { return r.Seen == seen }):
	case c != nil && c.UID == 0 && c.Mode&unix.S_ISVTX == 0: // a directory of root's, above or behind a link
		say(Wrong, seen, "chmod go-w "+quoted(c.Path)+compare)
	case c != nil: // by then a command on the file itself could affect another file
		say(Wrong, seen, "move it to where only root can write, and let "+cmp.Or(r.key,
			"the configuration")+" say so")
	case r.need&0o007 != 0 && f.closed != nil:
		r.judgeWay(v, f)
	case r.need&^f.mode != 0:
		say(Wrong, fmt.Sprintf("mode %#o, should be %#o: too little", f.mode, r.mode), chmod)
	}
}

// judgeWay reports a directory that keeps users from a file that they need: the members of a group may be all of them.
func (r rule) judgeWay(v *view, f entry) {
	level, seen := Wrong, fmt.Sprintf("users cannot reach it: %s has mode %#o", f.closed.Path,
		f.closed.Mode)
	if f.closed.Mode&0o010 != 0 && f.closed.GID != 0 {
		level, seen = Warning, fmt.Sprintf("only group %d can reach it: %s has mode %#o", f.closed.GID,
			f.closed.Path,
			f.closed.Mode)
	}
	if !slices.ContainsFunc(v.found, func(r Result) bool { return r.Seen == seen }) {
		v.say(level, seen, "chmod go+x "+quoted(f.closed.Path)).Path = f.path
	}
}

func quoted(path string) string {
	const plain = "/._-+:@%=,abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	if path != "" && strings.Trim(path, plain) == "" {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

func runs(path, program string) bool {
	text, err := slurmcmd.ReadText(path)
	return err == nil && names(text, program)
}

// names reports whether a script names a program, directly, through the package's script, or through its check for Node
// Health Check. Comments and longer names with that beginning do not count. In a binary it finds none.
func names(script []byte, program string) bool {
	words := program + "|/hooks/(task-)?" + strings.TrimPrefix(program, "bookend-")
	if program == "bookend-healthcheck" {
		words += "|check_bookend"
	}
	plain := regexp.MustCompile(`(?m)^\s*#.*$`).ReplaceAll(script, nil)
	return !bytes.HasPrefix(script, []byte("\x7fELF")) &&
		regexp.MustCompile(`(?m)(`+words+`)([^-_.[:alnum:]]|$)`).Match(plain)
}

// rule is what must hold for a file of root's. Hooks check and repair on each run what they create themselves.
type rule struct {
	need            uint32   // mode bits that are needed for everything to work
	absent, without string   // severity if it does not exist (empty: OK), and the consequence
	key             string   // the configuration key that sets its path; may be empty
	at              []string // where it may be, the likeliest first
	mode            uint32   // its mode as installed
}

func (s Site) programs() (all []rule) {
	for _, hook := range []string{"bookend-prolog", "bookend-epilog", "bookend-healthcheck"} {
		r := rule{need: 0o555, absent: Wrong, mode: 0o755,
			without: "job starts and ends are not examined; a Prolog= or Epilog= that names it drains the node"}
		for _, dir := range s.Programs {
			r.at = append(r.at, filepath.Join(dir, hook))
		}
		all = append(all, r)
	}
	c := s.Config
	hip, _ := c.BackendOf(gpu.AMD.Name, true)
	all = append(all,
		rule{0o500, Wrong, "GPUs are not examined (BKD-BK-MISSING)", "backend", []string{c.Backend},
			0o755},
		rule{0o500, "", "", "amd.backend", []string{c.AMD.Backend}, 0o755},
		rule{0o500, "", "", "amd.backend", []string{hip}, 0o755},
		rule{0o100, "", "", "", []string{s.Self}, 0o755})
	if program := c.Health.External.Program; program != "" {
		all = append(all, rule{0o500, Wrong, "the site's own check does not run (BKD-EXTERNAL)",
			"health.external.program", []string{program}, 0o755})
	}
	if c.Drain.ReasonBy != config.ReasonByNone {
		all = append(all, rule{0o500, Wrong,
			"no drain gets its reason, and no node is resumed (BKD-REASON)",
			"slurm.scontrol", []string{c.Slurm.Scontrol}, 0o755})
	}
	return all
}

func judgePrograms(v *view) string {
	there := 0
	for _, r := range v.programs() {
		if r.judge(v) {
			there++
		}
	}
	return fmt.Sprintf("%d files are root's, with the right modes", there)
}

// judge judges the first path that leads to anything, and reports whether there is one.
func (r rule) judge(v *view) bool {
	for _, path := range r.at {
		if f, there := inspect(path); there {
			r.judgeFile(v, f)
			return true
		}
	}
	if r.absent != "" {
		fix := "install Bookend's package again; without a package: docs/admin.md#without-a-package"
		if r.key != "" {
			fix = "set " + r.key + " to its path, or install its package again"
		}
		missing := v.say(r.absent, "missing", fix)
		missing.Path, missing.Why = r.at[0], r.without
	}
	return false
}

// judgeConfig also reports the first mistake, the first key of an earlier version, and refused directories of metrics.
func judgeConfig(v *view) string {
	const all = "bookend config check lists all"
	rule{0o444, Warning, "the defaults are in effect", "", []string{v.ConfigPath}, 0o644}.judge(v)
	if v.Mistake != "" {
		v.wrong(v.Mistake, "correct it; "+all).Why = "the hooks observe with the default configuration (BKD-CONFIG)"
	}
	if unused := v.Config.Unused; len(unused) > 0 {
		v.warn(fmt.Sprintf("%s (1 of %d)", unused[0], len(unused)), "correct it; "+all)
	}
	for _, dir := range []string{filepath.Dir(v.Config.Metrics.Textfile), v.Config.Metrics.JobMap.DCGM,
		v.Config.Metrics.JobMap.Gpustat} { // a missing one is created by the next hook
		if by := new(safefile.Untrusted); errors.As(safefile.Trusted(dir), &by) {
			r := v.warn(notAlone+by.Path+": "+by.Why, "move it to where only root can write, and let metrics say so")
			r.Path, r.Why = dir, "hooks write no metrics to it (BKD-ST-WRITE)"
		}
	}
	return "root's, and without a mistake"
}

// DropOptions are those of run-bookend-drop.mount. A job has up to two directories of one small file there.
const DropOptions = "size=16M,nr_inodes=8k,mode=0711,nosuid,nodev,noexec"

func dropDir(s Site) string { return filepath.Join(s.Config.Paths.Run, "drop") }

// judgeDrop warns even before the first hook, which would create a directory in the tmpfs that all hooks share.
func judgeDrop(v *view) string {
	path := dropDir(v.Site)
	var above, here unix.Stat_t
	var on unix.Statfs_t
	if unix.Stat(filepath.Dir(path), &above) != nil || unix.Stat(path, &here) != nil || above.Dev == here.Dev ||
		unix.Statfs(path, &on) != nil || on.Type != unix.TMPFS_MAGIC {
		fix := "systemctl enable --now run-bookend-drop.mount   # of deploy/systemd"
		if path != config.Default().Paths.Run+"/drop" {
			fix = fmt.Sprintf("install -d -o root -g root -m 0711 %s && mount -t tmpfs -o %s tmpfs %[1]s", quoted(path),
				DropOptions)
		}
		v.warn("not a tmpfs of its own", fix)
	}
	return "a tmpfs of its own"
}
