package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"bookend/test/rig"
)

// tracks are the columns, in the order in which Slurm got them.
var tracks = []string{"linuxproc", "cgroup/v1", "cgroup/v2"}

// table is that of the page: a row a Slurm, a column a way of tracking.
func table(runs []Run) string {
	rows := map[string][]string{}
	var versions, hosts []string
	for _, r := range runs {
		if rows[r.Slurm] == nil {
			versions, rows[r.Slurm] = append(versions, r.Slurm), []string{r.Slurms, "not run", "not run", "not run"}
		}
		rows[r.Slurm][1+slices.Index(tracks, r.Track)] = r.cell()
		hosts = append(hosts, r.Host)
	}
	var b strings.Builder
	b.WriteString("| Slurm | from | " + strings.Join(tracks, " | ") + " |\n| --- | --- | --- | --- | --- |\n")
	for _, version := range versions {
		fmt.Fprintf(&b, "| %s | %s |\n", version, strings.Join(rows[version], " | "))
	}
	fmt.Fprintf(&b, "\nStories that passed, of all; what a job's cgroup is called; time. On %s.\n\n",
		strings.Join(slices.Compact(hosts), "; "))
	return b.String() + notes(runs)
}

func (r Run) cell() string {
	text := fmt.Sprintf("%d of %d", r.Passed, r.Passed+len(r.Others))
	if n := r.count(LeftOut); n > 0 {
		text += fmt.Sprintf(", %d left out", n)
	}
	if n := r.count(Failed); n > 0 {
		text += fmt.Sprintf(", **%d failed**", n)
	}
	if r.Paths != "" {
		text += "; `" + r.Paths + "`"
	}
	return fmt.Sprintf("%s; %.0f s", text, r.Seconds)
}

// notes say once of which commit the runs are, and what did not pass where, and why.
func notes(runs []Run) string {
	where := map[string][]string{}
	var order []string
	note := func(what string, r Run) {
		if where[what] == nil {
			order = append(order, what)
		}
		where[what] = append(where[what], r.Slurm+" "+r.Track)
	}
	for _, r := range runs {
		note("commit "+cmp.Or(r.Commit, "unknown"), r)
	}
	for _, r := range runs {
		for _, t := range r.Others {
			note(fmt.Sprintf("%s %s: `%s`", t.Name, t.Outcome, strings.ReplaceAll(t.Why, "`", "'")), r)
		}
	}
	var b strings.Builder
	for _, what := range order {
		at := strings.Join(where[what], ", ")
		if len(where[what]) == len(runs) && len(runs) > 1 {
			at = "all"
		}
		fmt.Fprintf(&b, "* %s: %s\n", at, what)
	}
	return b.String()
}

// tablePage has the table, seen from the root of the tree.
const tablePage = "docs/admin.md"

// The marks between which the page has the table.
const (
	begin = "<!-- what ran where: go run ./test/e2e/versions -page -->\n"
	end   = "<!-- end of what ran where -->\n"
)

// rendered is the page of a tree with what the committed results say.
func rendered(root string) string {
	before, rest, ok := strings.Cut(string(rig.Have(os.ReadFile(filepath.Join(root, tablePage)))), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		panic(fmt.Errorf("the page has no block between %q and %q", begin, end))
	}
	return before + begin + table(load(filepath.Join(root, kept))) + end + after
}
