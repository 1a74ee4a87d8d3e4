package faults

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/internal/config"
	"bookend/test/must"
)

// made is a row of the table in docs/doctor.md: what hooks make, as patterns of where it is, with its mode.
type made struct {
	folder bool
	at     []string
	mode   string
}

func tableOfMade(t *testing.T) (rows []made) {
	text := must.Have(os.ReadFile("../../docs/doctor.md"))(t)
	row := regexp.MustCompile(`(?m)^\| (file|directory) \| (.*) \| (0\d{3}) \|$`)
	for _, row := range row.FindAllStringSubmatch(string(text), -1) {
		rows = append(rows, made{row[1] == "directory", strings.Split(strings.Trim(row[2], "`"), "`, `"), row[3]})
	}
	return rows
}

// What the hooks make where there is nothing is what docs/doctor.md says, in owner and mode, whatever their umask; and
// all that they make stands there.
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
			n.agrees(tableOfMade(t))
		})
	}
}

// agrees compares all that there is with the rows of the table.
func (n *node) agrees(rows []made) {
	cfg, problems := config.Parse([]byte(n.get(n.config)))
	if len(problems) > 0 {
		n.Fatal(problems)
	}
	seen := map[string]bool{}
	shipped := config.Default().Paths
	for root, here := range map[string]string{
		shipped.Run: cfg.Paths.Run, shipped.Var: cfg.Paths.Var, shipped.Log: cfg.Paths.Log,
	} {
		must.Do(n, filepath.WalkDir(here, func(path string, e fs.DirEntry, err error) error {
			must.Do(n, err)
			n.ruled(rows, path, root+strings.TrimPrefix(path, here), seen)
			return nil
		}))
	}
	for _, r := range rows {
		for _, at := range r.at {
			if !seen[at] {
				n.Errorf("no hook has made %s", at)
			}
		}
	}
	if !seen["report"] || !seen["drop"] {
		n.Error("neither report nor drop of the bystander is there")
	}
}

// ruled compares a path with the row that is about it, where it would be as shipped.
func (n *node) ruled(rows []made, path, shipped string, seen map[string]bool) {
	var st unix.Stat_t
	must.Do(n, unix.Lstat(path, &st))
	mode, users := fmt.Sprintf("%04o", st.Mode&0o7777), st.Uid == st.Gid && (st.Uid == bystander || st.Uid == user)
	switch in := filepath.Base(filepath.Dir(path)); in {
	case "report", "drop":
		if seen[in] = true; (in != "report" || mode != "0640" || st.Uid != 0) && (in != "drop" || mode != "0600" || !users) {
			n.Errorf("%s: %d:%d, %s", path, st.Uid, st.Gid, mode)
		}
		return
	}
	for _, r := range rows {
		i := slices.IndexFunc(r.at, func(pattern string) bool { ok, _ := filepath.Match(pattern, shipped); return ok })
		if i < 0 || r.folder != (st.Mode&unix.S_IFMT == unix.S_IFDIR) {
			continue
		}
		if seen[r.at[i]] = true; mode != r.mode || st.Uid != 0 || st.Gid != 0 {
			n.Errorf("%s: %d:%d, %s; the table says root's, %s", path, st.Uid, st.Gid, mode, r.mode)
		}
		return
	}
	n.Errorf("%s is in no row of the table", path)
}

// The folders that are made at boot are those that the hooks make.
func TestTmpfiles(t *testing.T) {
	text := must.Have(os.ReadFile("../../deploy/tmpfiles.d/bookend.conf"))(t)
	var want []string
	for _, r := range tableOfMade(t) {
		for _, at := range r.at {
			if r.folder && !strings.Contains(at, "*") {
				want = append(want, fmt.Sprintf("d %s %s root root -", at, r.mode))
			}
		}
	}
	have := regexp.MustCompile(`(?m)^[^#].*$`).FindAllString(string(text), -1)
	slices.Sort(have)
	if slices.Sort(want); !slices.Equal(have, want) {
		t.Errorf("%q, want %q", have, want)
	}
}
