package main

import (
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
)

// linked are the modules a hook may be linked with. What is small stays small only if somebody counts.
var linked = []string{"github.com/sirupsen/logrus", "golang.org/x/sys", "gopkg.in/yaml.v3"}

// heavy are standard packages that a hook does not need and that would cost it at every start.
var heavy = []string{"net", "net/http", "crypto/tls", "os/user", "text/template", "html/template", "go/parser", "log/syslog"}

// checkPrograms looks at built programs: they must be static, which is what lets them run on any node, and
// the hooks among them must link little.
func checkPrograms(programs []string) ([]string, error) {
	var breaches []string
	for _, program := range programs {
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			return nil, err
		}
		dynamic, err := dynamicParts(program)
		if err != nil {
			return nil, err
		}
		for _, d := range dynamic {
			breaches = append(breaches, fmt.Sprintf("%s: static: %s: hooks must run on every node, whatever its libc", program, d))
		}
		packages, err := depsOf(info.Path)
		if err != nil {
			return nil, err
		}
		for _, p := range packages {
			if why := p.wrong(info.Path); why != "" {
				breaches = append(breaches, fmt.Sprintf("%s: deps: %s: %s", program, p.ImportPath, why))
			}
		}
	}
	return breaches, nil
}

func dynamicParts(program string) (parts []string, err error) {
	f, err := elf.Open(program)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			parts = append(parts, "needs a dynamic loader")
		}
	}
	libraries, err := f.ImportedLibraries()
	if err != nil {
		return nil, err
	}
	for _, l := range libraries {
		parts = append(parts, "needs "+l)
	}
	return parts, nil
}

type dependency struct {
	ImportPath string
	Standard   bool
	CgoFiles   []string
	Module     *goModule
}

type goModule struct{ Path string }

func (d dependency) wrong(program string) string {
	hook := !strings.HasSuffix(program, "/admin")
	switch {
	case !d.Standard && len(d.CgoFiles) > 0:
		return "has cgo files, which a static build leaves out in silence"
	case hook && slices.Contains(heavy, d.ImportPath):
		return "is too heavy for what starts at every job"
	case hook && d.Module != nil && d.Module.Path+"/" != module && !slices.Contains(linked, d.Module.Path):
		return "is a module no hook may link: " + d.Module.Path
	}
	return ""
}

// depsOf lists what a package is linked with. cgo is on, as without it cgo files would not be listed.
func depsOf(path string) ([]dependency, error) {
	list := exec.Command("go", "list", "-deps", "-json=ImportPath,Standard,CgoFiles,Module", path)
	list.Env = append(list.Environ(), "CGO_ENABLED=1")
	out, err := list.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return nil, fmt.Errorf("go list %s: %s", path, bytes.TrimSpace(exit.Stderr))
		}
		return nil, fmt.Errorf("go list %s: %w", path, err)
	}
	var deps []dependency
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var d dependency
		if err := decoder.Decode(&d); errors.Is(err, io.EOF) {
			return deps, nil
		} else if err != nil {
			return nil, err
		}
		deps = append(deps, d)
	}
}
