package doctor

import (
	"slices"
	"strings"
	"testing"
)

// What is read of Slurm's and of others' texts is in them, and is bounded.
func FuzzTexts(f *testing.F) {
	f.Add("gpu:h100:4(S:0-1),shard:8", "/dev/nvidia[0-3,5],/dev/nvidia8", "slurm-wlm 24.11.5", "#!/bin/sh\n# bookend-epilog\nexec /x/bookend-prolog\n")
	f.Add("gpu", "[", "slurm 1", "\x7fELF")
	f.Add("gpu:9999999999999999999999", "[0-255][0-255],[1-0]", "slurm .. 2", "bookend-prologue bookend-prolog")
	f.Fuzz(func(t *testing.T, gres, devices, version, script string) {
		n, kinds := gpusOf(gres)
		if kinds < 0 || kinds > strings.Count(gres, ",")+1 || kinds == 0 && n != 0 {
			t.Errorf("%q: %d of %d kinds", gres, n, kinds)
		}
		if all := deviceFiles(devices); len(all) > (maxMinor+1)*(strings.Count(devices, ",")+1) {
			t.Errorf("%q: %d files", devices, len(all))
		}
		if v, ok := parseVersion(version); ok && !strings.HasPrefix(strings.TrimSpace(version), "slurm") {
			t.Errorf("%q: %s", version, v)
		}
		c := contentOf([]byte(script), int64(len(script)))
		for _, name := range c.Names {
			if !slices.Contains(append([]string{nhcCheck}, ourPrograms...), name) || !strings.Contains(script, name) || c.ELF {
				t.Errorf("%q: %+v", script, c)
			}
		}
	})
}
