package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// target is one fuzz target: go test fuzzes one at a time.
type target struct {
	pkg    string // as go test takes it: "./internal/slurm"
	folder string
	name   string // "FuzzFromEnv"
}

func (t target) String() string { return t.pkg + " " + t.name }

// listed is what "go list" says of a package.
type listed struct {
	Dir                                       string
	TestGoFiles, XTestGoFiles, IgnoredGoFiles []string
}

// find lists every fuzz target below a module's root. One in a file that is not built here would never be run, and is an
// error.
func find(root string) ([]target, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("find targets: %w", err)
	}
	packages, err := list(root)
	if err != nil {
		return nil, err
	}
	var all []target
	for _, p := range packages {
		in, err := p.targets(root)
		if err != nil {
			return nil, err
		}
		all = append(all, in...)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("find targets: none below %q", root)
	}
	return all, nil
}

func list(root string) ([]listed, error) {
	cmd := exec.Command("go", "list", "-json=Dir,TestGoFiles,XTestGoFiles,IgnoredGoFiles", "./...")
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list packages: %w: %s", err, stderr.String())
	}
	var all []listed
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		switch err := decoder.Decode(&p); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("list packages: %w", err)
		}
		all = append(all, p)
	}
}

func (p listed) targets(root string) (in []target, err error) {
	folder, err := filepath.Rel(root, p.Dir)
	if err != nil {
		return nil, fmt.Errorf("find targets: %w", err)
	}
	for _, file := range slices.Concat(p.TestGoFiles, p.XTestGoFiles, p.IgnoredGoFiles) {
		if !strings.HasSuffix(file, "_test.go") {
			continue
		}
		names, err := targetsOf(filepath.Join(p.Dir, file))
		if err != nil {
			return nil, err
		}
		if len(names) > 0 && slices.Contains(p.IgnoredGoFiles, file) {
			return nil, fmt.Errorf("find targets: %s of %s/%s is not built here", names[0], folder, file)
		}
		for _, name := range names {
			in = append(in, target{pkg: "./" + filepath.ToSlash(folder), folder: p.Dir, name: name})
		}
	}
	return in, nil
}

// targetsOf names the functions of a file that go test takes for fuzz targets.
func targetsOf(file string) (names []string, err error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("find targets: %w", err)
	}
	for _, d := range parsed.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Fuzz") && takesF(f) {
			names = append(names, f.Name.Name)
		}
	}
	return names, nil
}

// takesF: the one parameter is a *testing.F.
func takesF(f *ast.FuncDecl) bool {
	if f.Type.Params.NumFields() != 1 {
		return false
	}
	pointer, ok := f.Type.Params.List[0].Type.(*ast.StarExpr)
	if !ok {
		return false
	}
	selected, ok := pointer.X.(*ast.SelectorExpr)
	return ok && selected.Sel.Name == "F"
}
