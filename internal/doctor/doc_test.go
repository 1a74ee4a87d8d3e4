package doctor

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"bookend/internal/config"
)

var update = flag.Bool("update", false, "rewrite the tables in docs/doctor.md")

const doc = "../../docs/doctor.md"

func text(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	return string(b)
}

// Admins are told in docs/doctor.md what doctor demands.
func TestDoc(t *testing.T) {
	have := text(t, doc)
	const begin, end = "<!-- rules -->\n", "<!-- end of rules -->\n"
	before, rest, found := strings.Cut(have, begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no place for the table", doc)
	}
	want := before + begin + table() + end + after
	if *update {
		must(t, os.WriteFile(doc, []byte(want), 0o644))
		return
	}
	if have != want {
		t.Errorf("%s does not show the rules: go test ./internal/doctor -update", doc)
	}
	for _, c := range Checks() {
		if !strings.Contains(have, "`"+c.Name+"`") {
			t.Errorf("%s says nothing of the check %s", doc, c.Name)
		}
	}
}

func table() string {
	rows := "| check | what | made by | mode | lacking this is wrong |\n| --- | --- | --- | --- | --- |\n"
	for _, r := range Rules() {
		need, mode := "-", fmt.Sprintf("%04o", r.Mode)
		if r.Need != 0 {
			need = fmt.Sprintf("%04o", r.Need)
		}
		if r.Rather != 0 {
			mode += fmt.Sprintf("; %04o more is a warning", r.Rather)
		}
		rows += fmt.Sprintf("| `%s` | %s `%s` | %s | %s | %s |\n", r.Name, r.Kind, r.Shown, r.By, mode, need)
	}
	return rows
}

// shown are the rules by each path as shipped.
func shown() map[string]Rule {
	by := map[string]Rule{}
	for _, r := range Rules() {
		for path := range strings.SplitSeq(r.Shown, ", ") {
			by[path] = r
		}
	}
	return by
}

// What docs/admin.md says to install is what doctor demands.
func TestInstallCommands(t *testing.T) {
	lines := regexp.MustCompile(`(?m)^install -D -m (\d{4}) -t (\S+) (.+)$`).FindAllStringSubmatch(text(t,
		"../../docs/admin.md"), -1)
	by, installed := shown(), 0
	for _, l := range lines {
		for _, file := range strings.Fields(l[3]) {
			path := l[2] + "/" + filepath.Base(file)
			r, ok := by[path]
			if !ok || fmt.Sprintf("%04o", r.Mode) != l[1] || r.By != Installed {
				t.Errorf("%s with mode %s: the rule says %04o (%s)", path, l[1], r.Mode, r.Name)
			}
			installed++
		}
	}
	for path, r := range by {
		if r.By == Installed && r.Kind == Regular && !strings.Contains(path, "*") { // snippets are copied as a folder
			installed--
		}
	}
	if installed != 0 {
		t.Errorf("docs/admin.md installs %d files more than doctor looks at", installed)
	}
}

// The folders that are made at boot are those that the hooks make, as doctor demands them.
func TestTmpfiles(t *testing.T) {
	made := map[string]bool{}
	s := Site{Config: config.Default()}
	for line := range strings.Lines(text(t, "../../deploy/tmpfiles.d/bookend.conf")) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Fields(line)
		if len(f) != 6 || f[0] != "d" || f[3] != "root" || f[4] != "root" || f[5] != "-" {
			t.Errorf("%q", line)
			continue
		}
		made[f[1]+" "+f[2]] = true
	}
	for _, r := range Rules() {
		for _, path := range r.Paths(s) {
			want := fmt.Sprintf("%s %04o", path, r.Mode)
			if r.By == Made && r.Kind == Folder && !strings.Contains(path, "*") && !made[want] {
				t.Errorf("%s is not made at boot", want)
			}
			delete(made, want)
		}
	}
	if len(made) > 0 {
		t.Errorf("no rule is about %v", made)
	}
}

// The unit mounts what doctor would mount: on the drop, with the same options, before slurmd. make check-deploy has
// systemd look at the rest of it.
func TestMountUnit(t *testing.T) {
	const file = "../../deploy/systemd/run-bookend-drop.mount"
	unit, where := text(t, file), filepath.Join(config.Default().Paths.Run, "drop")
	for _, line := range []string{"What=tmpfs", "Where=" + where, "Type=tmpfs", "Options=" + DropOptions,
		"Before=slurmd.service", "WantedBy=slurmd.service"} {
		if !strings.Contains(unit, "\n"+line+"\n") {
			t.Errorf("%s lacks %s", file, line)
		}
	}
	if name := strings.ReplaceAll(strings.TrimPrefix(where, "/"), "/", "-") + ".mount"; filepath.Base(file) != name {
		t.Errorf("systemd wants the name %s", name)
	}
}
