package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// HookFile returns the path of a hook in a cluster's folder. It may go into Options before the hook exists.
func HookFile(dir, name string) string { return paths{dir}.in("hooks", name) }

// WriteHook writes a hook of the given text to HookFile(dir, name), root's and executable by all, and returns
// its path. Slurm gives hooks neither arguments nor a PATH.
func WriteHook(dir, name, text string) (string, error) {
	file := HookFile(dir, name)
	if err := makeFolder(filepath.Dir(file), 0o755); err != nil {
		return "", err
	}
	// A process that is forked meanwhile would have the file open for writing, and nobody could run it.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	// Replaced, not rewritten: a hook that just runs keeps its own file ("text file busy").
	if err := os.WriteFile(file+".new", []byte(text), 0o755); err != nil {
		return "", err
	}
	if err := os.Chmod(file+".new", 0o755); err != nil {
		return "", err
	}
	return file, os.Rename(file+".new", file)
}

// WriteWrapper writes a hook that starts exe with BOOKEND_CONFIG naming the configuration, and the further
// NAME=value in its environment; "" leaves BOOKEND_CONFIG out.
func WriteWrapper(dir, name, exe, config string, env ...string) (string, error) {
	if !filepath.IsAbs(exe) {
		return "", fmt.Errorf("wrapper %q: program %q is not an absolute path", name, exe)
	}
	if config != "" {
		env = append([]string{"BOOKEND_CONFIG=" + config}, env...)
	}
	var b strings.Builder
	b.WriteString("#!/bin/sh\n")
	for _, setting := range env {
		key, value, ok := strings.Cut(setting, "=")
		if !ok {
			return "", fmt.Errorf("wrapper %q: %q is not NAME=value", name, setting)
		}
		fmt.Fprintf(&b, "export %s=%s\n", key, quote(value))
	}
	fmt.Fprintf(&b, "exec %s\n", quote(exe))
	return WriteHook(dir, name, b.String())
}

// quote makes one word of the shell's.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
