package doctor

import (
	"strings"
	"testing"

	"bookend/internal/slurm"
)

// What is read of Slurm's and of others' texts is in them, and is bounded.
func FuzzTexts(f *testing.F) {
	f.Add("slurm-wlm 24.11.5", "#!/bin/sh\n# bookend-epilog\nexec /x/bookend-prolog\n")
	f.Add("slurm 1", "\x7fELF")
	f.Add("slurm .. 2", "bookend-prologue bookend-prolog")
	f.Fuzz(func(t *testing.T, version, script string) {
		if v, ok := slurm.ParseVersion(version); ok && !strings.HasPrefix(strings.TrimSpace(version), "slurm") {
			t.Errorf("%q: %s", version, v)
		}
		for _, program := range []string{"bookend-prolog", "bookend-epilog", "bookend-healthcheck"} {
			short := strings.TrimPrefix(program, "bookend-")
			there := strings.Contains(script, program) || strings.Contains(script, "/hooks/"+short) ||
				strings.Contains(script, "/hooks/task-"+short) || strings.Contains(script, "check_bookend")
			if names([]byte(script), program) && !there {
				t.Errorf("%q names no %s", script, program)
			}
		}
	})
}
