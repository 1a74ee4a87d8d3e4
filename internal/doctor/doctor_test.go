package doctor

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"bookend/internal/config"
	"bookend/internal/safefile"
	"bookend/internal/slurmconf"
	"bookend/internal/state"
)

// All is well on a node where a job has ended; before the first hook, where only what must be installed is there; and
// where what the site does not use is not.
func TestHealthy(t *testing.T) {
	for name, change := range map[string]func(node){
		"a job has ended":       func(node) {},
		"before the first hook": both(gone("var"), gone("log"), gone("run/state"), gone("run/report")),
		"nothing unused": both(gone("log"), gone("bin/scontrol"), set(func(c *config.Config) {
			c.Log.File, c.Metrics.Textfile, c.Drain.ReasonBy = false, "", config.ReasonByNone
		})),
	} {
		n := newNode(t)
		change(n)
		results := n.examine()
		if bad := notWell(results); len(bad) > 0 || len(results) != len(Checks()) || Fails(results) {
			t.Errorf("%s: %d results of %d checks, not well: %+v", name, len(results), len(Checks()), bad)
		}
	}
}

// What a mode must be, tried on every mode there is: of a rule's bits nothing may be missing that it needs, and nothing
// may be there beyond its mode and what does little harm.
func TestEveryMode(t *testing.T) {
	for _, r := range Rules() {
		for mode := range uint32(0o10000) {
			v := view{check: Check{why: "why"}}
			r.judgeFile(&v, File{Path: "/x", Kind: r.Kind, Mode: mode})
			got := OK
			for _, res := range v.found {
				if res.Level == Wrong || got == OK {
					got = res.Level
				}
			}
			want, extra := OK, mode&^r.Mode
			switch short := mode&r.Need != r.Need; {
			case extra&^r.Rather != 0, short:
				want = Wrong
			case extra&0o777 != 0:
				want = Warning
			}
			if got != want {
				t.Fatalf("%s, mode %#o: %s, want %s", r.Shown, mode, got, want)
			}
		}
		if r.Rather&0o022 != 0 || r.Mode&0o022 != 0 {
			t.Errorf("%s: others may write", r.Shown)
		}
	}
}

// No command is about a file that a user can swap for a link before it is typed. What a user could have written is
// compared, or thrown away.
func TestNothingBelowOthersFolder(t *testing.T) {
	s := Site{Config: config.Default(), ConfigPath: "/c", Self: "/b", NVML: []string{"/n"}, CUDA: []string{"/u"}}
	for _, r := range Rules() {
		v := view{Site: s}
		r.judgeFile(&v, File{Path: "/x", Kind: r.Kind, Mode: 0o777, Distrust: &safefile.Untrusted{Path: "/x", UID: user, Mode: 0o777}})
		forged := strings.Contains(v.found[0].Fix, compare) || strings.HasPrefix(v.found[0].Fix, "rm ")
		if len(v.found) != 1 || !forged && (r.By != Made || r.Kind == Regular) {
			t.Errorf("%s: %+v", r.Shown, v.found)
		}
		v = view{Site: s}
		r.judgeFile(&v, File{Path: "/x", Kind: r.Kind, Mode: 0o777, Distrust: &safefile.Untrusted{Path: "/home", UID: user, Mode: 0o755}})
		if len(v.found) != 1 || v.found[0].Level != Wrong || strings.Contains(v.found[0].Fix, "/x") {
			t.Errorf("%s: %+v", r.Shown, v.found)
		}
	}
}

// What is below a folder that a group can write to is only as safe as that folder; each check says it once, with the
// line that closes it.
func TestFoldersAbove(t *testing.T) {
	n := newNode(t)
	must(t, os.Chmod(n.dir, 0o775))
	fix := "chmod go-w " + n.dir + compare
	above := map[string]int{}
	for _, r := range notWell(n.examine()) {
		if r.Seen == notAlone+n.dir+" is writable by others (mode 0775)" && r.Fix == fix && r.Level == Wrong {
			above[r.Check]++
		}
	}
	for _, r := range Rules() {
		if above[r.Name] != 1 {
			t.Errorf("%s says it %d times, want 1", r.Name, above[r.Name])
		}
	}
	n.do(fix)
	if bad := notWell(n.examine()); len(bad) > 0 {
		t.Errorf("%+v", bad)
	}
}

func TestManyFilesAreCounted(t *testing.T) {
	n := newNode(t)
	for range 30 {
		f, err := os.CreateTemp(n.in("run/state/n1"), "lock-")
		must(t, err)
		must(t, f.Chmod(0o644))
		f.Close()
	}
	got := n.said("records")
	if len(got) != maxReported+1 || !strings.HasPrefix(got[maxReported].Seen,
		"and 22 more") || got[maxReported].Level != Wrong {
		t.Errorf("%+v", got)
	}
}

// Each part of the node may hang, and costs no more than patience: what depends on it is unknown, and nothing is wrong.
func TestPartsThatHang(t *testing.T) {
	for folder, check := range map[string]string{
		"slurm": "slurm-conf", "proc/driver/nvidia/gpus": "driver", "hooks": "slurm-prolog",
		"log": "records",
	} {
		t.Run(folder, func(t *testing.T) {
			n := newNode(t)
			hang(t, n.in(folder))
			const patience = 3 * time.Second
			n.site.Config.Deadlines.Prolog.Driver = config.Duration(patience)
			began := time.Now()
			levels := map[string]string{}
			for _, r := range notWell(Examine(*n.site, patience)) {
				if levels[r.Check] = r.Level; r.Level == Wrong && folder == "log" {
					t.Errorf("%+v", r)
				}
			}
			// Four rounds of looking, one after another, and what the kernel itself needs.
			if took := time.Since(began); took < patience || took > 4*(patience+time.Second)+5*time.Second {
				t.Errorf("took %v", took)
			}
			if levels[check] != Unknown {
				t.Errorf("%s: %q, want %q", check, levels[check], Unknown)
			}
		})
	}
}

// While a child of Bookend's is stuck in the driver, it is not asked.
func TestStuckDriver(t *testing.T) {
	n := newNode(t)
	put(t, n.in("run/state/n1/stuck.json"), `{"pid":77,"start_ticks":5,"since_ns":3000000000,"op":"backend"}`, 0o600)
	put(t, n.in("proc/77/stat"), "77 (bookend-gpu) D 1"+strings.Repeat(" 0", 15)+" 1 0 5 0\n", 0o644)
	put(t, n.in("libexec/bookend-gpu"), "#!/bin/sh\ntouch "+n.in("asked")+"\n", 0o755)
	said := n.said("driver")
	if len(said) != 1 || said[0].Level != Unknown || !strings.Contains(said[0].Seen, "PID 77") {
		t.Errorf("%+v", said)
	}
	if _, err := os.Stat(n.in("asked")); err == nil {
		t.Error("the driver was asked")
	}
}

// Where slurm.conf is, a hook was told.
func TestPlaceOfConf(t *testing.T) {
	n := newNode(t)
	n.site.SlurmConf = ""
	store, err := state.Open(n.site.Config.Paths.Run, "n1")
	must(t, err)
	must(t, store.PutNumbering(slurmconf.Kept{Key: slurmconf.Key{Conf: n.in("slurm/slurm.conf")}}))
	if said := n.said("slurm-conf"); len(said) != 1 || said[0].Level != OK || said[0].Path != n.in("slurm/slurm.conf") {
		t.Errorf("%+v", said)
	}
}

// A path is a shell's one word, whatever is in it.
func TestQuoted(t *testing.T) {
	for _, path := range []string{"/plain/path-1.so", "", "/with space", "/it's", "/$(reboot)", "/a;b", "/-x",
		`/back\slash`, "/new\nline"} {
		out, err := exec.Command("/bin/sh", "-c", "printf %s "+quoted(path)).Output()
		if err != nil || string(out) != path {
			t.Errorf("%q: a shell reads %q, %v", path, out, err)
		}
	}
}

// The worst comes first; a fix is not folded; a terminal gets no control characters.
func TestPrint(t *testing.T) {
	long := strings.Repeat("word ", 20)
	results := []Result{
		{Check: "state", Level: OK, Path: "/run/x", Seen: "root's, 0700"},
		{Check: "records", Level: Wrong, Path: "/run/\x1b[2Jx", Seen: "belongs to user 7", Why: "they count",
			Fix: `chown root:root '/run/a\b'`},
		{Check: "log", Level: Warning, Path: "/log", Seen: "seen", Why: "why", Fix: long + "\nnext"},
	}
	var text, js bytes.Buffer
	bad := `ERROR records: /run/\x1b[2Jx: belongs to user 7` + "\n" +
		"  why: they count\n" + `  fix: chown root:root '/run/a\b'` + "\n" +
		"WARNING log: /log: seen\n  why: why\n  fix: " + long + "\n       next\n"
	for all, want := range map[bool]string{
		false: "n1: 1 error, 1 warning, 1 ok (--all shows them)\n" + bad,
		true:  "n1: 1 error, 1 warning, 1 ok\n" + bad + "ok state: /run/x: root's, 0700\n",
	} {
		text.Reset()
		Print(&text, "n1", results, all)
		if text.String() != want {
			t.Errorf("got\n%s\nwant\n%s", text.String(), want)
		}
	}
	must(t, PrintJSON(&js, results))
	var got struct {
		Results []Result
		Counts  map[string]int
	}
	must(t, json.Unmarshal(js.Bytes(), &got))
	if len(got.Results) != 3 || got.Results[1].Path != `/run/\x1b[2Jx` || got.Results[1].Fix != results[1].Fix ||
		got.Counts["wrong"] != 1 {
		t.Errorf("%s", js.String())
	}
}

// Without slurm.conf the cause is said once, with the line to add, and all that depends on it next to it.
func TestWithoutSlurm(t *testing.T) {
	n := newNode(t)
	must(t, os.RemoveAll(n.in("slurm")))
	results := n.examine()
	var text bytes.Buffer
	Print(&text, "n1", results, false)
	if strings.Count(text.String(), notJudged) != 1 || strings.Count(text.String(),
		"prolog-flags") != 1 || len(results) != len(Checks()) {
		t.Errorf("%s", text.String())
	}
}
