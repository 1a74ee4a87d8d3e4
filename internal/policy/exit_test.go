package policy

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"bookend/internal/code"
)

var update = flag.Bool("update", false, "rewrite the table in docs/exit-codes.md")

const exitDoc = "../../docs/exit-codes.md"

// Admins read the numbers in slurmd's log and look them up in the documentation.
func TestExitCodesAreDocumented(t *testing.T) {
	text, err := os.ReadFile(exitDoc)
	if err != nil {
		t.Fatal(err)
	}
	const head = "| --- | --- | --- |\n"
	before, after, found := strings.Cut(string(text), head)
	if !found {
		t.Fatalf("%s has no table", exitDoc)
	}
	_, rest, more := strings.Cut(after, "\n\n")
	want := before + head + exitTable()
	if more {
		want += "\n" + rest
	}
	if *update {
		if err := os.WriteFile(exitDoc, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(text) != want {
		t.Errorf("%s does not show the table of exit codes: go test ./internal/policy -update", exitDoc)
	}
}

func exitTable() string {
	rows := []string{
		"| 0 | | nothing to drain for |",
		"| 2 | | a crash of Go's runtime, which Bookend did not catch |",
	}
	codes := map[int]code.Code{ExitOther: ""}
	for _, e := range Exits {
		codes[e.Exit] = e.Code
	}
	for _, exit := range slices.Sorted(maps.Keys(codes)) {
		rows = append(rows, row(codes[exit], exit))
	}
	rows = append(rows, "| 126 and above | | the shell of a wrapper, or a signal |")
	return strings.Join(rows, "\n") + "\n"
}

func row(c code.Code, exit int) string {
	if exit == ExitOther {
		return fmt.Sprintf("| %d | | any other finding that the policy drains for |", exit)
	}
	entry, _ := code.Lookup(c)
	return fmt.Sprintf("| %d | [%s](findings.md#%s) | %s |", exit, c, strings.ToLower(string(c)), entry.Title)
}
