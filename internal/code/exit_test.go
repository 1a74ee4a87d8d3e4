package code

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

const exitDoc = "../../docs/exit-codes.md"

// Admins read the numbers in slurmd's log and look them up in the documentation.
func TestExitCodesAreDocumented(t *testing.T) {
	text, err := os.ReadFile(exitDoc)
	if err != nil {
		t.Fatal(err)
	}
	want := withTable(t, string(text), "## The hooks\n", exitTable())
	want = withTable(t, want, "## The health check\n", checkTable())
	if *update {
		if err := os.WriteFile(exitDoc, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(text) != want {
		t.Errorf("%s does not show the table of exit codes: go test ./internal/code -update", exitDoc)
	}
}

// withTable is a text with another table below a title.
func withTable(t *testing.T, text, title, table string) string {
	t.Helper()
	const head = "| --- | --- | --- |\n"
	above, below, found := strings.Cut(text, title)
	before, after, has := strings.Cut(below, head)
	if !found || !has {
		t.Fatalf("%s has no table below %q", exitDoc, title)
	}
	_, rest, more := strings.Cut(after, "\n\n")
	if more {
		table += "\n" + rest
	}
	return above + title + before + head + table
}

func checkTable() string {
	rows := []string{"| 0 | | checked, or no GPU on this node, or another health check is at work |", "| 2 | | a crash of Go's runtime, which Bookend did not catch |"}
	for _, e := range Exits() {
		if e.Unchecked {
			rows = append(rows, row(e.Code, e.Exit))
		}
	}
	return strings.Join(rows, "\n") + "\n"
}

func exitTable() string {
	rows := []string{
		"| 0 | | nothing to drain for |",
		"| 2 | | a crash of Go's runtime, which Bookend did not catch; the script exits 0 instead |",
	}
	codes := map[int]Code{ExitOther: ""}
	for _, e := range Exits() {
		codes[e.Exit] = e.Code
	}
	for _, exit := range slices.Sorted(maps.Keys(codes)) {
		rows = append(rows, row(codes[exit], exit))
	}
	rows = append(rows, "| 126 and above | | a program that cannot be started, or a signal; the script exits 0 instead |")
	return strings.Join(rows, "\n") + "\n"
}

func row(c Code, exit int) string {
	if exit == ExitOther {
		return fmt.Sprintf("| %d | | any other finding that the policy drains for |", exit)
	}
	entry, _ := Lookup(c)
	return fmt.Sprintf("| %d | [%s](findings.md#%s) | %s |", exit, c, strings.ToLower(string(c)), entry.Title)
}

// The numbers are an interface: admins read them in slurmd's log. The scripts that slurm.conf names take a number of
// another length for a crash, and exit 0.
func TestExitCodes(t *testing.T) {
	seen := map[int]Code{ExitOther: "any other"}
	for _, e := range Exits() {
		if other, twice := seen[e.Exit]; twice || e.Exit < 10 || e.Exit > 99 {
			t.Errorf("%s has %d, as %q has", e.Code, e.Exit, other)
		}
		seen[e.Exit] = e.Code
	}
	if Exit(Orphan) != 10 || Exit(Lost) != 20 || Exit("BKD-NEW") != ExitOther {
		t.Error("published exit codes changed")
	}
}
