package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// words are those that people have to read twice, and the field's own in their place.
var words = [...]struct {
	odd    *regexp.Regexp
	better string
}{
	{word(`cards?`), "GPU"},
	{word(`folders?`), "directory"},
	{word(`as shipped`), "by default"},
	{word(`anew`), "again"},
	{word(`ends with 0`), "exits 0"},
}

func word(pattern string) *regexp.Regexp { return regexp.MustCompile(`(?i)\b(?:` + pattern + `)\b`) }

// code is what a page quotes: programs' own words, file names, and names of types.
var code = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`|\\[\\w+\\]\\(#[^)\n]*\\)|\\]\\([^)\n]*\\)|#### \\w+\n")

// oddWords are the breaches of one text, which begins at a line of a file.
func oddWords(name string, first int, text string) (breaches []string) {
	for _, w := range words {
		for _, at := range w.odd.FindAllStringIndex(text, -1) {
			line := first + strings.Count(text[:at[0]], "\n")
			breaches = append(breaches, fmt.Sprintf("%s:%d: word: %q: say %s", name, line, text[at[0]:at[1]], w.better))
		}
	}
	return breaches
}

// oddInPages are the breaches of the tree's Markdown. What changed long ago is said in the words of then.
func oddInPages(root string) (breaches []string, err error) {
	err = fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && skipped(d.Name()):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".md"):
			return nil
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		prose := code.ReplaceAllStringFunc(string(text), func(quoted string) string {
			return strings.Repeat("\n", strings.Count(quoted, "\n"))
		})
		breaches = append(breaches, oddWords(name, 1, prose)...)
		return err
	})
	return breaches, err
}

// oddInTexts are the breaches of what programs print: their string literals.
func oddInTexts(files []file, b bands) (breaches []string) {
	for _, f := range files {
		if f.test || b.of(f.dir) == testTree {
			continue
		}
		for _, m := range f.marks {
			if text, ok := strings.CutPrefix(m.text, "string "); ok && strings.Contains(text, " ") {
				breaches = append(breaches, oddWords(f.name, m.line, text)...)
			}
		}
	}
	return breaches
}
