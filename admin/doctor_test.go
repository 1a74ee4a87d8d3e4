package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bookend/internal/doctor"
)

// wellKept is a node on which everything is installed as it must be; the test binary stands for the command line, and lies
// where go test puts it.
func wellKept(t *testing.T) (dir, config string) {
	t.Helper()
	dir, config = home(t)
	for _, name := range []string{"bookend-prolog", "bookend-epilog", "bookend-healthcheck"} {
		write(t, filepath.Join(dir, name), "", 0o755)
	}
	write(t, filepath.Join(dir, "lib.so"), "", 0o644)
	more := strings.ReplaceAll("metrics: {textfile: DIR/var/bookend.prom}\nnvidia: {nvml_library: DIR/lib.so, cuda_library: DIR/lib.so}\n", "DIR", dir)
	write(t, config, valid(dir)+more, 0o644)
	return dir, config
}

// lineOf is what is said of a check, as one line: a terminal gets it folded.
func lineOf(text, check string) string {
	said := ""
	for line := range strings.Lines(text) {
		switch fields := strings.Fields(line); {
		case said == "" && line[0] != ' ' && len(fields) > 1 && fields[1] == check:
			said = line
		case said != "" && (line[0] != ' ' || fields[0] == "why:" || fields[0] == "fix:"):
			return said
		case said != "":
			said = strings.TrimSuffix(said, "\n") + line
		}
	}
	return said
}

func TestDoctor(t *testing.T) {
	dir, config := wellKept(t)
	got := bookend(0, config, "doctor")
	for check, want := range map[string]string{
		"config-text": "ok config-text " + config + ": valid: mode observe\n",
		"records":     "ok records " + dir + "/run: not there yet: the first hook that needs it makes it\n",
	} {
		if line := strings.Join(strings.Fields(lineOf(got.out, check)), " ") + "\n"; line != want {
			t.Errorf("%q, want %q", line, want)
		}
	}
	must(t, os.Chmod(filepath.Join(dir, "bookend-epilog"), 0o775))
	got = bookend(0, config, "doctor")
	fix := "fix: chmod 0755 " + dir + "/bookend-epilog   # "
	if got.exit != exitTrouble || !strings.HasPrefix(lineOf(got.out, "programs"), "wrong ") || !strings.Contains(got.out, fix) {
		t.Errorf("%+v", got)
	}
	write(t, config, valid(dir)+"mdoe: enforce\n", 0o644)
	if got := bookend(0, config, "doctor"); !strings.Contains(strings.Join(strings.Fields(lineOf(got.out, "config-text")), " "), "not valid: line 3: ") {
		t.Errorf("%+v", got)
	}
}

// The exit code tells what is wrong from what could be better.
func TestDoctorExit(t *testing.T) {
	dir, config := wellKept(t)
	bad := func(got typed) map[string]string {
		var read struct {
			Results []struct{ Check, Level, Seen string }
			Counts  map[string]int
		}
		must(t, json.Unmarshal([]byte(got.out), &read))
		if read.Counts["ok"] == 0 {
			t.Fatalf("nothing is well: %+v", got)
		}
		found, beyond := map[string]string{}, map[string]bool{} // what this machine's Slurm, driver and clock are is as it is
		for _, c := range doctor.Checks() {
			beyond[c.Name] = c.Area != ""
		}
		for _, r := range read.Results {
			if r.Level != "ok" && !beyond[r.Check] && r.Check != "programs" { // the test binary itself: below /tmp
				found[r.Check] = r.Level
			}
		}
		return found
	}
	if found := bad(bookend(0, config, "doctor", "--json")); len(found) != 0 {
		t.Errorf("all is well, but %v", found)
	}
	must(t, os.Mkdir(filepath.Join(dir, "log"), 0o755))
	write(t, filepath.Join(dir, "log/bookend.log"), "", 0o644)
	if found := bad(bookend(0, config, "doctor", "--json")); len(found) != 1 || found["log"] != "warning" {
		t.Errorf("%v", found)
	}
	got := bookend(65534, config, "doctor")
	if got.exit != exitDenied || got.out != "" || !strings.HasSuffix(got.err, "run as root\n") {
		t.Errorf("not root: %+v", got)
	}
	if got := bookend(0, config, "doctor", "everything"); got.exit != exitUsage {
		t.Errorf("%+v", got)
	}
}
