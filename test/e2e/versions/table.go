package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// tracks are the columns, in the order in which Slurm got them.
var tracks = []string{"linuxproc", "cgroup/v1", "cgroup/v2"}

// how is how a test went, in words.
func (t Test) how() string {
	if t.Tries > 1 {
		return string(t.Outcome) + " at the second try"
	}
	return string(t.Outcome)
}

// table is that of the README: a row a Slurm, a column a way of tracking.
func table(runs []Run) string {
	if len(runs) == 0 {
		return "Nothing has run yet.\n"
	}
	var b strings.Builder
	b.WriteString("| Slurm | from | " + strings.Join(tracks, " | ") + " |\n| --- | --- | --- | --- | --- |\n")
	var versions, hosts []string
	for _, r := range runs {
		if !slices.Contains(versions, r.Slurm) {
			versions = append(versions, r.Slurm)
		}
		if !slices.Contains(hosts, r.Host) {
			hosts = append(hosts, r.Host)
		}
	}
	for _, version := range versions {
		b.WriteString(row(version, runs))
	}
	fmt.Fprintf(&b, "\nStories that passed, of all; what a job's cgroup is called; time. On %s.\n\n",
		strings.Join(hosts, "; "))
	return b.String() + notes(runs)
}

func row(version string, runs []Run) string {
	cells := make([]string, len(tracks))
	from := ""
	for i, track := range tracks {
		at := slices.IndexFunc(runs, func(r Run) bool { return r.Slurm == version && r.Track == track })
		if at < 0 {
			cells[i] = "not run"
			continue
		}
		from, cells[i] = runs[at].Slurms, runs[at].cell()
	}
	return fmt.Sprintf("| %s | %s | %s |\n", version, from, strings.Join(cells, " | "))
}

func (r Run) cell() string {
	text := fmt.Sprintf("%d of %d", r.Count(Passed), len(r.Tests))
	if n := r.Count(LeftOut); n > 0 {
		text += fmt.Sprintf(", %d left out", n)
	}
	if n := r.Count(Failed); n > 0 {
		text += fmt.Sprintf(", **%d failed**", n)
	}
	if n := r.Again(); n > 0 {
		text += fmt.Sprintf(", %d of them at a second try", n)
	}
	if r.Paths != "" {
		text += "; `" + r.Paths + "`"
	}
	return fmt.Sprintf("%s; %.0f s", text, r.Seconds)
}

// mostShown is how much of a reason a note has.
const mostShown = 200

// notes say once of which commit the runs are, and what did not pass at the first try where, and why.
func notes(runs []Run) string {
	where := map[string][]string{}
	var order []string
	note := func(what string, r Run) {
		if where[what] == nil {
			order = append(order, what)
		}
		if at := r.Slurm + " " + r.Track; !slices.Contains(where[what], at) {
			where[what] = append(where[what], at)
		}
	}
	for _, r := range runs {
		note("commit "+cmp.Or(r.Commit, "unknown"), r)
	}
	for _, r := range runs {
		for _, t := range r.Tests {
			if t.Outcome != Passed || t.Tries > 1 {
				note(t.note(), r)
			}
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

func (t Test) note() string {
	switch {
	case t.Why == "" && t.Outcome == Passed:
		return "why stories needed a second try was not recorded"
	case t.Why == "":
		return fmt.Sprintf("%s %s", t.Name, t.how())
	}
	why := strings.ToValidUTF8(t.Why[:min(len(t.Why), mostShown)], "")
	return fmt.Sprintf("%s %s: `%s`", t.Name, t.how(), strings.ReplaceAll(why, "`", "'"))
}

// The marks between which the README has the table.
const (
	begin = "<!-- what ran where: go run ./test/e2e/versions -readme -->\n"
	end   = "<!-- end of what ran where -->\n"
)

// put replaces the block of a page.
func put(page string, runs []Run) (string, error) {
	before, rest, ok := strings.Cut(page, begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return "", fmt.Errorf("the page has no block between %q and %q", strings.TrimSpace(begin),
			strings.TrimSpace(end))
	}
	return before + begin + table(runs) + end + after, nil
}

// readme is the README of a tree with what the committed results say, and where it lies.
func readme(root string) (path, text string, err error) {
	path = filepath.Join(root, "README.md")
	page, err := os.ReadFile(path)
	if err != nil {
		return "", "", err
	}
	runs, err := load(filepath.Join(root, folder))
	if err == nil {
		text, err = put(string(page), runs)
	}
	return path, text, err
}
