// Command accuracy writes docs/accuracy.md and docs/performance.md from the committed records of the GPU lane and
// the collection of texts, and from nothing else. Run it at the root: go run ./test/gpu/accuracy
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

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

// pages renders every generated page, by path.
func pages(root string) (map[string]string, error) {
	records := filepath.Join(root, "test/gpu/records")
	files, err := record.Load(records)
	if err != nil {
		return nil, err
	}
	said, err := sayings(filepath.Join(root, "test/texts"))
	if err != nil {
		return nil, err
	}
	timings := performance(files)
	for _, kind := range []string{"scan", "script", "search"} {
		outputs, err := verbatim(kind, filepath.Join(records, kind+"-*.txt"))
		if err != nil {
			return nil, err
		}
		timings += outputs
	}
	return map[string]string{
		filepath.Join(root, "docs/accuracy.md"):    accuracy(files, said),
		filepath.Join(root, "docs/performance.md"): timings,
	}, nil
}

// verbatim is the raw outputs of a benchmark, oldest first, below their head.
func verbatim(kind, pattern string) (string, error) {
	names, err := filepath.Glob(pattern)
	if err != nil {
		return "", err
	}
	all := ""
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return "", err
		}
		all += "\n```\n" + string(text) + "```\n"
	}
	return under(kind, all), nil
}

// sayings renders how much of the collection is understood.
func sayings(folder string) (string, error) {
	var b strings.Builder
	b.WriteString(head("sayings"))
	for _, part := range []struct{ name, file string }{{"untouched", texts.Heldout}, {"at hand", texts.Written},
		{"forms", texts.Formats}} {
		all, err := texts.Load(filepath.Join(folder, part.file))
		if err != nil {
			return "", err
		}
		s := texts.Of(all)
		fmt.Fprintf(&b, "| %d %s | %s | %s | %s |\n", len(all), part.name, share(s.Recognised, s.Shortages),
			share(s.Read, s.Sized), share(s.Taken, s.Others))
	}
	return b.String(), nil
}

func share(n, of int) string {
	return fmt.Sprintf("%d of %d (%.1f %%)", n, of, 100*float64(n)/float64(max(1, of)))
}
