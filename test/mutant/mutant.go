// Package mutant plants one mistake at a time in this module's sources, by an overlay for go build that leaves the
// tree alone: a test that cannot see the mistake proves nothing.
package mutant

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// Mutant is one plausible mistake in one place.
type Mutant struct {
	Name string
	File string // below the module's root
	Func string // the function that has it, "Type.Name" for a method; empty: anywhere in the file
	Old  string // what stands there, exactly once; empty: all of the function's body
	New  string
	Part string // the part of a trial that must notice it; empty: all of it
}

// Table reads a list of them.
func Table(text []byte) (all []Mutant) {
	table := yaml.NewDecoder(bytes.NewReader(text))
	table.KnownFields(true)
	if err := table.Decode(&all); err != nil {
		panic(fmt.Errorf("read mutants: %w", err))
	}
	return all
}

// Each plants those whose name contains a text, and prints what notices each: "" for nothing. It reports whether
// something notices all of them.
func Each(all []Mutant, only string, notices func(Mutant) (by string)) bool {
	noticed := true
	for _, m := range all {
		if strings.Contains(m.Name, only) {
			by := notices(m)
			noticed = noticed && by != ""
			fmt.Printf("%-46s  %.110s\n", m.Name, cmp.Or(by, "NOTHING"))
		}
	}
	return noticed
}

// Apply changes a source, in which Old must stand once.
func (m Mutant) Apply(text string) (string, error) {
	from, to, err := m.place(text)
	if err != nil {
		return "", fmt.Errorf("plant %q: %w", m.Name, err)
	}
	within, changed := text[from:to], m.New
	if m.Old != "" {
		if n := strings.Count(within, m.Old); n != 1 {
			return "", fmt.Errorf("plant %q: it stands %d times in %s %s: adapt the table", m.Name, n, m.File, m.Func)
		}
		changed = strings.Replace(within, m.Old, m.New, 1)
	}
	return text[:from] + changed + text[to:], nil
}

// Fits fails a test where the mistake cannot be planted in the tree at root: code that was rewritten takes its mutants along,
// or they would test nothing.
func (m Mutant) Fits(t testing.TB, root string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, m.File))
	if err == nil {
		_, err = m.Apply(string(text))
	}
	if err == nil && m.Old == m.New && m.Func == "" {
		err = fmt.Errorf("%q changes nothing", m.Name)
	}
	if err != nil {
		t.Error(err)
	}
}

// place is the inside of the function's body, or all of the file.
func (m Mutant) place(text string) (from, to int, err error) {
	if m.Func == "" {
		return 0, len(text), nil
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, m.File, text, parser.SkipObjectResolution)
	if err != nil {
		return 0, 0, err
	}
	for _, decl := range file.Decls {
		if f, is := decl.(*ast.FuncDecl); is && nameOf(f) == m.Func {
			return files.Position(f.Body.Lbrace).Offset + 1, files.Position(f.Body.Rbrace).Offset, nil
		}
	}
	return 0, 0, fmt.Errorf("%s has no function %s: adapt the table", m.File, m.Func)
}

func nameOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	receiver := f.Recv.List[0].Type
	if pointer, is := receiver.(*ast.StarExpr); is {
		receiver = pointer.X
	}
	if name, is := receiver.(*ast.Ident); is {
		return name.Name + "." + f.Name.Name
	}
	return f.Name.Name
}

// Overlay writes the changed source into folder, and the overlay that puts it in the place of the real one of the
// module at root. The overlay's path is for go build -overlay.
func (m Mutant) Overlay(root, folder string) (overlay string, err error) {
	path, err := filepath.Abs(filepath.Join(root, m.File))
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	changed, err := m.Apply(string(text))
	if err != nil {
		return "", err
	}
	mutated, overlay := filepath.Join(folder, "mutated.go"), filepath.Join(folder, "overlay.json")
	data, err := json.Marshal(map[string]map[string]string{"Replace": {path: mutated}})
	return overlay, errors.Join(err, os.WriteFile(mutated, []byte(changed), 0o600), os.WriteFile(overlay, data, 0o600))
}
