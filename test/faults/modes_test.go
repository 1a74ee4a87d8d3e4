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

	"bookend/test/must"
)

// made is a pattern of the table in docs/doctor.md: where hooks make what, with its mode.
type made struct {
	folder   bool
	at, mode string
}

func tableOfMade(t *testing.T) (rows []made) {
	text := must.Have(os.ReadFile("../../docs/doctor.md"))(t)
	row := regexp.MustCompile(`(?m)^\| (file|directory) \| (.*) \| (0\d{3}) \|$`)
	for _, row := range row.FindAllStringSubmatch(string(text), -1) {
		for at := range strings.SplitSeq(strings.Trim(row[2], "`"), "`, `") {
			rows = append(rows, made{row[1] == "directory", at, row[3]})
		}
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

// agrees compares all that there is with the rows of the table, as it would be as shipped.
func (n *node) agrees(rows []made) {
	seen := map[string]bool{}
	for i, here := range []string{n.conf.run, n.conf.varDir, n.conf.log} {
		must.Do(n, filepath.WalkDir(here, func(path string, _ fs.DirEntry, err error) error {
			must.Do(n, err)
			seen[n.ruled(rows, path, shipped[i]+strings.TrimPrefix(path, here))] = true
			return nil
		}))
	}
	for _, r := range rows {
		must.Not(n, !seen[r.at], "no hook has made %s", r.at)
	}
}

// ruled compares a path with the row that is about it, and returns its pattern.
func (n *node) ruled(rows []made, path, shipped string) string {
	var st unix.Stat_t
	must.Do(n, unix.Lstat(path, &st))
	mode := fmt.Sprintf("%04o", st.Mode&0o7777)
	i := slices.IndexFunc(rows, func(r made) bool {
		is, _ := filepath.Match(r.at, shipped)
		return is && r.folder == (st.Mode&unix.S_IFMT == unix.S_IFDIR)
	})
	if i < 0 || mode != rows[i].mode || st.Uid != 0 || st.Gid != 0 {
		n.Fatalf("%s: %d:%d, %s; the table says root's, row %d of %+v", path, st.Uid, st.Gid, mode, i, rows)
	}
	return rows[i].at
}

// The folders that are made at boot are those that the hooks make.
func TestTmpfiles(t *testing.T) {
	text := must.Have(os.ReadFile("../../deploy/tmpfiles.d/bookend.conf"))(t)
	var want []string
	for _, r := range tableOfMade(t) {
		if r.folder && !strings.Contains(r.at, "*") {
			want = append(want, fmt.Sprintf("d %s %s root root -", r.at, r.mode))
		}
	}
	have := regexp.MustCompile(`(?m)^[^#].*$`).FindAllString(string(text), -1)
	slices.Sort(have)
	slices.Sort(want)
	must.Not(t, !slices.Equal(have, want), "%q, want %q", have, want)
}
