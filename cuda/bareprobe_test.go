package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"bookend/test/fakegpu"
)

// The program that the GPU lane measures the test against works, and leaves nothing either.
func TestBareProbe(t *testing.T) {
	w := world(t, fakegpu.GPUs(2))
	program := filepath.Join(t.TempDir(), "bareprobe")
	source := "../test/gpu/scenarios/bareprobe/bareprobe.c"
	if out, err := exec.Command("gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-o", program, source,
		"-ldl").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	for args, want := range map[string]string{
		"143154": "cards=2 mib=143154", "143156": "bareprobe: cuMemCreate: 2", "0": "usage: bareprobe MIB [LIBRARY]",
		"9x": "usage: bareprobe MIB [LIBRARY]",
	} {
		out, err := exec.Command(program, args, w.CUDA()).CombinedOutput()
		if strings.TrimSpace(string(out)) != want || (err == nil) != strings.HasPrefix(want, "cards") {
			t.Errorf("%s: got %q, %v, want %q", args, out, err, want)
		}
		unused(t, w, 0)
		unused(t, w, 1)
	}
}
