package fakeamd

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed c/hip.c
var hipSource []byte

// HIP builds ROCm's library for this node, in a folder of the node's, with lines that say what else it does (c/hip.c).
func (w *World) HIP(lines ...string) (library string, err error) {
	dir := filepath.Join(filepath.Dir(w.Sys), "hip")
	library = filepath.Join(dir, "libamdhip64.so")
	source := filepath.Join(dir, "hip.c")
	w.put(strings.Join(append(lines, "sys "+w.Sys), "\n")+"\n", dir, "hip")
	if _, err := os.Stat(library); err == nil {
		return library, nil
	}
	w.put(string(hipSource), source)
	args := []string{"-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-fvisibility=hidden", "-o", library, source, "-ldl"}
	if text, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the HIP library: %w\n%s", err, text)
	}
	return library, nil
}

// Calls are those of the HIP library, in their order.
func (w *World) Calls() []string {
	text, _ := os.ReadFile(filepath.Join(filepath.Dir(w.Sys), "hip/calls"))
	return strings.Fields(string(text))
}
