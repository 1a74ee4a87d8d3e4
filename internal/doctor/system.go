package doctor

import (
	"fmt"
	"strings"

	"bookend/internal/config"
)

// DropOptions are the options with which the drop folder's own file system is mounted, by
// deploy/systemd/run-bookend-drop.mount. A job has up to two folders of one small file in it.
const DropOptions = "size=16M,nr_inodes=8k,mode=0711,nosuid,nodev,noexec"

// The most that a drop folder's file system is to give users: 64 MiB of memory, and less entries than the hooks would
// remove of one job.
const (
	maxDropBytes  = 64 << 20
	maxDropInodes = 1<<16 - 1
)

// What a file system has left before it counts as full: a record takes some 4 KiB.
const (
	littleBytes  = 1 << 20
	littleInodes = 64
)

func lookAt(place string, path func(Site) string) func(Site) Look {
	return func(s Site) Look { return Look{Place: place, Paths: []string{path(s)}, Kind: Folder} }
}

func lookUp(place string, path func(Site) string) func(Site) Look {
	return func(s Site) Look { return Look{Place: place, Paths: []string{path(s)}, Kind: Folder, Up: true} }
}

func lookLog(s Site) Look {
	if noLogFile(s) != "" {
		return Look{}
	}
	return lookUp("log", logFolder)(s)
}

// judgeText judges the configuration's text as "bookend config check" and the hooks do.
func judgeText(s Site, _ Seen) []Result {
	r := Result{Check: "config-text", Level: OK, Path: s.ConfigPath, Seen: fmt.Sprintf("valid: mode %s", s.Config.Mode)}
	missing := strings.Contains(s.Unread, "no such file")
	switch {
	case missing && !s.Named:
		r.Seen = "there is none: the shipped defaults are in force"
	case missing:
		r.Level, r.Fix = Wrong, "let BOOKEND_CONFIG name a file that is there"
	case s.Unread != "":
		r.Level, r.Fix = Wrong, "correct what stands here, as the check config says; bookend config check tells whether it is then used"
	case s.Mistakes > 0:
		r.Level, r.Why, r.Fix = Wrong, "the hooks observe with the shipped policy (BKD-CONFIG)", "correct it; bookend config check lists all"
		r.Seen = fmt.Sprintf("not valid: %d %s, the first: %s", s.Mistakes, plural("mistake", s.Mistakes), s.Mistake)
		if s.Mistakes == 1 {
			r.Seen = "not valid: " + s.Mistake
		}
	}
	if r.Level == Wrong && s.Unread != "" {
		r.Seen, r.Why = "not used: "+s.Unread, "the hooks observe with the shipped defaults (BKD-CONFIG)"
	}
	return []Result{r}
}

// folderOf returns what was seen of a folder's file system, or the result where that says nothing.
func folderOf(name, path string, seen Seen) (*FileSystem, *Result) {
	r := Result{Check: name, Level: OK, Path: path, Seen: laterMade}
	if seen.Unknown != "" {
		r.Level, r.Seen, r.Fix = Unknown, "could not be looked at: "+seen.Unknown, "look why it does not answer: stat "+quoted(path)
		return nil, &r
	}
	if len(seen.Files) == 0 || seen.Files[0].Missing && seen.Files[0].System == nil {
		return nil, &r
	}
	if f := seen.Files[0]; f.Error != "" || f.System == nil {
		r.Level, r.Seen, r.Fix = Unknown, "its file system is unknown: "+f.Error, "stat -f "+quoted(path)
		return nil, &r
	}
	return seen.Files[0].System, nil
}

// judgeRun judges the file system on which the hooks keep their records.
func judgeRun(s Site, seen Seen) []Result {
	const name = "run-filesystem"
	path := runFolder(s)
	fs, answer := folderOf(name, path, seen)
	if answer != nil {
		return []Result{*answer}
	}
	var bad []Result
	if !fs.Tmpfs {
		bad = append(bad, Result{name, Warning, path, "not a tmpfs", "a hook can hang with a disk, and records of before a reboot must not be there after it", mountRun(path)})
	}
	bad = append(bad, roomless(name, path, fs, "no record can be kept (BKD-ST-WRITE)")...)
	if len(bad) == 0 {
		return []Result{{name, OK, path, "a tmpfs with room", "", ""}}
	}
	return bad
}

// mountRun makes the folder of records a tmpfs. A mount hides what is there: nothing may be running.
func mountRun(path string) string {
	mount := fmt.Sprintf("install -d -o root -g root -m 0755 %s && mount -t tmpfs -o size=10%%,mode=0755,nosuid,nodev,noexec tmpfs %[1]s   # while no job runs; and a line in /etc/fstab, so that it lasts", quoted(path))
	if usual := config.Default().Paths.Run; path != usual {
		return "let paths.run name a folder of a tmpfs, such as " + usual + ", or: " + mount
	}
	return mount
}

// judgeVar judges the file system on which the hooks keep ended jobs and counts.
func judgeVar(s Site, seen Seen) []Result {
	return judgeRoom("var-filesystem", varFolder(s), seen, "no ended job is kept and nothing is counted (BKD-ST-WRITE)")
}

// judgeLog judges the file system on which Bookend logs.
func judgeLog(s Site, seen Seen) []Result {
	if why := noLogFile(s); why != "" {
		return []Result{{"log-filesystem", OK, logFolder(s), why, "", ""}}
	}
	return judgeRoom("log-filesystem", logFolder(s), seen, "no log can be written (BKD-LOG)")
}

// judgeRoom judges a file system of which only room is asked.
func judgeRoom(name, path string, seen Seen, why string) []Result {
	fs, answer := folderOf(name, path, seen)
	if answer != nil {
		return []Result{*answer}
	}
	if bad := roomless(name, path, fs, why); len(bad) > 0 {
		return bad
	}
	return []Result{{name, OK, path, "writable, with room", "", ""}}
}

// judgeDrop judges the file system on which users write what their task hooks tell root.
func judgeDrop(s Site, seen Seen) []Result {
	const name = "drop-filesystem"
	path := dropFolder(s)
	if len(seen.Files) > 0 && seen.Files[0].Missing { // the hooks would make a folder of the tmpfs that all of them share
		seen.Files = []File{{Path: path, Kind: Folder, System: &FileSystem{}}}
	}
	fs, answer := folderOf(name, path, seen)
	if answer != nil {
		return []Result{*answer}
	}
	if !fs.Own || !fs.Tmpfs {
		what := "not a file system of its own"
		if fs.Own {
			what = "its file system is not a tmpfs"
		}
		return []Result{{name, Warning, path, what, "users write here: without its own small tmpfs one of them can fill " + runFolder(s) + " for all hooks", mountDrop(s, path)}}
	}
	var bad []Result
	if lacks := lacking(fs); lacks != "" {
		bad = append(bad, Result{name, Warning, path, "mounted without " + lacks, "users write here: nothing of theirs should run, be a device or change rights",
			"mount -o remount,nosuid,nodev,noexec " + quoted(path)})
	}
	if fs.Bytes == 0 || fs.Bytes > maxDropBytes || fs.Inodes == 0 || fs.Inodes > maxDropInodes {
		fix := "mount -o remount,size=16M,nr_inodes=8k " + quoted(path)
		if fs.Bytes == 0 || fs.Inodes == 0 { // the kernel sets no limit where there was none
			fix = "umount " + quoted(path) + " && " + mountDrop(s, path)
		}
		bad = append(bad, Result{name, Warning, path, fmt.Sprintf("its limits are %s and %s", limit(fs.Bytes>>20, "MiB"), limit(fs.Inodes, "inodes")),
			"users write here: what it may take of the node's memory should be little", fix})
	}
	bad = append(bad, roomless(name, path, fs, "the next job's task hooks can leave nothing: its end report may not find its output")...)
	if len(bad) == 0 {
		return []Result{{name, OK, path, fmt.Sprintf("a tmpfs of its own: %d MiB, %d inodes, nosuid, nodev, noexec", fs.Bytes>>20, fs.Inodes), "", ""}}
	}
	return bad
}

func mountDrop(s Site, path string) string {
	switch usual := path == config.Default().Paths.Run+"/drop"; {
	case usual && s.Survey.System.Package != "":
		return "systemctl enable --now run-bookend-drop.mount"
	case usual:
		return "install -m 0644 deploy/systemd/run-bookend-drop.mount -t /etc/systemd/system && systemctl daemon-reload && systemctl enable --now run-bookend-drop.mount"
	}
	return fmt.Sprintf("install -d -o root -g root -m 0711 %s && mount -t tmpfs -o %s tmpfs %[1]s", quoted(path), DropOptions)
}

func lacking(fs *FileSystem) string {
	var lacks []string
	for _, o := range []struct {
		has  bool
		name string
	}{{fs.NoSUID, "nosuid"}, {fs.NoDev, "nodev"}, {fs.NoExec, "noexec"}} {
		if !o.has {
			lacks = append(lacks, o.name)
		}
	}
	return strings.Join(lacks, ", ")
}

func limit(n uint64, unit string) string {
	if n == 0 {
		return "no limit of " + unit
	}
	return fmt.Sprintf("%d %s", n, unit)
}

// roomless lists why nothing new can be written. What a disk was made read-only for, the kernel's log knows.
func roomless(name, path string, fs *FileSystem, why string) []Result {
	what, fix := "", ""
	switch at := quoted(fs.Mount); {
	case fs.ReadOnly && fs.Tmpfs:
		what, fix = "read-only", "mount -o remount,rw "+at
	case fs.ReadOnly:
		what, fix = "read-only", "mount -o remount,rw "+at+"   # but first see in dmesg why it is so"
	case fs.Bytes > 0 && fs.Free < littleBytes:
		what, fix = fmt.Sprintf("full: %d KiB are free", fs.Free>>10), "du -xa "+at+"   # shows what fills it"
	case fs.Inodes > 0 && fs.Unused < littleInodes:
		what, fix = fmt.Sprintf("full: %d inodes are free", fs.Unused), "du -x --inodes "+at+"   # shows what fills it"
	default:
		return nil
	}
	return []Result{{name, Wrong, path, what, why, fix}}
}

func plural(word string, n int) string {
	if n == 1 {
		return word
	}
	return word + "s"
}
