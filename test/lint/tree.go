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

type file struct {
	name  string // "internal/child/child.go"
	dir   string // "internal/child"
	test  bool
	marks []mark
}

// mark is what a rule may forbid:
//
//	page TEXT           a document's prose; it has no other mark
//	package NAME        every Go file has one
//	import PATH
//	use PATH.NAME       an exported name of a package; "value.NAME" is any other selector
//	string TEXT         a literal
//	go statement
//	at start func init  what runs before main: this, or MustCompile of a pattern
//	long ...            a function or file
type mark struct {
	text string
	line int
}

const (
	longestFunction = 60
	longestFile     = 400
)

func load(root string) (files []file, err error) {
	err = fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && skipped(d.Name()):
			return filepath.SkipDir
		case d.IsDir() || path.Ext(name) != ".go" && path.Ext(name) != ".md":
			return nil
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return err
		}
		f := file{name: name, marks: []mark{{"page " + prose(string(text)), 1}}}
		if path.Ext(name) == ".go" {
			f, err = parse(name, text)
		}
		files = append(files, f)
		return err
	})
	return files, err
}

// skipped are the folders the go command skips, and what was built.
func skipped(folder string) bool {
	return folder[0] == '.' || folder[0] == '_' || slices.Contains([]string{"testdata", "bin", "build", "shared"}, folder)
}

func parse(name string, text []byte) (file, error) {
	f := file{name: name, dir: path.Dir(name), test: strings.HasSuffix(name, "_test.go")}
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, name, text, 0)
	if err != nil {
		return f, err
	}
	line := func(pos token.Pos) int { return set.Position(pos).Line }
	add := func(pos token.Pos, format string, args ...any) {
		f.marks = append(f.marks, mark{fmt.Sprintf(format, args...), line(pos)})
	}
	add(tree.Package, "package %s", tree.Name)
	if n := set.File(tree.Package).LineCount(); n > longestFile {
		add(tree.Package, "long file: %d lines", n)
	}
	imports := importsOf(tree)
	for _, d := range tree.Decls {
		if fn, ok := d.(*ast.FuncDecl); !ok {
			atStart(d, add)
		} else if lines := line(fn.End()) - line(fn.Pos()) + 1; lines > longestFunction {
			add(fn.Pos(), "long function: %s has %d lines", fn.Name.Name, lines)
		} else if fn.Recv == nil && fn.Name.Name == "init" {
			add(fn.Pos(), "at start func init")
		}
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			add(n.Pos(), "import %s", unquoted(n.Path))
			return false
		case *ast.GoStmt:
			add(n.Pos(), "go statement")
		case *ast.BasicLit:
			if n.Kind == token.STRING {
				add(n.Pos(), "string %s", unquoted(n))
			}
		case *ast.SelectorExpr:
			add(n.Pos(), "use %s.%s", source(n.X, imports), n.Sel.Name)
		}
		return true
	})
	return f, nil
}

// atStart marks what a declaration prepares before main; a function literal in it runs when it is called.
func atStart(d ast.Decl, add func(pos token.Pos, format string, args ...any)) {
	ast.Inspect(d, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && strings.HasPrefix(s.Sel.Name, "MustCompile") {
			add(s.Pos(), "at start %s", s.Sel.Name)
		}
		_, later := n.(*ast.FuncLit)
		return !later
	})
}

// source is the package that a selector's left side names, or "value".
func source(x ast.Expr, imports map[string]string) string {
	// An identifier with an object is a variable of that name, not the package.
	if id, ok := x.(*ast.Ident); ok && id.Obj == nil && imports[id.Name] != "" {
		return imports[id.Name]
	}
	return "value"
}

var version = regexp.MustCompile(`(/v\d+|\.v\d+)$`)

// importsOf gives the path of each local name. A package is called, by custom, as its path ends.
func importsOf(tree *ast.File) map[string]string {
	imports := map[string]string{}
	for _, spec := range tree.Imports {
		target := unquoted(spec.Path)
		local := path.Base(version.ReplaceAllString(target, ""))
		if spec.Name != nil {
			local = spec.Name.Name
		}
		imports[local] = target
	}
	return imports
}

func unquoted(literal *ast.BasicLit) string {
	text, err := strconv.Unquote(literal.Value)
	if err != nil {
		panic(err) // the parser accepts string literals only
	}
	return text
}
