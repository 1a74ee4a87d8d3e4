package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// module is the prefix of the tree's own import paths.
const module = "bookend/"

// file is one source file.
type file struct {
	name    string // "internal/child/child.go"
	dir     string // "internal/child"
	test    bool
	set     *token.FileSet
	ast     *ast.File
	imports map[string]string // local name to import path
}

func load(root string) ([]*file, error) {
	var files []*file
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != root && skipped(d.Name()):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go"):
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		f, err := parse(filepath.ToSlash(relative), text)
		files = append(files, f)
		return err
	})
	return files, err
}

// skipped are the folders the go command skips, and what was built.
func skipped(folder string) bool {
	hidden := len(folder) > 1 && (folder[0] == '.' || folder[0] == '_')
	return hidden || slices.Contains([]string{"testdata", "vendor", "bin", "build", "shared"}, folder)
}

func parse(name string, text []byte) (*file, error) {
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, name, text, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	f := &file{
		name: name, dir: path.Dir(name), test: strings.HasSuffix(name, "_test.go"),
		set: set, ast: tree, imports: map[string]string{},
	}
	for _, spec := range tree.Imports {
		target := importPath(spec)
		local := localName(target)
		if spec.Name != nil {
			local = spec.Name.Name
		}
		f.imports[local] = target
	}
	return f, nil
}

func importPath(spec *ast.ImportSpec) string {
	target, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		panic(err) // the parser accepts string literals only
	}
	return target
}

var versionSuffix = regexp.MustCompile(`(/v\d+|\.v\d+)$`)

// localName is the package name an import path stands for, by custom.
func localName(target string) string {
	return path.Base(versionSuffix.ReplaceAllString(target, ""))
}

// where gives "file:line".
func (f *file) where(pos token.Pos) string {
	return fmt.Sprintf("%s:%d", f.name, f.set.Position(pos).Line)
}

// uses returns every use of a package's exported name, such as "os.Getenv" or "bookend/internal/clock.System".
func (f *file) uses(yield func(name string, pos token.Pos)) {
	ast.Inspect(f.ast, func(n ast.Node) bool {
		selector, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		// An identifier with an object is a variable of that name, not the package.
		if x, ok := selector.X.(*ast.Ident); ok && x.Obj == nil && f.imports[x.Name] != "" {
			yield(f.imports[x.Name]+"."+selector.Sel.Name, selector.Pos())
		}
		return true
	})
}
