package faults

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bookend/internal/code"
	"bookend/test/build"
)

// clockPanics is a main whose clock panics the first time it is asked for the time of day: in the middle of the
// hook, in its main goroutine.
const clockPanics = `package main

import (
	"os"
	"sync/atomic"
	"time"

	"bookend/internal/clock"
	"bookend/internal/stage"
)

func main() {
	c, system := clock.System(), clock.System()
	var asked atomic.Bool
	c.Wall = func() time.Time {
		if !asked.Swap(true) {
			panic("no time")
		}
		return system.Wall()
	}
	os.Exit(stage.@HOOK@(stage.Env{
		Args: os.Args, Getenv: os.Getenv, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		EUID: os.Geteuid(), PID: os.Getpid(), Clock: c, Exit: os.Exit, Version: "defective",
	}))
}
`

// sealPanics stands for a defect in a goroutine: descriptors are sealed by the one that starts a child. The
// first child, the inventory, is spared.
const sealPanics = `package child

import "sync/atomic"

var sealed atomic.Int32

// SealDescriptors panics for the second child.
func SealDescriptors() error {
	if sealed.Add(1) == 2 {
		panic("no seal")
	}
	return nil
}
`

// defective builds a hook with one source file replaced: no program has a switch for its own tests.
func defective(t *testing.T, h hook, file, source string) hook {
	t.Helper()
	root, err := filepath.Abs("../..")
	must(t, err)
	original := filepath.Join(root, file)
	if _, err := os.Stat(original); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "defect.go"), []byte(source), 0o600))
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{original: filepath.Join(dir,
		"defect.go")}})
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600))
	out := program("defective-" + strings.ReplaceAll(file, "/", "-"))
	must(t, build.Programs(out, filepath.Join(dir, "overlay.json"), h.program))
	h.program = filepath.Join(out, h.program)
	return h
}

// A panic ends a part of a hook, never the node: it is said with its stack, logged, and the exit code is the
// documented one and not Go's own 2.
func TestPanicInMain(t *testing.T) {
	for _, h := range hooks {
		broken := defective(t, h, strings.TrimPrefix(h.program, "bookend-")+"/main.go",
			strings.ReplaceAll(clockPanics, "@HOOK@", map[string]string{"bookend-prolog": "Prolog",
				"bookend-epilog": "Epilog"}[h.program]))
		panics(t, h, broken, "no time")
	}
}

func TestPanicInGoroutine(t *testing.T) {
	for _, h := range hooks {
		panics(t, h, defective(t, h, "internal/child/seal.go", sealPanics), "no seal")
	}
}

func panics(t *testing.T, h, broken hook, says string) {
	t.Helper()
	for onUnknown, exit := range map[string]int{"warn": 0, "drain": 41} {
		n := newNode(t, "enforce")
		n.configure(func(c *conf) { c.onUnknown = onUnknown })
		n.clean(prolog, bystanding())
		if h.program == epilog.program {
			n.clean(prolog, newJob())
		}
		others := n.record()
		o := n.hook(broken, newJob())
		if o.exit != exit || !strings.Contains(o.output, "panic: "+says) || !strings.Contains(o.output, "goroutine ") {
			t.Errorf("%s %s: %v", h.program, onUnknown, o)
		}
		n.saysTimes(1, "findings: ", string(code.Panicked), filepath.Base(h.program))
		n.saysTimes(1, "BKD-PANIC: ", says)
		if n.metric(`bookend_own_errors_total{code="BKD-PANIC"}`) != 1 {
			t.Errorf("%s counted:\n%s", h.program, n.metrics())
		}
		if found := n.findings(h); !has(found, code.Panicked) || len(n.run(100).Ends) > 1 {
			t.Errorf("%s recorded: %+v", h.program, n.run(100))
		}
		n.unharmed(others)
	}
}
