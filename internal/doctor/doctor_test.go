package doctor

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"bookend/internal/config"
	"bookend/internal/node"
	"bookend/internal/safefile"
	"bookend/internal/slurmconf"
	"bookend/internal/state"
	"bookend/test/must"
)

// All is well on a node where a job has ended; and where what the site does not use is not.
func TestHealthy(t *testing.T) {
	n := newNode(t)
	for range 2 {
		results := n.examine()
		if bad := notWell(results); len(bad) > 0 || len(results) != len(Checks()) {
			t.Errorf("%d results of %d checks, not well: %+v", len(results), len(Checks()), bad)
		}
		must.Do(t, os.RemoveAll(n.in("bin/scontrol")))
		n.site.Config.Drain.ReasonBy = config.ReasonByNone
	}
}

// No command is about a file that a user can swap for a link before it is typed. What a user could have written is
// compared.
func TestNothingBelowOthersFolder(t *testing.T) {
	for _, r := range newNode(t).site.programs() {
		for path, fix := range map[string]string{"/x": compare, "/home": "move it to where only root can write"} {
			v := view{}
			r.judgeFile(&v, entry{path: "/x", regular: true, mode: 0o777,
				distrust: &safefile.Untrusted{Path: path, UID: user, Mode: 0o777}})
			if len(v.found) != 1 || v.found[0].Level != Wrong || !strings.Contains(v.found[0].Fix, fix) ||
				strings.Contains(v.found[0].Fix, "/x") != (path == "/x") {
				t.Errorf("%v, %s: %+v", r.at, path, v.found)
			}
		}
	}
}

// What is below a folder that a group can write to is only as safe as that folder; each check says it once, with the
// line that closes it.
func TestFoldersAbove(t *testing.T) {
	n := newNode(t)
	must.Do(t, os.Chmod(n.dir, 0o775))
	fix := "chmod go-w " + n.dir + compare
	above := map[string]int{}
	for _, r := range notWell(n.examine()) {
		if r.Seen == notAlone+n.dir+": mode 0775 lets others write" && r.Fix == fix && r.Level == Wrong {
			above[r.Check]++
		}
	}
	for _, check := range []string{"programs", "config"} {
		must.Not(t, above[check] != 1, "%s says it %d times, want 1", check, above[check])
	}
	n.do(fix)
	if bad := notWell(n.examine()); len(bad) > 0 {
		t.Errorf("%+v", bad)
	}
}

// Each part of the node may hang, and costs no more than patience: what depends on it is unknown, and nothing is wrong.
func TestPartsThatHang(t *testing.T) {
	for folder, check := range map[string]string{
		"slurm": "slurm-conf", "proc/driver/nvidia/gpus": "driver", "hooks": "slurm-prolog",
	} {
		t.Run(folder, func(t *testing.T) {
			n := newNode(t)
			hang(t, n.in(folder))
			const patience = 3 * time.Second
			n.site.Config.Deadlines.Prolog.Driver = config.Duration(patience)
			began := time.Now()
			levels := map[string]string{}
			for _, r := range notWell(Examine(*n.site, patience, Checks())) {
				levels[r.Check] = r.Level
			}
			// Four rounds of looking, one after another, and what the kernel itself needs.
			if took := time.Since(began); took < patience || took > 4*(patience+time.Second)+5*time.Second {
				t.Errorf("took %v", took)
			}
			must.Not(t, levels[check] != Unknown, "%s: %q, want %q", check, levels[check], Unknown)
		})
	}
}

// Without slurmd the line says what to set, and nothing of an answer that there is none of.
func TestWithoutSlurmd(t *testing.T) {
	n := newNode(t)
	must.Do(t, os.RemoveAll(n.in("sbin/slurmd")))
	const want = "does not tell its version: slurmd is missing: set slurm.slurmd to its path"
	if said := n.said("slurm-version"); len(said) != 1 || said[0].Level != Unknown || said[0].Seen != want {
		t.Errorf("%+v", said)
	}
}

// Where slurm.conf is, a hook was told.
func TestPlaceOfConf(t *testing.T) {
	n := newNode(t)
	n.site.SlurmConf = ""
	store := must.Have(state.Open(n.site.Config.Paths.Run, "n1"))(t)
	must.Do(t, node.Numbering.Save(store, &slurmconf.Kept{Key: slurmconf.Key{Conf: n.in("slurm/slurm.conf")}}))
	if said := n.said("slurm-conf"); len(said) != 1 || said[0].Level != OK || said[0].Path != n.in("slurm/slurm.conf") {
		t.Errorf("%+v", said)
	}
}

// A path is a shell's one word, whatever is in it.
func TestQuoted(t *testing.T) {
	for _, path := range []string{"/plain/path-1.so", "", "/with space", "/it's", "/$(reboot)", "/a;b", "/-x",
		`/back\slash`, "/new\nline"} {
		out, err := exec.Command("/bin/sh", "-c", "printf %s "+quoted(path)).Output()
		must.Not(t, err != nil || string(out) != path, "%q: a shell reads %q, %v", path, out, err)
	}
}

// The worst comes first; a fix is not folded; a terminal gets no control characters.
func TestReport(t *testing.T) {
	long := strings.Repeat("word ", 20)
	results := []Result{
		{Check: "state", Level: OK, Path: "/run/x", Seen: "root's, 0700"},
		{Check: "config", Level: Wrong, Path: "/run/\x1b[2Jx", Seen: "belongs to user 7", Why: "they count",
			Fix: `chown root:root '/run/a\b'`},
		{Check: "log", Level: Warning, Path: "/log", Seen: "seen", Why: "why", Fix: long},
	}
	bad := `ERROR config: /run/\x1b[2Jx: belongs to user 7` + "\n" +
		"  why: they count\n" + `  fix: chown root:root '/run/a\b'` + "\n" +
		"WARNING log: /log: seen\n  why: why\n  fix: " + long + "\n"
	for all, want := range map[bool]string{
		false: "n1: 1 error, 1 warning, 1 ok (--all shows them)\n" + bad,
		true:  "n1: 1 error, 1 warning, 1 ok\n" + bad + "ok state: /run/x: root's, 0700\n",
	} {
		var text strings.Builder
		r := NewReport(2, "doctor", "n1", results, all)
		r.Text(&text)
		must.Not(t, text.String() != want || !r.Fails(), "got\n%s\nwant\n%s", text.String(), want)
	}
	for level, fails := range map[string]bool{OK: false, Warning: false, Unknown: true} {
		r := NewReport(2, "doctor", "n1", []Result{{Level: level}}, false)
		must.Not(t, r.Fails() != fails, "%s: fails %v", level, r.Fails())
	}
}

// Without slurm.conf the cause is said, and what depends on it is left out.
func TestWithoutSlurm(t *testing.T) {
	n := newNode(t)
	must.Do(t, os.RemoveAll(n.in("slurm")))
	if bad := notWell(n.examine()); len(bad) != 1 || bad[0].Check != "slurm-conf" {
		t.Errorf("%+v", bad)
	}
}

// Admins are told in docs/doctor.md what doctor demands.
func TestDoc(t *testing.T) {
	have := must.Read(t, "../../docs/doctor.md")
	for _, c := range Checks() {
		must.Not(t, !strings.Contains(have, "`"+c.Name+"`"), "docs/doctor.md says nothing of the check %s", c.Name)
		must.Not(t, why(c.Name) == "", "why.txt has no row of the check %s", c.Name)
	}
	for _, h := range slots() {
		must.Not(t, h.without() == "", "why.txt does not say what happens without %s", h.key)
	}
}

// What docs/admin.md says to install is what doctor demands.
func TestInstallCommands(t *testing.T) {
	c := config.Default()
	c.Drain.ReasonBy = config.ReasonByNone // scontrol is not Bookend's
	s := Site{Config: c, ConfigPath: config.DefaultFile, Self: "/usr/bin/bookend",
		Programs: []string{filepath.Dir(c.Backend)}}
	want := map[string]string{}
	for _, r := range append(s.programs(), rule{mode: 0o644, at: []string{s.ConfigPath}}) {
		for _, path := range r.at {
			want[path] = fmt.Sprintf("%04o", r.mode)
		}
	}
	have := map[string]string{}
	line := regexp.MustCompile(`(?m)^install -D -m (\d{4}) -t (\S+) (.+)$`)
	for _, l := range line.FindAllStringSubmatch(must.Read(t, "../../docs/admin.md"), -1) {
		for _, file := range strings.Fields(l[3]) {
			have[l[2]+"/"+filepath.Base(file)] = l[1]
		}
	}
	must.Not(t, !maps.Equal(have, want), "docs/admin.md installs %v, want %v", have, want)
}

// The unit mounts what doctor would mount: on the drop, with the same options, before slurmd. make check-deploy has
// systemd look at the rest of it.
func TestMountUnit(t *testing.T) {
	const file = "../../deploy/systemd/run-bookend-drop.mount"
	unit, where := must.Read(t, file), filepath.Join(config.Default().Paths.Run, "drop")
	for _, line := range []string{"What=tmpfs", "Where=" + where, "Type=tmpfs", "Options=" + DropOptions,
		"Before=slurmd.service", "WantedBy=slurmd.service"} {
		must.Not(t, !strings.Contains(unit, "\n"+line+"\n"), "%s lacks %s", file, line)
	}
	if name := strings.ReplaceAll(strings.TrimPrefix(where, "/"), "/", "-") + ".mount"; filepath.Base(file) != name {
		t.Errorf("systemd wants the name %s", name)
	}
}
