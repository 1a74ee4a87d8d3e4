// Command lint holds the tree to the rules of its architecture and says for each breach why the rule is there. It is
// run in the root of the tree, by make lint.
//
// It has only what no other linter says. It reads syntax alone, so that it also works on a tree that does not compile:
// each file becomes a list of marks (see tree.go), and a rule is a pattern of marks with the folders where it holds.
package main

import (
	"fmt"
	"os"
	"slices"
)

func main() {
	page, err := os.ReadFile(architecture)
	var files []file
	if err == nil {
		files, err = load(".")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "lint:", err)
		os.Exit(2)
	}
	bands := bandsOf(string(page))
	breaches, used := check(bands, files)
	for dir := range bands {
		if !slices.ContainsFunc(files, func(f file) bool { return f.dir == dir }) {
			breaches = append(breaches, fmt.Sprintf("%s: %s: there is no such package any more", architecture, dir))
		}
	}
	for i, e := range exceptions {
		if !used[i] {
			breaches = append(breaches, fmt.Sprintf("%s: %s: no exception for %s is needed any more", e.dir, e.rule, e.mark))
		}
	}
	for _, b := range breaches {
		fmt.Println(b)
	}
	if len(breaches) > 0 {
		fmt.Fprintf(os.Stderr, "lint: %d breaches\n", len(breaches))
		os.Exit(1)
	}
}

// check returns every breach, sorted, and which exceptions are needed.
func check(bands bands, files []file) (breaches []string, used map[int]bool) {
	used = map[int]bool{}
	for _, f := range files {
		breaches = append(breaches, oddWords(f, bands)...)
		if f.dir == "" { // a page
			continue
		}
		add := func(m mark, rule, what, why string) {
			breaches = append(breaches, fmt.Sprintf("%s:%d: %s: %s: %s", f.name, m.line, rule, what, why))
		}
		for _, m := range f.marks {
			if why := bands.breach(f, m); why != "" {
				add(m, "band", m.text, why)
			}
			for _, r := range rules {
				if !r.holds(bands, f) || !r.mark.MatchString(m.text) {
					continue
				}
				i := slices.IndexFunc(exceptions, func(e exception) bool {
					return e.rule == r.name && e.dir == f.dir && e.mark.MatchString(m.text)
				})
				if used[i] = true; i < 0 {
					add(m, r.name, m.text, r.why)
				}
			}
		}
	}
	slices.Sort(breaches)
	return slices.Compact(breaches), used
}
