package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"bookend/internal/fleet"
	"bookend/internal/page"
	"bookend/internal/safetext"
)

func fleetCommand(a *app) *cobra.Command {
	var nodes, html string
	var all, force, watch bool
	cmd := &cobra.Command{
		Use: "fleet", Args: none, RunE: func(cmd *cobra.Command, _ []string) error {
			listed := strings.FieldsFunc(nodes, func(r rune) bool { return strings.ContainsRune(", \n", r) })
			switch {
			case watch && html != "":
				return misused(cmd, "want --watch or --html")
			case watch:
				return a.watch(fleet.NewRounds(a.env.Stdin, listed, a.env.Clock.Wall, all))
			}
			f, err := fleet.Read(a.env.Stdin, listed, a.env.Clock.Wall(), all)
			if err != nil {
				return err
			}
			if html == "" {
				return a.write(f, !f.Sound())
			}
			var b bytes.Buffer
			if err := safetext.KeepAll(f, 400).HTML(&b, a.env.Clock.Wall(), page.Style, page.Policy); err != nil {
				return err
			}
			return deliver(a, html, force, b.Bytes(), fmt.Sprintf("nodes: %d", len(f.Nodes)))
		},
	}
	f := cmd.Flags()
	f.StringVar(&nodes, "nodes", "", "the `NAMES` of all nodes, each in full (not n[1-8]): one that sends nothing "+
		"has a row too")
	f.BoolVar(&all, "all", false, "list nodes without problems too")
	f.StringVar(&html, "html", "", "write a page to `FILE`; - for standard output")
	f.BoolVar(&force, "force", false, "replace the file if it exists")
	f.BoolVar(&watch, "watch", false, "show each round of the input, which an empty line ends, once it is complete")
	f.BoolVar(&a.check, "exit-code", false, "exit 1 if a node has a problem, or none answers (in the last round)")
	return a.inJSON(cmd)
}

// watch shows one table after another or, on a terminal, each in place of the one before.
func (a *app) watch(rounds *fleet.Rounds) error {
	var last error
	for a.raw.Flush() == nil { // else a.end says so
		f, more, err := rounds.Next()
		if !more {
			return cmp.Or(err, last)
		}
		last, f = verdict(!a.check || f.Sound()), safetext.KeepAll(f, 400)
		if a.json {
			_ = json.NewEncoder(a.raw).Encode(f) // errors are kept by a.raw
			continue
		}
		a.raw.WriteString(a.clear)
		f.Text(a.env.Stdout)
	}
	return last
}
