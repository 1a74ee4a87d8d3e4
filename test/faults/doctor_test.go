package faults

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/internal/config"
	"bookend/internal/doctor"
)

// What the hooks make where there is nothing is what the doctor's table says, in owner and mode, whatever their umask;
// all that they make stands in the table; and the doctor calls it well.
func TestHooksMakeWhatTheTableSays(t *testing.T) {
	for _, umask := range []int{0, 0o022, 0o077} {
		t.Run(fmt.Sprintf("umask %04o", umask), func(t *testing.T) {
			n := newNode(t, "observe")
			t.Cleanup(func() { os.RemoveAll("/run/bookend-agreed") })
			n.configure(func(c *conf) { c.run = "/run/bookend-agreed" })
			was := unix.Umask(umask) // which the hooks inherit, as from slurmd
			defer unix.Umask(was)
			n.clean(prolog, bystanding()) // stays open: its report and its drop are still there
			n.clean(prolog, newJob())
			for _, task := range []hook{taskProlog, taskEpilog} {
				if o := n.hook(task, newJob().With("SLURM_PROCID", "0", "SLURM_STEP_ID", "4294967291", "SLURM_STEPID",
					"4294967291")); o.exit != 0 {
					n.Fatalf("%s", o)
				}
			}
			n.clean(epilog, newJob())
			n.agrees()
			if bad := n.doctor(); len(bad) != 1 || bad["drop-filesystem"] != "warning: not a tmpfs of its own" {
				n.Errorf("%v", bad)
			}
		})
	}
}

// agrees compares all that there is with the rules of the table.
func (n *node) agrees() {
	n.Helper()
	cfg, problems := config.Parse([]byte(n.get(n.config)))
	if len(problems) > 0 {
		n.Fatal(problems)
	}
	site, made := doctor.Site{Config: cfg, ConfigPath: n.config, Programs: []string{programs}}, map[string]int{}
	for _, root := range []string{cfg.Paths.Run, cfg.Paths.Var, cfg.Paths.Log} {
		must(n, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			must(n, err)
			n.ruled(site, path, made)
			return nil
		}))
	}
	for _, r := range doctor.Rules() {
		if r.By == doctor.Made && made[r.Shown] == 0 {
			n.Errorf("no hook has made %s (%s)", r.Shown, r.Name)
		}
	}
	if made["report"] == 0 || made["drop"] == 0 {
		n.Error("neither report nor drop of the bystander is there")
	}
}

// ruled compares a path with the rule of the table that is about it.
func (n *node) ruled(site doctor.Site, path string, made map[string]int) {
	n.Helper()
	var st unix.Stat_t
	must(n, unix.Lstat(path, &st))
	mode, users := st.Mode&0o7777, st.Uid == st.Gid && (st.Uid == bystander || st.Uid == user)
	switch in := filepath.Base(filepath.Dir(path)); in {
	case "report", "drop":
		if made[in]++; (in != "report" || mode != 0o640 || st.Uid != 0) && (in != "drop" || mode != 0o600 || !users) {
			n.Errorf("%s: %d:%d, %#o", path, st.Uid, st.Gid, mode)
		}
		return
	}
	matches := func(pattern string) bool { ok, _ := filepath.Match(pattern, path); return ok }
	folder := st.Mode&unix.S_IFMT == unix.S_IFDIR
	for _, r := range doctor.Rules() {
		if r.By == doctor.Made && folder == (r.Kind == doctor.Folder) && slices.ContainsFunc(r.Paths(site), matches) {
			if made[r.Shown]++; mode != r.Mode || st.Uid != 0 || st.Gid != 0 {
				n.Errorf("%s: %d:%d, %#o; the table says root's, %#o (%s)", path, st.Uid, st.Gid, mode, r.Mode, r.Name)
			}
			return
		}
	}
	n.Errorf("%s is in no rule of the table", path)
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
	for _, r := range got.Results { // what this machine's Slurm and driver are is as it is
		ours := slices.ContainsFunc(doctor.Rules(), func(rule doctor.Rule) bool { return rule.Name == r.Check })
		if r.Level != doctor.OK && (ours || r.Check == "drop-filesystem") {
			bad[r.Check] = string(r.Level) + ": " + r.Seen
		}
	}
	return bad
}
