package world

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// The judged must have no hand in the judge: of the tree's packages the world may know values, and nothing that these
// import either may lead to more.
func TestWorldImportsNoJudgement(t *testing.T) {
	const module = "bookend/"
	values := map[string]bool{"internal/gpu": true, "internal/slurm": true}
	seen := map[string]bool{}
	var walk func(dir string)
	walk = func(dir string) {
		files, err := filepath.Glob(filepath.Join("../../..", dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", dir, len(files), err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, spec := range f.Imports {
				path, _ := strconv.Unquote(spec.Path.Value)
				own, inTree := strings.CutPrefix(path, module)
				first, _, _ := strings.Cut(path, "/")
				switch {
				case inTree && !values[own]:
					t.Errorf("%s imports %s", name, path)
				case inTree && !seen[own]:
					seen[own] = true
					walk(own)
				case !inTree && strings.Contains(first, "."):
					t.Errorf("%s imports %s, which is not of the standard library", name, path)
				}
			}
		}
	}
	walk("test/soak/world")
	if len(seen) != len(values) {
		t.Errorf("the walk saw %v", seen)
	}
}
