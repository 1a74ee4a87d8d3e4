package faults

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/internal/config"
	"bookend/internal/doctor"
	"bookend/internal/slurm"
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
	for _, task := range []hook{{"bookend-prolog", slurm.TaskProlog, 0}, {"bookend-epilog", slurm.TaskEpilog, 0}} {
		if o := n.hook(task, newJob().with("SLURM_PROCID", "0", "SLURM_STEP_ID", "4294967291", "SLURM_STEPID", "4294967291")); o.exit != 0 {
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

// What the hooks make where there is nothing is what the doctor's table says, in owner and mode, whatever their umask; all
// that they make stands in the table; and the doctor calls it well.
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
	n.clean(prolog, bystanding()) // stays open: its report and its drop folder are still there
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
		n.Error("neither report nor drop folder of the bystander is there")
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
		if right := map[string]bool{"report": mode == 0o640 && st.Uid == 0, "drop": mode == 0o700 && users}[in]; !right {
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
	beyond := map[string]bool{} // what this machine's Slurm, driver and clock are is as it is
	for _, c := range doctor.Checks() {
		beyond[c.Name] = c.Area != ""
	}
	for _, r := range got.Results {
		if r.Level != doctor.OK && (!beyond[r.Check] || r.Check == "drop-filesystem") {
			bad[r.Check] = string(r.Level) + ": " + r.Seen
		}
	}
	return bad
}

// The unit of deploy/ mounts what the doctor calls well, hooks work with it, and its options are in force.
func TestDropUnit(t *testing.T) {
	n := agreed(t)
	unit := unitOf(t, "../../deploy/systemd/run-bookend-drop.mount")
	if where := unit["Mount"]["Where"]; where != "/run/bookend/drop" {
		t.Errorf("mounts on %q", where)
	}
	drop := filepath.Join(n.conf.run, "drop")
	must(t, os.MkdirAll(drop, 0o755)) // as systemd makes a mount point
	mountAs(t, drop, unit["Mount"]["Type"], unit["Mount"]["Options"])
	n.bothEnds()
	if bad := n.doctor(); len(bad) != 0 {
		t.Errorf("%v", bad)
	}
	n.userCannot(drop)
	if unit["Mount"]["Options"] != doctor.DropOptions {
		t.Errorf("the doctor names other options: %q", doctor.DropOptions)
	}
}

// userCannot shows what the mount keeps the user of a job from.
func (n *node) userCannot(drop string) {
	n.Helper()
	n.clean(prolog, newJob())
	folder := filepath.Join(drop, nodeName+"_100")
	script := filepath.Join(folder, "run")
	must(n, os.WriteFile(script, []byte("#!/bin/sh\n"), 0o755))
	if err := unix.Access(script, unix.X_OK); err != unix.EACCES {
		n.Errorf("a program in the drop folder: %v", err)
	}
	if err := os.WriteFile(filepath.Join(folder, "large"), make([]byte, 17<<20), 0o600); err == nil {
		n.Error("17 MiB fit into the drop folder")
	}
	must(n, os.Remove(filepath.Join(folder, "large")))
	null := filepath.Join(folder, "null")
	must(n, unix.Mknod(null, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
	if f, err := os.Open(null); err == nil {
		f.Close()
		n.Error("a device in the drop folder can be opened")
	}
	n.clean(epilog, newJob())
}

// mountAs mounts with the options of a unit, as mount(8) splits them.
func mountAs(t *testing.T, dir, kind, options string) {
	t.Helper()
	var flags uintptr
	var data []string
	for _, o := range strings.Split(options, ",") {
		if f, ok := map[string]uintptr{"nosuid": unix.MS_NOSUID, "nodev": unix.MS_NODEV, "noexec": unix.MS_NOEXEC}[o]; ok {
			flags |= f
		} else {
			data = append(data, o)
		}
	}
	must(t, unix.Mount(kind, dir, kind, flags, strings.Join(data, ",")))
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
}

// unitOf reads a unit strictly: sections, keys once, no continued lines.
func unitOf(t *testing.T, file string) map[string]map[string]string {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	unit, section := map[string]map[string]string{}, ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		key, value, pair := strings.Cut(line, "=")
		switch name, isSection := strings.CutPrefix(line, "["); {
		case line == "" || strings.HasPrefix(line, "#"):
		case isSection:
			section = strings.TrimSuffix(name, "]")
			unit[section] = map[string]string{}
		case !pair || section == "" || strings.TrimSpace(key) != key || strings.HasSuffix(value, `\`) || unit[section][key] != "":
			t.Errorf("%s: %q", file, line)
		default:
			unit[section][key] = value
		}
	}
	return unit
}
