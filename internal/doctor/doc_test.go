package doctor

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"bookend/internal/config"
)

func text(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	return string(b)
}

// Admins are told in docs/doctor.md what doctor demands.
func TestDoc(t *testing.T) {
	have := text(t, "../../docs/doctor.md")
	for _, c := range Checks() {
		if !strings.Contains(have, "`"+c.Name+"`") {
			t.Errorf("docs/doctor.md says nothing of the check %s", c.Name)
		}
	}
}

// What docs/admin.md says to install is what doctor demands.
func TestInstallCommands(t *testing.T) {
	c := config.Default()
	c.Drain.ReasonBy = config.ReasonByNone // scontrol is not Bookend's
	s := Site{Config: c, ConfigPath: config.DefaultFile, Self: "/usr/bin/bookend",
		Programs: []string{filepath.Dir(c.Backend)}}
	want := map[string]string{}
	for _, r := range rules {
		for _, at := range r.at {
			for _, path := range s.paths(at) {
				if r.kind == regular {
					want[path] = fmt.Sprintf("%04o", r.mode)
				}
			}
		}
	}
	have := map[string]string{}
	line := regexp.MustCompile(`(?m)^install -D -m (\d{4}) -t (\S+) (.+)$`)
	for _, l := range line.FindAllStringSubmatch(text(t, "../../docs/admin.md"), -1) {
		for _, file := range strings.Fields(l[3]) {
			have[l[2]+"/"+filepath.Base(file)] = l[1]
		}
	}
	if !maps.Equal(have, want) {
		t.Errorf("docs/admin.md installs %v, want %v", have, want)
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
