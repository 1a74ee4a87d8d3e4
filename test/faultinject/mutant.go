package faultinject

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

// Mutant is one plausible mistake in one place of this module's sources. A test that does not notice it proves nothing.
type Mutant struct {
	Name string
	File string // below the module's root
	Func string // the function that it is in, "Type.Name" for a method; empty: anywhere in the file
	Old  string // the text to replace, which must be there exactly once; empty: all of the function's body
	New  string
	Part string // the part of a trial that must notice it; empty: all of it
}

// Mutants decodes a YAML list of them.
func Mutants(text []byte) (all []Mutant) {
	table := yaml.NewDecoder(bytes.NewReader(text))
	table.KnownFields(true)
	if err := table.Decode(&all); err != nil {
		panic(fmt.Errorf("read mutants: %w", err))
	}
	return all
}

// EachMutant calls notices for every mutant whose name contains only, and prints what noticed it: "" for nothing. It
// reports whether all were noticed.
func EachMutant(all []Mutant, only string, notices func(Mutant) (by string)) bool {
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

// Apply changes a source.
func (m Mutant) Apply(text string) (string, error) {
	from, to, err := m.place(text)
	if err != nil {
		return "", fmt.Errorf("plant %q: %w", m.Name, err)
	}
	within, changed := text[from:to], m.New
	if m.Old != "" {
		if n := strings.Count(within, m.Old); n != 1 {
			return "", fmt.Errorf("plant %q: %d places for it in %s %s: adapt the table", m.Name, n, m.File, m.Func)
		}
		changed = strings.Replace(within, m.Old, m.New, 1)
	}
	return text[:from] + changed + text[to:], nil
}

// place returns where the function's body is, without a function the whole file.
func (m Mutant) place(text string) (from, to int, err error) {
	if m.Func == "" {
		return 0, len(text), nil
	}
	file, err := parser.ParseFile(token.NewFileSet(), m.File, text, parser.SkipObjectResolution)
	if err != nil {
		return 0, 0, err
	}
	for _, decl := range file.Decls {
		f, is := decl.(*ast.FuncDecl)
		if !is {
			continue
		}
		name := f.Name.Name
		if f.Recv != nil {
			receiver := f.Recv.List[0].Type // a position is 1 at the first byte
			name = strings.TrimPrefix(text[receiver.Pos()-1:receiver.End()-1], "*") + "." + name
		}
		if name == m.Func {
			return int(f.Body.Lbrace), int(f.Body.Rbrace) - 1, nil
		}
	}
	return 0, 0, fmt.Errorf("%s has no function %s: adapt the table", m.File, m.Func)
}

// Fits fails a test if the mistake cannot be planted in the tree at root: whoever rewrites code adapts its mutants.
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

// Overlay writes the changed source into dir and returns an overlay for go build that replaces the real one of the
// module at root, which stays as it is.
func (m Mutant) Overlay(root, dir string) (overlay string, err error) {
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
	mutated, overlay := filepath.Join(dir, "mutated.go"), filepath.Join(dir, "overlay.json")
	data, err := json.Marshal(map[string]map[string]string{"Replace": {path: mutated}})
	return overlay, errors.Join(err, os.WriteFile(mutated, []byte(changed), 0o600), os.WriteFile(overlay, data, 0o600))
}
