package main

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"bookend/internal/gpu"
	"bookend/test/golden"
	"bookend/test/must"
)

const mib = 1 << 20

var update = flag.Bool("update", false, "rewrite docs/cuda-errors.md and testdata")

// The table of docs/cuda-errors.md is made from that of the code; what is above it is written by hand.
func TestErrorsDoc(t *testing.T) {
	const doc, head = "../docs/cuda-errors.md", "| --- | --- | --- | --- |\n"
	above, _, found := strings.Cut(must.Read(t, doc), head)
	must.Not(t, !found, "%s has no table", doc)
	var page strings.Builder
	page.WriteString(above + head)
	for _, e := range cuda.Means {
		code := fmt.Sprint(e.Code)
		switch {
		case e.Code == gpu.Lacks:
			code = "none"
		case e.Call != "":
			code += " of " + e.Call
		}
		fmt.Fprintf(&page, "| %s | %s | %s | %s |\n", code, e.Name, e.Meaning, e.Remedy)
	}
	golden.File(t, *update, doc, page.String())
}
