package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
)

// locate names the function that a block is in and the text with which it begins, which outlive a change of lines.
func (b *block) locate(root string) error {
	path := filepath.Join(root, b.file)
	source, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	lines := strings.Split(string(source), "\n")
	if b.line > len(lines) || b.column > len(lines[b.line-1])+1 {
		return fmt.Errorf("%s:%d.%d is not in the source: the profile is of another state of it", b.file, b.line, b.column)
	}
	b.text = beginning(lines, b.line, b.column)
	b.function, err = functionAt(path, source, b.line)
	return err
}

// beginning is the rest of a block's first line. Where that holds no statement, as behind "{", it is the whole line
// with the next one.
func beginning(lines []string, line, column int) string {
	rest := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(lines[line-1][column-1:]), "{"))
	if rest != "" && !strings.HasPrefix(rest, "//") {
		return rest
	}
	text := strings.TrimSpace(lines[line-1])
	for _, next := range lines[line:] {
		if next = strings.TrimSpace(next); next != "" && !strings.HasPrefix(next, "//") {
			return text + " " + next
		}
	}
	return text
}

// functionAt names the function around a line: "Store.retire", "write", "-" for none.
func functionAt(path string, source []byte, line int) (string, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, source, parser.SkipObjectResolution)
	if err != nil {
		return "", err
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if ok && set.Position(f.Pos()).Line <= line && line <= set.Position(f.End()).Line {
			return nameOf(f), nil
		}
	}
	return "-", nil
}

func nameOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	on := f.Recv.List[0].Type
	for {
		switch t := on.(type) {
		case *ast.StarExpr:
			on = t.X
		case *ast.IndexExpr:
			on = t.X
		case *ast.Ident:
			return t.Name + "." + f.Name.Name
		default:
			return f.Name.Name
		}
	}
}
