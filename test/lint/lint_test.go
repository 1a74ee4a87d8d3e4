package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each rule bites on its first source and lets the others pass.
var cases = []struct {
	rule, why string // of the breach
	name      string // of the file
	source    string
	passes    map[string]string // name to source
}{
	{
		"band", "every package belongs to a band", "internal/util/x.go", `package util`,
		map[string]string{"internal/gpu/x.go": `package gpu`, "test/e2e/x.go": `package e2e`, "prolog/main.go": `package main`},
	},
	{
		"imports", "imports point from upper rows to lower ones", "internal/gpu/x.go", `package gpu; import _ "bookend/internal/report"`,
		map[string]string{"internal/report/x.go": `package report; import _ "bookend/internal/gpu"`},
	},
	{
		"imports", "imports point from upper rows to lower ones", "internal/state/x.go", `package state; import _ "bookend/internal/stage"`,
		map[string]string{"internal/stage/x.go": `package stage; import _ "bookend/internal/state"`},
	},
	{
		"imports", "an effect knows no other effect", "internal/state/x.go", `package state; import _ "bookend/internal/holders"`,
		map[string]string{
			"internal/state/x.go":      `package state; import _ "bookend/internal/safefile"`,
			"internal/state/x_test.go": `package state; import _ "bookend/internal/holders"`,
		},
	},
	{
		"imports", "the pure band gets time as a value", "internal/policy/x.go", `package policy; import _ "bookend/internal/clock"`,
		map[string]string{"internal/state/x.go": `package state; import _ "bookend/internal/clock"`},
	},
	{
		"imports", "must not depend on what tests it", "internal/stage/x.go", `package stage; import _ "bookend/test/cluster"`,
		map[string]string{"test/e2e/x.go": `package e2e; import _ "bookend/test/cluster"`},
	},
	{
		"vendor", "only a backend", "internal/backend/x.go", `package backend; import "C"`,
		map[string]string{"cuda/x.go": `package main; import "C"`, "test/gpu/x.go": `package main; import "C"`},
	},
	{
		"vendor", "only a backend", "internal/backend/x_test.go", `package backend; import _ "github.com/NVIDIA/go-nvml/pkg/nvml"`,
		map[string]string{"cuda/x_test.go": `package main; import _ "github.com/NVIDIA/go-nvml/pkg/nvml"`},
	},
	{
		"library", "each library has one package", "internal/stage/x.go", `package stage; import _ "gopkg.in/yaml.v3"`,
		map[string]string{"internal/config/x.go": `package config; import _ "gopkg.in/yaml.v3"`},
	},
	{
		"exec", "internal/child sees to all", "internal/backend/x.go", `package backend; import run "os/exec"; var _ = run.Command`,
		map[string]string{
			"internal/child/x.go":        `package child; import "os/exec"; var _ = exec.Command`,
			"internal/backend/x_test.go": `package backend; import "os/exec"; var _ = exec.Command`,
		},
	},
	{
		"exec", "internal/child sees to all", "admin/x.go", `package main; import "syscall"; var _ = syscall.ForkExec`, nil,
	},
	{
		"process", "belong to mains", "internal/stage/x.go", `package stage; import "os"; var _ = os.LookupEnv`,
		map[string]string{"prolog/main.go": `package main; import "os"; var _ = os.Getenv`},
	},
	{
		"process", "belong to mains", "internal/stage/x.go", `package stage; import "os"; func f() { os.Exit(1) }`,
		map[string]string{
			"cuda/x.go":           `package main; import "os"; func f() { os.Exit(1) }`,
			"internal/stage/x.go": `package stage; type env struct{ Exit func(int) }; func f(os env) { os.Exit(1) }`,
		},
	},
	{
		"clock", "time comes from a clock.Clock", "prolog/main.go", `package main; import "time"; var start = time.Now()`,
		map[string]string{
			"internal/clock/x.go":      `package clock; import "time"; var _ = time.Now`,
			"internal/state/x_test.go": `package state; import "time"; var _ = time.Now`,
			"internal/child/x.go":      `package child; import "time"; var _ = time.NewTimer`,
		},
	},
	{
		"system clock", "only mains choose", "internal/state/x.go", `package state; import "bookend/internal/clock"; var _ = clock.System`,
		map[string]string{"epilog/main.go": `package main; import "bookend/internal/clock"; var _ = clock.System`},
	},
	{
		"go", "use routine.Go", "cuda/x.go", `package main; func f() { go f() }`,
		map[string]string{
			"internal/routine/x.go":    `package routine; func f() { go f() }`,
			"internal/state/x_test.go": `package state; func f() { go f() }`,
		},
	},
	{
		"fatal", "past every deferred call", "internal/runlog/x.go", `package runlog; import l "github.com/sirupsen/logrus"; func f(x l.Entry) { x.Fatalf("") }`,
		map[string]string{"internal/runlog/x_test.go": `package runlog; import "testing"; func f(t *testing.T) { t.Fatal() }`},
	},
	{
		"fatal", "past every deferred call", "test/demo/x.go", `package main; import "log"; func f() { log.Panicln() }`,
		map[string]string{"test/demo/x.go": `package main; import "log"; func f() { log.Println() }`},
	},
	{
		"pure", "know no file", "internal/slurm/x.go", `package slurm; import _ "os"`,
		map[string]string{
			"internal/slurm/x_test.go": `package slurm; import _ "os"`,
			"internal/state/x.go":      `package state; import _ "os"`,
			"internal/slurm/x.go":      `package slurm; import _ "path"`,
		},
	},
	{
		"pure", "know no file", "internal/finding/x.go", `package finding; import _ "golang.org/x/sys/unix"`, nil,
	},
	{
		"pure", "know no file", "internal/settle/x.go", `package settle; import "time"; func f() { time.Sleep(1) }`,
		map[string]string{"internal/settle/x.go": `package settle; import "time"; var _ = time.Second`},
	},
	{
		"root", "values from the configuration", "internal/holders/x.go", `package holders; const proc = "/proc/1"`,
		map[string]string{
			"internal/config/x.go":       `package config; const proc = "/proc"`,
			"internal/child/x.go":        `package child; const self = "/proc/self/exe"`,
			"internal/holders/x.go":      `package holders; const a, b = "/procession", "see /proc"`,
			"internal/holders/x_test.go": `package holders; const proc = "/proc"`,
			"test/e2e/x.go":              `package e2e; const proc = "/proc"`,
		},
	},
	{
		"init", "hooks start for every job", "internal/slurm/x.go", `package slurm; func init() {}`,
		map[string]string{"internal/slurm/x.go": `package slurm; type t int; func (t) init() {}`},
	},
	{
		"init", "hooks start for every job", "internal/slurm/x.go", `package slurm; import "regexp"; var r = regexp.MustCompile("x")`,
		map[string]string{"internal/slurm/x.go": `package slurm; import "regexp"; func f() { regexp.MustCompile("x") }`},
	},
	{
		"dot import", "where they come from", "test/e2e/x_test.go", `package e2e; import . "strings"; var _ = ToLower`, nil,
	},
	{
		"length", "is several", "internal/state/x.go", "package state\nfunc f() {\n" + strings.Repeat("f()\n", 60) + "}\n",
		map[string]string{
			"internal/state/x.go":      "package state\nfunc f() {\n" + strings.Repeat("f()\n", 58) + "}\n",
			"internal/state/x_test.go": "package state\nfunc f() {\n" + strings.Repeat("f()\n", 60) + "}\n",
		},
	},
	{
		"length", "is several", "internal/state/x.go", "package state\n" + strings.Repeat("// a line\n", 400),
		map[string]string{"internal/state/x.go": "package state\n" + strings.Repeat("// a line\n", 390)},
	},
}

func TestRulesBite(t *testing.T) {
	bitten := map[string]bool{}
	for _, c := range cases {
		bitten[c.rule] = true
		got := breachesIn(t, c.name, c.source)
		if len(got) != 1 || !strings.HasPrefix(got[0], c.name+":") || !strings.Contains(got[0], ": "+c.rule+": ") || !strings.Contains(got[0], c.why) {
			t.Errorf("%s must break %s (%s), got %q", c.source, c.rule, c.why, got)
		}
		for name, source := range c.passes {
			if got := breachesIn(t, name, source); len(got) > 0 {
				t.Errorf("%s: %s must pass, got %q", name, source, got)
			}
		}
	}
	for _, r := range rules {
		if !bitten[r.name] {
			t.Errorf("no source breaks rule %q", r.name)
		}
	}
}

func breachesIn(t *testing.T, name, source string) []string {
	t.Helper()
	f, err := parse(name, []byte(source))
	if err != nil {
		t.Fatal(err)
	}
	return check([]*file{f}, false)
}

func TestTheTree(t *testing.T) {
	files, err := load("../..")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 50 {
		t.Fatalf("found only %d files", len(files))
	}
	for _, b := range check(files, true) {
		t.Error(b)
	}
}

func TestExceptionsGoStale(t *testing.T) {
	breaches := strings.Join(check(nil, true), "\n")
	for _, e := range exceptions {
		if !strings.Contains(breaches, e.dir+": "+e.rule+": the exception for "+e.what) {
			t.Errorf("an unused exception for %s passes", e.what)
		}
	}
}

func TestLoadSkipsWhatGoSkips(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"prolog/main.go", "prolog/testdata/x.go", ".hidden/x.go", "_old/x.go", "bin/x.go", "prolog/notes.txt"} {
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte("package main\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	files, err := load(root)
	if err != nil || len(files) != 1 || files[0].name != "prolog/main.go" || files[0].dir != "prolog" {
		t.Errorf("load found %v, %v", files, err)
	}
}
