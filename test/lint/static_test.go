package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestStaticProgramPasses(t *testing.T) {
	program := filepath.Join(t.TempDir(), "lint")
	build := exec.Command("go", "build", "-o", program, "bookend/test/lint")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if parts, err := dynamicParts(program); err != nil || len(parts) > 0 {
		t.Errorf("a static program has dynamic parts %q, %v", parts, err)
	}
	breaches, err := checkPrograms([]string{program})
	if err != nil {
		t.Fatal(err)
	}
	// As if it were a hook: it reads Go sources.
	if len(breaches) != 1 || !strings.Contains(breaches[0], "go/parser: is too heavy") {
		t.Errorf("got %q", breaches)
	}
}

func TestDynamicProgramBites(t *testing.T) {
	parts, err := dynamicParts("/bin/sh")
	if err != nil || !strings.Contains(strings.Join(parts, ", "), "needs a dynamic loader, needs libc.so") {
		t.Errorf("/bin/sh has dynamic parts %q, %v", parts, err)
	}
	if _, err := checkPrograms([]string{"/bin/sh"}); err == nil {
		t.Error("a program that is not Go's passes")
	}
}

func TestDependencies(t *testing.T) {
	cgo := []string{"x.go"}
	for _, c := range []struct {
		dep     dependency
		program string
		why     string
	}{
		{dependency{ImportPath: "runtime/cgo", Standard: true, CgoFiles: cgo}, "bookend/prolog", ""},
		{dependency{ImportPath: "bookend/cuda", CgoFiles: cgo, Module: &goModule{"bookend"}}, "bookend/admin", "cgo files"},
		{dependency{ImportPath: "net", Standard: true}, "bookend/epilog", "too heavy"},
		{dependency{ImportPath: "net", Standard: true}, "bookend/admin", ""},
		{dependency{ImportPath: "x.org/y", Module: &goModule{"x.org/y"}}, "bookend/prolog", "no hook may link: x.org/y"},
		{dependency{ImportPath: "x.org/y", Module: &goModule{"x.org/y"}}, "bookend/admin", ""},
		{dependency{ImportPath: "gopkg.in/yaml.v3", Module: &goModule{"gopkg.in/yaml.v3"}}, "bookend/prolog", ""},
		{dependency{ImportPath: "bookend/internal/stage", Module: &goModule{"bookend"}}, "bookend/prolog", ""},
	} {
		why := c.dep.wrong(c.program)
		if (why == "") != (c.why == "") || !strings.Contains(why, c.why) {
			t.Errorf("%s in %s: %q, want %q", c.dep.ImportPath, c.program, why, c.why)
		}
	}
}
