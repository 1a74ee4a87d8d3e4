package doctor

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/config"
)

func ruleOf(t *testing.T, name string) Rule {
	t.Helper()
	for _, r := range Rules() {
		if r.Name == name {
			return r
		}
	}
	t.Fatalf("no rule %q", name)
	return Rule{}
}

// What a mode must be, tried on every mode there is: of a rule's bits nothing may be missing that it needs, and nothing
// may be there beyond its mode and what does little harm.
func TestEveryMode(t *testing.T) {
	for _, r := range Rules() {
		for mode := range uint32(0o10000) {
			got := OK
			for _, res := range r.judgeMode(Site{}, File{Path: "/x", Kind: r.Kind, Mode: mode}) {
				if res.Level == Wrong || got == OK {
					got = res.Level
				}
				if res.Seen == "" || res.Why == "" || res.Fix == "" {
					t.Fatalf("%s, mode %#o: %+v", r.Name, mode, res)
				}
			}
			want := OK
			extra := mode &^ r.Mode
			switch short := mode&r.Need != r.Need; {
			case extra&^r.Rather != 0, short && r.ShortLevel == "":
				want = Wrong
			case extra&0o777 != 0, short:
				want = Warning
			}
			if got != want {
				t.Fatalf("%s, mode %#o: %s, want %s", r.Name, mode, got, want)
			}
		}
		if others := r.Rather & 0o022; others != 0 || r.Mode&0o022 != 0 {
			t.Errorf("%s: others may write", r.Name)
		}
	}
}

// A rule is whole: it says where, why and what follows, and its own mode passes.
func TestRules(t *testing.T) {
	names := map[string]bool{}
	s := Site{Config: config.Default(), ConfigPath: config.DefaultFile, Programs: []string{"/p"}, NVML: []string{"/n"}, CUDA: []string{"/c"}, Self: "/b"}
	for _, r := range Rules() {
		if names[r.Name] {
			t.Errorf("%s stands twice", r.Name)
		}
		names[r.Name] = true
		if r.Shown == "" || r.Why == "" || r.Mode == 0 || r.Kind == "" || r.By == "" || r.place == "" || r.absent == nil || len(r.paths(s)) == 0 || (r.Need != 0) != (r.Short != "") {
			t.Errorf("%s: not whole: %+v", r.Name, r)
		}
		if bad := r.judgeFile(s, File{Path: "/x", Kind: r.Kind, Mode: r.Mode, Links: 1}); len(bad) > 0 {
			t.Errorf("%s: its own mode: %+v", r.Name, bad)
		}
	}
}

func TestManyFilesAreCounted(t *testing.T) {
	r := ruleOf(t, "locks")
	s := Site{Config: config.Default()}
	var files []File
	for range 30 {
		files = append(files, File{Path: "/lock", Kind: Regular, Mode: 0o644, Links: 1})
	}
	got := r.judge(s, Seen{Files: files})
	if len(got) != maxSaid+1 || !strings.HasPrefix(got[maxSaid].Seen, "and 22 more") || got[maxSaid].Level != Wrong {
		t.Errorf("%+v", got)
	}
	for i := range files {
		files[i].Mode = 0o600
	}
	if got := r.judge(s, Seen{Files: files, Left: 5}); len(got) != 1 || got[0].Level != OK || got[0].Seen != "all 30 are root's, 0600 or less; 5 more were not looked at" {
		t.Errorf("%+v", got)
	}
}

func TestUnusedIsNotLookedAt(t *testing.T) {
	c := config.Default()
	c.Log.File, c.Metrics.Textfile, c.Drain.ReasonBy = false, "", config.ReasonByNone
	s := Site{Config: c, ConfigPath: config.DefaultFile}
	for name, want := range map[string]string{
		"log": "log.file is false", "metrics-folder": "metrics.textfile is empty", "log-file": "log.file is false", "metrics": "metrics.textfile is empty", "scontrol": "drain.reason_by is none",
	} {
		r := ruleOf(t, name)
		got := r.judge(s, Seen{})
		if len(r.look(s).Paths) != 0 || len(got) != 1 || got[0].Level != OK || !strings.Contains(got[0].Seen, want) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestConfigText(t *testing.T) {
	for name, tt := range map[string]struct {
		site Site
		want Level
		seen string
	}{
		"valid":          {Site{Config: config.Default()}, OK, "valid: mode observe"},
		"mistakes":       {Site{Mistakes: 3, Mistake: "line 7: bad"}, Wrong, "not valid: 3 mistakes, the first: line 7: bad"},
		"one mistake":    {Site{Mistakes: 1, Mistake: "line 7: bad"}, Wrong, "not valid: line 7: bad"},
		"untrusted":      {Site{Unread: "not trusted"}, Wrong, "not used: not trusted"},
		"none":           {Site{Unread: "open: no such file or directory"}, OK, "there is none: the shipped defaults are in force"},
		"named and none": {Site{Unread: "open: no such file or directory", Named: true}, Wrong, "not used: open: no such file or directory"},
	} {
		got := judgeText(tt.site, Seen{})
		if len(got) != 1 || got[0].Level != tt.want || got[0].Seen != tt.seen || (got[0].Level == Wrong) != (got[0].Fix != "" && got[0].Why != "") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestRunFileSystem(t *testing.T) {
	s := Site{Config: config.Default()}
	seen := func(fs FileSystem) Seen { return Seen{Files: []File{{Kind: Folder, System: &fs}}} }
	const room = 1 << 30
	for name, tt := range map[string]struct {
		seen Seen
		want Level
		says string
	}{
		"tmpfs":     {seen(FileSystem{Tmpfs: true, Bytes: room, Free: room, Inodes: room, Unused: room}), OK, "a tmpfs with room"},
		"disk":      {seen(FileSystem{Bytes: room, Free: room, Inodes: room, Unused: room}), Warning, "not a tmpfs"},
		"no limits": {seen(FileSystem{Tmpfs: true}), OK, "a tmpfs with room"},
		"full":      {seen(FileSystem{Tmpfs: true, Bytes: room, Free: 4096, Inodes: room, Unused: room}), Wrong, "full: 4 KiB"},
		"no inodes": {seen(FileSystem{Tmpfs: true, Bytes: room, Free: room, Inodes: room, Unused: 2}), Wrong, "full: 2 inodes"},
		"read-only": {seen(FileSystem{Tmpfs: true, ReadOnly: true}), Wrong, "read-only"},
		"missing":   {Seen{Files: []File{{Missing: true}}}, OK, laterMade},
		"untold":    {Seen{Files: []File{{Kind: Folder}}}, Unknown, "its file system is unknown"},
		"hangs":     {Seen{Unknown: "no answer"}, Unknown, "could not be looked at: no answer"},
	} {
		got := judgeRun(s, tt.seen)
		if len(got) != 1 || got[0].Level != tt.want || !strings.Contains(got[0].Seen, tt.says) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestFails(t *testing.T) {
	for level, want := range map[Level]bool{OK: false, Warning: false, Wrong: true, Unknown: true} {
		if got := Fails([]Result{{Level: OK}, {Level: level}}); got != want {
			t.Errorf("%s: %v", level, got)
		}
	}
}

// A path is a shell's one word, whatever is in it.
func TestQuoted(t *testing.T) {
	for _, path := range []string{"/plain/path-1.so", "", "/with space", "/it's", "/$(reboot)", "/a;b", "/-x", `/back\slash`, "/new\nline"} {
		out, err := exec.Command("/bin/sh", "-c", "printf %s "+quoted(path)).Output()
		if err != nil || string(out) != path {
			t.Errorf("%q: a shell reads %q, %v", path, out, err)
		}
	}
}

func TestPrint(t *testing.T) {
	results := []Result{
		{"state", OK, "/run/x", "root's, 0700", "", ""},
		{"records", Wrong, "/run/\x1b[2Jx", "belongs to user 7", "they count", `chown root:root '/run/a\b'`},
	}
	var text, js bytes.Buffer
	Print(&text, results)
	want := `wrong    records          /run/\x1b[2Jx: belongs to user 7` + "\n" +
		"         why: they count\n" + `         fix: chown root:root '/run/a\b'` + "\n" +
		"ok       state            /run/x: root's, 0700\n" +
		"2 checked: 1 ok, 0 warnings, 1 wrong, 0 unknown\n"
	if text.String() != want {
		t.Errorf("%s", text.String())
	}
	must(t, PrintJSON(&js, results))
	var got struct {
		Results []Result
		Counts  map[Level]int
	}
	must(t, json.Unmarshal(js.Bytes(), &got))
	if len(got.Results) != 2 || got.Results[1].Path != `/run/\x1b[2Jx` || got.Results[1].Fix != results[1].Fix || got.Counts[Wrong] != 1 || got.Counts[Unknown] != 0 {
		t.Errorf("%s", js.String())
	}
}

// A place that does not answer is unknown once patience has run out. Nothing of other places is called wrong for that: on a
// busy machine they may be unknown too.
func TestPlaceThatHangs(t *testing.T) {
	n := newNode(t)
	hang(t, n.in("log"))
	const patience = 3 * time.Second
	began := time.Now()
	results := Examine(*n.site, patience)
	if took := time.Since(began); took < patience {
		t.Errorf("took %v: nothing hung", took)
	}
	levels := map[string]Level{}
	for _, r := range notWell(results) {
		levels[r.Check] = r.Level
		if r.Level != Unknown || !strings.HasPrefix(r.Seen, "could not be looked at: ") {
			t.Errorf("%+v", r)
		}
	}
	if levels["log"] != Unknown || levels["log-file"] != Unknown || !Fails(results) {
		t.Errorf("%v", levels)
	}
	for _, c := range Checks() {
		if look := c.Look(*n.site); look.Place == "log" && !strings.HasPrefix(c.Name, "log") {
			t.Errorf("%s waits for the log's folder", c.Name)
		}
	}
}

// hang mounts a FUSE file system that nobody serves over a folder: whoever asks it anything waits.
func hang(t *testing.T, dir string) {
	t.Helper()
	fuse, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	must(t, err)
	options := "fd=" + strconv.Itoa(int(fuse.Fd())) + ",rootmode=40000,user_id=0,group_id=0"
	must(t, unix.Mount("none", dir, "fuse.none", 0, options))
	t.Cleanup(func() {
		must(t, fuse.Close()) // whoever waits is told that the connection is gone
		must(t, unix.Unmount(dir, unix.MNT_DETACH))
	})
	if _, err := os.Stat(filepath.Dir(dir)); err != nil {
		t.Fatal(err)
	}
}

// What is to be done is a command, or says which key to change: on each kind of trouble with a file system.
func TestFileSystemFixes(t *testing.T) {
	full := FileSystem{Mount: "/run/bookend", Tmpfs: true, Bytes: 1 << 30}
	for name, tt := range map[string]struct {
		run  string
		fs   FileSystem
		want string
	}{
		"full":                   {"/run/bookend", full, "du -xa /run/bookend   # shows what fills it"},
		"read-only disk":         {"/run/bookend", FileSystem{Mount: "/", ReadOnly: true}, "mount -o remount,rw /   # but first see in dmesg why it is so"},
		"no tmpfs, as shipped":   {"/run/bookend", FileSystem{Mount: "/"}, "install -d -o root -g root -m 0755 /run/bookend && mount -t tmpfs -o size=10%,"},
		"no tmpfs, its own path": {"/srv/run", FileSystem{Mount: "/"}, "let paths.run name a folder of a tmpfs, such as /run/bookend, or: install -d "},
	} {
		s := Site{Config: config.Default()}
		s.Config.Paths.Run = tt.run
		got := judgeRun(s, Seen{Files: []File{{Kind: Folder, System: &tt.fs}}})
		if last := got[len(got)-1]; !strings.HasPrefix(last.Fix, tt.want) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// What others could have written is not trusted for a new owner or mode: neither the file nor what is in a folder.
func TestOthersCouldHaveWritten(t *testing.T) {
	s := Site{Config: config.Default(), ConfigPath: config.DefaultFile}
	written := map[string]File{
		"a user's": {Path: "/x", Mode: 0o644, UID: user, Links: 1}, "writable": {Path: "/x", Mode: 0o666, Links: 1},
		"below a group's folder": {Path: "/x", Mode: 0o644, Links: 1, Distrust: &Culprit{Path: "/usr/libexec", Mode: 0o775}},
		"below a user's folder":  {Path: "/x", Mode: 0o644, Links: 1, Distrust: &Culprit{Path: "/usr/libexec", UID: user, Mode: 0o755}},
	}
	for _, r := range Rules() {
		if r.By == Made || r.Kind == Folder {
			continue
		}
		for name, f := range written {
			f.Kind, f.Mode = r.Kind, f.Mode|0o111
			for _, res := range r.judgeFile(s, f) {
				if res.Level == Wrong && !strings.Contains(res.Fix, "install") && !strings.Contains(res.Fix, "a copy you trust") {
					t.Errorf("%s %s: %+v", r.Name, name, res)
				}
			}
		}
	}
}

// Of the collector's own folder neither owner nor mode is changed.
func TestCollectorsFolder(t *testing.T) {
	s := Site{Config: config.Default()}
	s.Config.Metrics.Textfile = "/srv/collector/bookend.prom"
	r := ruleOf(t, "metrics-folder")
	for _, f := range []File{{Mode: 0o755, UID: user}, {Mode: 0o775}} {
		f.Path, f.Kind = "/srv/collector", Folder
		if got := r.judge(s, Seen{Files: []File{f}}); len(got) != 1 || got[0].Level != Wrong || !strings.HasPrefix(got[0].Fix, "let metrics.textfile be /var/lib/bookend/bookend.prom") {
			t.Errorf("%+v", got)
		}
	}
	got := r.judge(s, Seen{Files: []File{{Path: "/srv/collector", Missing: true}}})
	if len(got) != 1 || got[0].Level != Wrong || !strings.HasPrefix(got[0].Fix, "install -d -o root -g root -m 0755 /srv/collector ") {
		t.Errorf("%+v", got)
	}
}

// One line says where to run what needs the build, and only then; one warning is no "warnings".
func TestPrintEnds(t *testing.T) {
	for fix, says := range map[string]bool{"install -D -m 0755 bin/bookend /usr/bin/bookend": true, mountDrop(Site{}, "/run/bookend/drop"): true, "chmod 0700 /x": false, "install -d -m 0755 /bin/x": false} {
		var text bytes.Buffer
		Print(&text, []Result{{"x", Warning, "/x", "seen", "why", fix}})
		if strings.Contains(text.String(), "in the folder in which Bookend was built\n") != says || !strings.HasSuffix(text.String(), "1 checked: 0 ok, 1 warning, 0 wrong, 0 unknown\n") {
			t.Errorf("%s", text.String())
		}
	}
}

// No command is about a file that others can swap for a link before it is typed: what lies above comes first, alone.
func TestNothingBelowOthersFolder(t *testing.T) {
	s := Site{Config: config.Default()}
	for _, r := range Rules() {
		if r.Kind != Regular || r.unusedReason(s) != "" || len(r.Paths(s)) == 0 {
			continue
		}
		path := r.Paths(s)[0]
		f := File{Path: path, Real: path, Kind: Regular, UID: 65534, Mode: 0o666, Links: 2, Distrust: &Culprit{Path: "/home/user", UID: 65534, Mode: 0o755}}
		bad := r.judgeFile(s, f)
		if len(bad) != 1 || bad[0].Level != Wrong {
			t.Errorf("%s: %+v", r.Name, bad)
			continue
		}
		for _, verb := range []string{"chmod", "chown"} {
			if strings.Contains(bad[0].Fix, verb) && strings.Contains(bad[0].Fix, path) {
				t.Errorf("%s: %s", r.Name, bad[0].Fix)
			}
		}
		f.Distrust = nil
		for _, b := range r.judgeFile(s, f) {
			if r.By == Made && strings.Contains(b.Fix, "chown") {
				t.Errorf("%s: %s", r.Name, b.Fix)
			}
		}
	}
}
