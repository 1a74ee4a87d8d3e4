package metrics

import (
	"os"
	"path/filepath"
	"testing"

	"bookend/internal/code"
)

// What counting adds to each hook.
func BenchmarkRecord(b *testing.B) {
	dir, err := os.MkdirTemp("/run", "metrics-bench-")
	if err != nil {
		b.Fatal(err)
	}
	defer os.RemoveAll(dir)
	f := Files{Var: filepath.Join(dir, "var"), Textfile: filepath.Join(dir, "var/bookend.prom")}
	for b.Loop() {
		if err := Record(f, at(1, Prolog, code.BadConfig)); err != nil {
			b.Fatal(err)
		}
	}
}
