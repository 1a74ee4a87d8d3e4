package doctor

import (
	"maps"
	"slices"
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
		names := namesIn([]byte(script))
		for _, name := range names {
			named := func(word string) bool { return namedBy[word] == name && strings.Contains(script, word) }
			if !slices.ContainsFunc(slices.Collect(maps.Keys(namedBy)), named) {
				t.Errorf("%q: %q", script, names)
			}
		}
	})
}
