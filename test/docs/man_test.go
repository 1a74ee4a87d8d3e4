package docs

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cpuguy83/go-md2man/v2/md2man"

	"bookend/internal/catalog"
	"bookend/test/golden"
	"bookend/test/must"
)

var keyRow = regexp.MustCompile("(?m)^\\| `([a-z_.]+)` \\| (.*?) ?\\| (.*) \\|\n")

var placeholder = regexp.MustCompile(`\{[a-z. ]+\}`)

// TestManPages makes the man pages of what Slurm runs, and of the configuration, from their sources: the exit codes
// are the policy's table, the configuration is the shipped file.
func TestManPages(t *testing.T) {
	sources, err := filepath.Glob("../../deploy/man/source/*.md")
	if err != nil || len(sources) != 6 {
		t.Fatalf("sources: %q, %v", sources, err)
	}
	for _, source := range sources {
		text := placeholder.ReplaceAllStringFunc(must.Read(t, source), func(name string) string { return filled(t, name) })
		page := filepath.Join("../../deploy/man", strings.TrimSuffix(filepath.Base(source), ".md"))
		golden.File(t, *update, page, string(md2man.Render([]byte(text))))
	}
}

func filled(t *testing.T, name string) string {
	t.Helper()
	switch name {
	case "{exits prolog}", "{exits epilog}":
		return exits(func(catalog.Code) bool { return true })
	case "{exits healthcheck}":
		return exits(func(c catalog.Code) bool { return c.Traits().Unchecked })
	case "{files}", "{environment}": // what the pages of several programs have in common
		return strings.TrimSpace(must.Read(t, "testdata/man-"+strings.Trim(name, "{}")+".md"))
	case "{bookend.yaml}":
		return strings.TrimSpace(must.Read(t, "../../configs/bookend.yaml"))
	case "{keys}":
		return keyRow.ReplaceAllString(strings.Join(keyRow.FindAllString(must.Read(t, "../../docs/config.md"), -1), ""),
			"**$1** $2\n: $3\n\n")
	}
	t.Fatalf("no such placeholder: %s", name)
	return ""
}

func exits(wanted func(catalog.Code) bool) string {
	var b strings.Builder
	for _, e := range catalog.Exits() {
		if wanted(e.Code) {
			fmt.Fprintf(&b, "**%d**\n: %s: %s\n\n", e.Exit, e.Code, e.Title)
		}
	}
	return strings.TrimSpace(b.String())
}
