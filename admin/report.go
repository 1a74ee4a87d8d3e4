package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"bookend/internal/page"
	"bookend/internal/safefile"
	"bookend/internal/state"
	"bookend/internal/view"
)

type reportAsk struct {
	html, since, until, records string
	force, users                bool
}

func reportCommand(a *app) *cobra.Command {
	var q reportAsk
	cmd := &cobra.Command{
		Use: "report", Args: none, RunE: func(cmd *cobra.Command, _ []string) error { return report(a, cmd, q) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&q.html, "html", "", "the `FILE` to write; - for standard output")
	f.StringVar(&q.since, "since", "", "leave out what was before `WHEN`")
	f.StringVar(&q.until, "until", "", "leave out what was after `WHEN`")
	f.StringVar(&q.records, "records", "", "a copy of records in `DIR`, instead of this node's own")
	f.BoolVar(&q.users, "users", false, "show the jobs' users")
	f.BoolVar(&q.force, "force", false, "replace the file if it exists")
	_ = cmd.MarkFlagFilename("html", "html")
	_ = cmd.MarkFlagDirname("records")
	return a.perNode(cmd)
}

func report(a *app, cmd *cobra.Command, q reportAsk) error {
	if q.html == "" {
		return misused(cmd, "want --html FILE; - is standard output")
	}
	since, until, err := page.Period(q.since, q.until, a.env.Clock.Wall())
	if err != nil {
		return misused(cmd, err.Error())
	}
	ask := page.Request{Since: since, Until: until}
	var all records
	if q.records != "" {
		all, err = copied(q.records, a.node)
	} else {
		all, err = a.records()
		ask.Now = a.env.Clock.Wall()
	}
	if err != nil {
		return err
	}
	if all.store != nil {
		ask.Check, err = state.LastCheck.Load(all.store)
	}
	if err != nil { // the report is made without it
		a.warn(err)
	}
	p := page.NewPage(all.node, all.runs, ask)
	for _, g := range view.NewOffenders(all.node, page.Filter{Since: since, Until: until}.Pick(all.runs)).GPUs {
		p.Offenders = append(p.Offenders, g.ID)
	}
	p.Version, p.Made, p.Damaged = a.env.Version, a.env.Clock.Wall(), all.damage()
	p.Copy, p.Users = q.records != "", q.users
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		return err
	}
	return deliver(a, q.html, q.force, b.Bytes(), fmt.Sprintf("GPUs: %d, jobs: %d, findings: %d", len(p.Chart.Lanes),
		p.Chart.Jobs, len(p.Chart.Entries)))
}

// copied returns the records of a node in a copy of /var/lib/bookend.
func copied(dir, node string) (records, error) {
	all, damaged, err := state.Copied(dir)
	if err != nil {
		return records{}, err
	}
	if len(all) == 0 {
		return records{}, notFound("no records in %q: want a copy of /var/lib/bookend or of a directory in it", dir)
	}
	node, err = oneOf(slices.Sorted(maps.Keys(all)), node, dir)
	return records{node: node, runs: all[node], damaged: damaged}, err
}

// deliver writes a page to standard output, or to a new file unless force is set.
func deliver(a *app, file string, force bool, page []byte, about string) error {
	if file == "-" {
		_, err := a.raw.Write(page)
		return err
	}
	err := safefile.Create(file, page, force)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%q is there already: give another name, or --force to replace it", file)
	}
	if err == nil {
		fmt.Fprintf(a.env.Stdout, "written: %s (%d KiB): %s\n", file, (len(page)+1023)>>10, about)
	}
	return err
}
