// Command accuracy writes docs/accuracy.md and docs/performance.md from the committed records of the GPU lane and
// the collection of texts, and from nothing else. Run it at the root: go run ./test/gpu/accuracy
package main

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"bookend/test/gpu/record"
	"bookend/test/texts"
)

func main() {
	all, err := pages(".")
	for path, text := range all {
		err = errors.Join(err, os.WriteFile(path, []byte(text), 0o644))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "accuracy:", err)
		os.Exit(1)
	}
}

//go:embed pages.tmpl
var text string

// yardstick begins the name of the program that the others are compared with.
const yardstick = "nvidia-smi --query-gpu"

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"plain": plain, "least": slices.Min[[]float64], "most": slices.Max[[]float64],
	"kib": func(n uint64) uint64 { return n >> 10 },
	"mib": func(n uint64) uint64 { return n >> 20 },
	"ms":  func(millis float64) string { return fmt.Sprintf("%.1f ms", millis) },
	"share": func(n, of int) string {
		return fmt.Sprintf("%d of %d (%.1f %%)", n, of, 100*float64(n)/float64(max(1, of)))
	},
	"probe": read[struct{ Free, Largest uint64 }],
	"base": func(all []record.Timing) (median float64) {
		for _, t := range all {
			if strings.HasPrefix(t.Name, yardstick) {
				median = t.Median()
			}
		}
		return median
	},
	"times": func(median, base float64) string {
		if base == 0 {
			return "-"
		}
		return fmt.Sprintf("%.2f", median/base)
	},
}).Parse(text))

type facts struct {
	Files     []record.File
	Scenarios []*scenario
	Sayings   []saying
	Outputs   map[string][]string // raw outputs of benchmarks by kind, oldest first
}

// saying is how much of a part of the collection is understood.
type saying struct {
	Name  string
	Count int
	texts.Score
}

func (f facts) page(name string) string {
	var b strings.Builder
	if err := templates.ExecuteTemplate(&b, name, f); err != nil {
		panic(err)
	}
	return b.String()
}

func pages(root string) (map[string]string, error) {
	records := filepath.Join(root, "test/gpu/records")
	files, err := record.Load(records)
	f := facts{Files: files, Scenarios: byScenario(files), Outputs: map[string][]string{}}
	parts := [][2]string{{"untouched", texts.Heldout}, {"at hand", texts.Written}, {"forms", texts.Formats}}
	for _, part := range parts {
		all, bad := texts.Load(filepath.Join(root, "test/texts", part[1]))
		f.Sayings = append(f.Sayings, saying{part[0], len(all), texts.Of(all)})
		err = errors.Join(err, bad)
	}
	for _, kind := range []string{"scan", "script", "search"} {
		names, _ := filepath.Glob(filepath.Join(records, kind+"-*.txt"))
		for _, name := range names {
			output, bad := os.ReadFile(name)
			f.Outputs[kind] = append(f.Outputs[kind], string(output))
			err = errors.Join(err, bad)
		}
	}
	if err != nil {
		return nil, err
	}
	return map[string]string{
		filepath.Join(root, "docs/accuracy.md"):    f.page("accuracy"),
		filepath.Join(root, "docs/performance.md"): f.page("performance"),
	}, nil
}
