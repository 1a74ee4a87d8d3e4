package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"strings"
)

// rule is one law of the tree.
type rule struct {
	name  string
	why   string
	tests bool // also holds in _test.go files
	test  bool // also holds under test/
	find  func(f *file, report reporter)
}

// reporter is told what breaks the rule and where; why replaces the rule's own reason unless it is empty.
type reporter func(pos token.Pos, what, why string)

var rules = []rule{
	{
		name: "band", tests: true, test: true, find: findUnknownPackage,
		why: "every package belongs to a band: enter it in test/lint/bands.go",
	},
	{name: "imports", tests: true, test: true, find: findImports},
	{
		name: "vendor", tests: true, find: findVendors,
		why: "a vendor's library can hang and crash: only a backend, a process of its own, is linked with it",
	},
	{
		name: "library", find: findLibraries,
		why: "hooks start for every job: each library has one package that needs it",
	},
	{
		name: "exec", find: only([]string{"internal/child"}, startsProcess),
		why: "a child needs its own group, only the descriptors it uses, bounds and a deadline: internal/child sees to all",
	},
	{
		name: "process", find: only(bands[mains], touchesProcess),
		why: "environment and exit belong to mains, which pass them on as values",
	},
	{
		name: "clock", find: only([]string{"internal/clock"}, readsClock),
		why: "time comes from a clock.Clock that mains hand over: boot time for durations, and tests that need not wait",
	},
	{
		name: "system clock", find: only(bands[mains], names("bookend/internal/clock.System")),
		why: "only mains choose the machine's clock",
	},
	{
		name: "go", find: findGo,
		why: "a panic in a goroutine nobody recovers ends the hook with exit code 2 and drains the node: use routine.Go",
	},
	{
		name: "fatal", tests: true, test: true, find: findFatal,
		why: "it ends the process past every deferred call and the verdict reached",
	},
	{
		name: "pure", find: findImpure,
		why: "values and pure packages know no file, environment, clock or goroutine, so that their tests are tables",
	},
	{
		name: "root", find: findRoots,
		why: "roots of the file system are values from the configuration; a process may look at itself by an entry in test/lint/exceptions.go",
	},
	{
		name: "init", find: findInit,
		why: "hooks start for every job, most of them without GPUs: nothing is prepared before it is needed",
	},
	{
		name: "dot import", tests: true, test: true, find: findDotImports,
		why: "names must say where they come from",
	},
	{
		name: "length", find: findLong,
		why: "a function over 60 lines or a file over 400 is several",
	},
}

// check returns every breach, sorted. A tree that is whole needs every exception.
func check(files []*file, whole bool) []string {
	var breaches []string
	used := make([]bool, len(exceptions))
	for _, f := range files {
		for _, r := range rules {
			if f.test && !r.tests || bandOf(f.dir) == testTree && !r.test {
				continue
			}
			r.find(f, func(pos token.Pos, what, why string) {
				if excepted(r.name, f.dir, what, used) {
					return
				}
				if why == "" {
					why = r.why
				}
				breaches = append(breaches, fmt.Sprintf("%s: %s: %s: %s", f.where(pos), r.name, what, why))
			})
		}
	}
	for i, e := range exceptions {
		if whole && !used[i] {
			breaches = append(breaches, fmt.Sprintf("%s: %s: the exception for %s is not needed any more", e.dir, e.rule, e.what))
		}
	}
	slices.Sort(breaches)
	return slices.Compact(breaches)
}

// only makes a rule that the uses picked by match may stand in these folders alone.
func only(folders []string, match func(name string) bool) func(*file, reporter) {
	return func(f *file, report reporter) {
		if slices.Contains(folders, f.dir) {
			return
		}
		f.uses(func(name string, pos token.Pos) {
			if match(name) {
				report(pos, name, "")
			}
		})
	}
}

func names(list ...string) func(string) bool {
	return func(name string) bool { return slices.Contains(list, name) }
}

func startsProcess(name string) bool {
	return strings.HasPrefix(name, "os/exec.") || isOf(name, "os.StartProcess",
		"syscall.Exec", "syscall.ForkExec", "syscall.StartProcess", "golang.org/x/sys/unix.Exec")
}

func touchesProcess(name string) bool {
	return isOf(name, "os.Getenv", "os.LookupEnv", "os.Environ", "os.ExpandEnv", "os.Setenv", "os.Unsetenv", "os.Clearenv",
		"os.Exit", "syscall.Exit", "syscall.Getenv", "syscall.Environ",
		"golang.org/x/sys/unix.Getenv", "golang.org/x/sys/unix.Environ", "golang.org/x/sys/unix.Exit")
}

func readsClock(name string) bool {
	return isOf(name, "time.Now", "time.Since", "time.Until",
		"golang.org/x/sys/unix.ClockGettime", "golang.org/x/sys/unix.Gettimeofday", "syscall.Gettimeofday")
}

func isOf(name string, list ...string) bool { return slices.Contains(list, name) }

func findUnknownPackage(f *file, report reporter) {
	if bandOf(f.dir) == unknown {
		report(f.ast.Package, f.dir, "")
	}
}

func findImports(f *file, report reporter) {
	for _, spec := range f.ast.Imports {
		to, ok := strings.CutPrefix(importPath(spec), module)
		if !ok || to == f.dir { // an external test package imports its own
			continue
		}
		if why := mayImport(f.dir, to, f.test); why != "" {
			report(spec.Pos(), f.dir+" imports "+to, why)
		}
	}
}

func findVendors(f *file, report reporter) {
	if slices.Contains(vendors, f.dir) {
		return
	}
	for _, spec := range f.ast.Imports {
		if to := importPath(spec); to == "C" || strings.HasPrefix(to, "github.com/NVIDIA/") || strings.HasPrefix(to, "github.com/ROCm/") {
			report(spec.Pos(), to, "")
		}
	}
}

// libraries says which packages may import what; all others, of the standard library, are free.
var libraries = map[string][]string{
	"github.com/sirupsen/logrus": {"internal/runlog"},
	"gopkg.in/yaml.v3":           {"internal/config"},
	"github.com/spf13/cobra":     {"admin"},
	"github.com/spf13/pflag":     {"admin"},
}

func findLibraries(f *file, report reporter) {
	for _, spec := range f.ast.Imports {
		to := importPath(spec)
		if folders, ok := libraries[to]; ok && !slices.Contains(folders, f.dir) {
			report(spec.Pos(), to, "")
		}
	}
}

func findGo(f *file, report reporter) {
	if f.dir == "internal/routine" {
		return
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if statement, ok := n.(*ast.GoStmt); ok {
			report(statement.Pos(), "go statement", "")
		}
		return true
	})
}

var fatal = []string{"Fatal", "Fatalf", "Fatalln", "Panic", "Panicf", "Panicln", "Exit"}

// findFatal looks at every method of that name in files with logrus: a logger may come from anywhere.
func findFatal(f *file, report reporter) {
	logs := false
	for _, target := range f.imports {
		logs = logs || target == "github.com/sirupsen/logrus"
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if ok && logs && slices.Contains(fatal, s.Sel.Name) {
			report(s.Pos(), s.Sel.Name, "")
		}
		return true
	})
	f.uses(func(name string, pos token.Pos) {
		if strings.HasPrefix(name, "log.") && slices.Contains(fatal, strings.TrimPrefix(name, "log.")) {
			report(pos, name, "")
		}
	})
}

// impure are the packages, with all below them, that reach out of a program.
var impure = []string{
	"context", "crypto/rand", "embed", "io/ioutil", "log", "math/rand", "net", "os", "path/filepath", "plugin",
	"runtime", "sync", "syscall", "unsafe", "golang.org/x/sys",
}

func findImpure(f *file, report reporter) {
	if b := bandOf(f.dir); b != values && b != pure {
		return
	}
	for _, spec := range f.ast.Imports {
		to := importPath(spec)
		if slices.ContainsFunc(impure, func(p string) bool { return to == p || strings.HasPrefix(to, p+"/") }) {
			report(spec.Pos(), to, "")
		}
	}
	f.uses(func(name string, pos token.Pos) {
		if isOf(name, "time.Sleep", "time.After", "time.AfterFunc", "time.Tick", "time.NewTimer", "time.NewTicker", "time.LoadLocation") {
			report(pos, name, "")
		}
	})
}

// roots are the folders a program on a node could have in mind.
var roots = []string{"/proc", "/sys", "/dev", "/run", "/var", "/etc", "/tmp", "/usr", "/bin", "/sbin", "/lib", "/opt", "/home", "/root"}

func findRoots(f *file, report reporter) {
	if f.dir == "internal/config" {
		return
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		literal, ok := n.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return true
		}
		if text, err := strconv.Unquote(literal.Value); err == nil && isRoot(text) {
			report(literal.Pos(), strconv.Quote(text), "")
		}
		return true
	})
}

func isRoot(text string) bool {
	return slices.ContainsFunc(roots, func(r string) bool { return text == r || strings.HasPrefix(text, r+"/") })
}

func findInit(f *file, report reporter) {
	if !strings.HasPrefix(f.dir, "internal/") {
		return
	}
	for _, d := range f.ast.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil && d.Name.Name == "init" {
				report(d.Pos(), "func init", "")
			}
		case *ast.GenDecl:
			ast.Inspect(d, func(n ast.Node) bool {
				if _, ok := n.(*ast.FuncLit); ok {
					return false // runs when called
				}
				if s, ok := n.(*ast.SelectorExpr); ok && strings.HasPrefix(s.Sel.Name, "MustCompile") {
					report(s.Pos(), s.Sel.Name+" at package level", "")
				}
				return true
			})
		}
	}
}

func findDotImports(f *file, report reporter) {
	for _, spec := range f.ast.Imports {
		if spec.Name != nil && spec.Name.Name == "." {
			report(spec.Pos(), strconv.Quote(importPath(spec)), "")
		}
	}
}

func findLong(f *file, report reporter) {
	lines := func(n ast.Node) int { return f.set.Position(n.End()).Line - f.set.Position(n.Pos()).Line + 1 }
	for _, d := range f.ast.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && lines(fn) > 60 {
			report(fn.Pos(), fmt.Sprintf("%s has %d lines", fn.Name.Name, lines(fn)), "")
		}
	}
	if n := f.set.File(f.ast.Package).LineCount(); n > 400 {
		report(f.ast.Package, fmt.Sprintf("%d lines", n), "")
	}
}
