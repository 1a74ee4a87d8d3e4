package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"bookend/test/must"
)

var (
	proof   = regexp.MustCompile(`(?m)^go test (.+?)(?: -run '([^']+)')? +# \d+$`)
	pointed = regexp.MustCompile("`make (e2e|torture|fuzz|soak|coverage|lint)[^`]*`(?: \\(([^)]+)\\))?")
	named   = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
)

func tests(t *testing.T, folder string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../..", folder, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests in %s, %v", folder, err)
	}
	for _, file := range files {
		for _, m := range named.FindAllStringSubmatch(must.Read(t, file), -1) {
			names = append(names, m[1])
		}
	}
	return names
}

// Each proof that security.md names is there: a pattern without a test would pass, and prove nothing.
func TestProofs(t *testing.T) {
	page := must.Read(t, "../../docs/security.md")
	commands := proof.FindAllStringSubmatch(page, -1)
	if len(commands) != 7 {
		t.Fatalf("%d commands", len(commands))
	}
	for _, c := range commands {
		for _, pattern := range strings.Split(c[2], "|") {
			for _, folder := range strings.Fields(c[1]) {
				all := strings.Join(tests(t, folder), "\n")
				must.Not(t, !regexp.MustCompile("(?m)"+pattern).MatchString(all),
					"%s: no test of %s is called %q", c[0], folder, pattern)
			}
		}
	}
	makefile := must.Read(t, "../../Makefile")
	for _, m := range pointed.FindAllStringSubmatch(page, -1) {
		must.Not(t, !strings.Contains(makefile, "\n"+m[1]+":"), "no target %q", m[1])
		for _, name := range regexp.MustCompile(`Test\w+`).FindAllString(m[2], -1) {
			must.Not(t, !strings.Contains(strings.Join(tests(t, "test/e2e"), "\n")+"\n", name+"\n"),
				"no story %s", name)
		}
	}
	if _, err := os.Stat("../../test/coverage/gaps.txt"); err != nil {
		t.Error(err)
	}
}

// What CONTRIBUTING.md names is there: files, packages and, in any of the packages that it names, tests.
func TestContributing(t *testing.T) {
	page := must.Read(t, "../../CONTRIBUTING.md")
	if lines := strings.Count(page, "\n"); lines > 65 {
		t.Errorf("CONTRIBUTING.md has %d lines, at most 65 are read", lines)
	}
	var known []string
	path := regexp.MustCompile("`(?:\\./)?((?:admin|configs|deploy|docs|internal|test)/[^`]*)`")
	for _, m := range path.FindAllStringSubmatch(page, -1) {
		folder := m[1]
		if info, err := os.Stat("../../" + folder); err != nil {
			t.Error(err)
		} else if !info.IsDir() {
			folder = filepath.Dir(folder)
		}
		if files, _ := filepath.Glob("../../" + folder + "/*_test.go"); len(files) > 0 {
			known = append(known, tests(t, folder)...)
		}
	}
	for _, m := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(page, -1) {
		must.Not(t, !slices.Contains(known, m[1]),
			"CONTRIBUTING.md names %s, which is in none of the packages that it names", m[1])
	}
}
