package faults

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/internal/config"
	"bookend/internal/doctor"
)

// agreed is a node whose hooks find nothing of Bookend's but what was installed.
func agreed(t *testing.T) *node {
	n := newNode(t, "observe")
	t.Cleanup(func() { os.RemoveAll("/run/bookend-agreed") })
	n.configure(func(c *conf) { c.run = "/run/bookend-agreed" })
	return n
}

// bothEnds plays one job through all four hooks.
func (n *node) bothEnds() {
	n.Helper()
	n.clean(prolog, newJob())
	for _, task := range []hook{taskProlog, taskEpilog} {
		if o := n.hook(task, newJob().With("SLURM_PROCID", "0", "SLURM_STEP_ID", "4294967291", "SLURM_STEPID",
			"4294967291")); o.exit != 0 {
			n.Fatalf("%s", o)
		}
	}
	n.clean(epilog, newJob())
}

func (n *node) site() doctor.Site {
	n.Helper()
	text, err := os.ReadFile(n.config)
	must(n, err)
	cfg, problems := config.Parse(text)
	if len(problems) > 0 {
		n.Fatal(problems)
	}
	return doctor.Site{Config: cfg, ConfigPath: n.config, Programs: []string{programs}}
}

// What the hooks make where there is nothing is what the doctor's table says, in owner and mode, whatever their umask;
// all that they make stands in the table; and the doctor calls it well.
func TestHooksMakeWhatTheTableSays(t *testing.T) {
	for _, umask := range []int{0, 0o022, 0o077} {
		t.Run(fmt.Sprintf("umask %04o", umask), func(t *testing.T) {
			n := agreed(t)
			was := unix.Umask(umask) // which the hooks inherit, as from slurmd
			defer unix.Umask(was)
			n.makeAll()
		})
	}
}

func (n *node) makeAll() {
	n.Helper()
	n.clean(prolog, bystanding()) // stays open: its report and its drop are still there
	n.bothEnds()
	site, made := n.site(), map[string]int{}
	for _, root := range []string{site.Config.Paths.Run, site.Config.Paths.Var, site.Config.Paths.Log} {
		must(n, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			must(n, err)
			n.agrees(site, path, made)
			return nil
		}))
	}
	for _, r := range doctor.Rules() {
		if r.By == doctor.Made && made[r.Shown] == 0 {
			n.Errorf("no hook has made %s (%s)", r.Shown, r.Name)
		}
	}
	if made["users"] == 0 {
		n.Error("neither report nor drop of the bystander is there")
	}
	if bad := n.doctor(); len(bad) != 1 || bad["drop-filesystem"] != "warning: not a tmpfs of its own" {
		n.Errorf("%v", bad)
	}
}

// agrees compares a path with the rule of the table that is about it.
func (n *node) agrees(site doctor.Site, path string, made map[string]int) {
	n.Helper()
	var st unix.Stat_t
	must(n, unix.Lstat(path, &st))
	folder := st.Mode&unix.S_IFMT == unix.S_IFDIR
	mode := st.Mode & 0o7777
	switch in := filepath.Base(filepath.Dir(path)); in {
	case "report", "drop":
		users := st.Uid == st.Gid && (st.Uid == bystander || st.Uid == user)
		if right := map[string]bool{"report": mode == 0o640 && st.Uid == 0, "drop": mode == 0o600 &&
			users}[in]; !right {
			n.Errorf("%s: %d:%d, %#o", path, st.Uid, st.Gid, mode)
		}
		made["users"]++
		return
	}
	for _, r := range doctor.Rules() {
		if r.By != doctor.Made || folder != (r.Kind == doctor.Folder) || !matches(path, r.Paths(site)) {
			continue
		}
		made[r.Shown]++
		if mode != r.Mode || st.Uid != 0 || st.Gid != 0 {
			n.Errorf("%s: %d:%d, %#o; the table says root's, %#o (%s)", path, st.Uid, st.Gid, mode, r.Mode, r.Name)
		}
		return
	}
	n.Errorf("%s is in no rule of the table", path)
}

func matches(path string, patterns []string) bool {
	for _, p := range patterns {
		if ok, _ := filepath.Match(p, path); ok {
			return true
		}
	}
	return false
}

// doctor runs the command, and returns what is not well.
func (n *node) doctor() (bad map[string]string) {
	n.Helper()
	text, _ := n.bookend("doctor", "--json")
	var got struct{ Results []doctor.Result }
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		n.Fatalf("%v: %s", err, text)
	}
	bad = map[string]string{}
	ours := map[string]bool{"drop-filesystem": true} // what this machine's Slurm and driver are is as it is
	for _, r := range doctor.Rules() {
		ours[r.Name] = true
	}
	for _, r := range got.Results {
		if r.Level != doctor.OK && ours[r.Check] {
			bad[r.Check] = string(r.Level) + ": " + r.Seen
		}
	}
	return bad
}
