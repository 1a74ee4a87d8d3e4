package main

import (
	"fmt"
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

// oddWords are the breaches of a page, and of what a program prints: its string literals.
func oddWords(f file, b bands) (breaches []string) {
	for _, m := range f.marks {
		kind, text, _ := strings.Cut(m.text, " ")
		printed := kind == "string" && strings.Contains(text, " ") && !f.test && b.of(f.dir) != testTree
		if kind != "page" && !printed {
			continue
		}
		for _, w := range words {
			for _, at := range w.odd.FindAllStringIndex(text, -1) {
				line := m.line + strings.Count(text[:at[0]], "\n")
				breaches = append(breaches, fmt.Sprintf("%s:%d: word: %q: say %s", f.name, line, text[at[0]:at[1]], w.better))
			}
		}
	}
	return breaches
}

// prose is a page without what it quotes.
func prose(page string) string {
	return code.ReplaceAllStringFunc(page, func(quoted string) string {
		return strings.Repeat("\n", strings.Count(quoted, "\n"))
	})
}
