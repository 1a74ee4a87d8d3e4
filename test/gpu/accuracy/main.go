// Command accuracy writes docs/accuracy.md and docs/performance.md from the committed records of the GPU lane and
// the collection of texts, and from nothing else. Run it at the root: go run ./test/gpu/accuracy
package main

import (
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"text/template"

	"bookend/test/gpu/runrecord"
	"bookend/test/texts"
)

func main() {
	prune := flag.Bool("prune", false, "remove runs that newer ones of the same scenario and kind of machine have replaced")
	flag.Parse()
	var err error
	if *prune {
		err = pruned(folder)
	}
	all, bad := pages(".")
	err = errors.Join(err, bad)
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

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"plain": plain,
	"kib":   func(n uint64) uint64 { return n >> 10 },
	"mib":   func(n uint64) uint64 { return n >> 20 },
	"share": func(n, of int) string {
		return fmt.Sprintf("%d of %d (%.1f %%)", n, of, 100*float64(n)/float64(max(1, of)))
	},
	"probe": read[struct{ Free, Largest uint64 }],
}).Parse(text))

// folder has the records.
const folder = "test/gpu/records"

// pruned removes what has been replaced.
func pruned(folder string) error {
	files, err := runrecord.Load(folder)
	newest := runrecord.Newest(files)
	for _, f := range files {
		i := slices.IndexFunc(newest, func(kept runrecord.File) bool { return kept.Path == f.Path })
		switch {
		case i < 0:
			err = errors.Join(err, os.Remove(f.Path))
		case !reflect.DeepEqual(f, newest[i]):
			err = errors.Join(err, newest[i].Write(f.Path))
		}
	}
	return err
}

type facts struct {
	Files     []runrecord.File
	Scenarios []*scenario
	Sayings   []saying
	Kinds     []saying            // of the untouched texts
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

// byKind scores texts by what they are about.
func byKind(all []texts.Text) []saying {
	var kinds []saying
	for _, kind := range [][2]string{{"device", "a GPU's memory"}, {"init", "a GPU's memory, at the start"}, {"host", "the node's memory"},
		{"shared", "a kernel's shared memory"}, {"none", "no shortage, in job output"}, {"document", "no shortage, in a document"}} {
		of := slices.DeleteFunc(slices.Clone(all), func(t texts.Text) bool { return t.About() != kind[0] })
		if len(of) > 0 {
			kinds = append(kinds, saying{kind[1], len(of), texts.Of(of)})
		}
	}
	return kinds
}

func pages(root string) (map[string]string, error) {
	records := filepath.Join(root, folder)
	files, err := runrecord.Load(records)
	f := facts{Files: files, Scenarios: byScenario(files), Outputs: map[string][]string{}}
	parts := [][2]string{{"untouched", texts.Heldout}, {"at hand", texts.Written}, {"forms", texts.Formats}}
	for _, part := range parts {
		all, bad := texts.Load(filepath.Join(root, "test/texts", part[1]))
		if len(all) > 0 {
			f.Sayings = append(f.Sayings, saying{part[0], len(all), texts.Of(all)})
		}
		if part[1] == texts.Heldout {
			f.Kinds = byKind(all)
		}
		err = errors.Join(err, bad)
	}
	for _, kind := range []string{"script", "search"} {
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
		filepath.Join(root, "test/gpu/results.md"): f.page("results"),
	}, nil
}
