package slurm

import (
	"strings"
	"testing"

	"bookend/test/golden"
	"bookend/test/must"
)

const hex64 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// cgroups is a text of testdata/units.txt as the kernel writes it.
func cgroups(given string) string {
	return strings.NewReplacer(" | ", "\n", "HEX", hex64).Replace(given) + "\n"
}

func TestUnitOfCgroup(t *testing.T) {
	golden.Lines(t, *update, "testdata/units.txt", func(given string) string {
		service, container := UnitOfCgroup(cgroups(given))
		return strings.TrimSpace(service + " " + container)
	})
}

// No process is excused as a service or a container by directories that a user, or a job, has made.
func FuzzUnit(f *testing.F) {
	for line := range strings.Lines(must.Read(f, "testdata/units.txt")) {
		given, _, _ := strings.Cut(line, " => ")
		f.Add(cgroups(given))
	}
	f.Add("1:name=systemd:/system.slice/slurmd.service\n0::/machine.slice/machine-x.scope\n")
	f.Fuzz(func(t *testing.T, text string) {
		service, container := UnitOfCgroup(text)
		if service != "" && container != "" || len(service) > maxUnit || len(container) > maxUnit ||
			strings.Contains(service, "slurmd") {
			t.Errorf("%q: %q, %q", text, service, container)
		}
		if name := strings.TrimSuffix(service, "..."); service != "" && !strings.Contains(text, "/"+name) {
			t.Errorf("%q has no service %q", text, service)
		}
		// Whatever a user's own manager calls its directories.
		below := strings.NewReplacer("\n", "", "\x00", "").Replace(text)
		if service, container := UnitOfCgroup("0::/user.slice/user-1.slice/user@1.service/" + below +
			"\n"); service != "" || container != "" {
			t.Errorf("below a user's manager %q: %q, %q", below, service, container)
		}
		if service, container := UnitOfCgroup("0::/system.slice/slurmd.service/" + strings.ReplaceAll(below, "/", "_") +
			"\n"); service != "" {
			t.Errorf("in Slurm's own unit %q: %q, %q", below, service, container)
		}
	})
}
