package main

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"bookend/internal/fleet"
	"bookend/internal/page"
	"bookend/internal/safetext"
)

func fleetCommand(a *app) *cobra.Command {
	var nodes, html string
	var all, force bool
	cmd := &cobra.Command{
		Use: "fleet", Short: "show many nodes in one table, problems first",
		Args: none, RunE: func(*cobra.Command, []string) error {
			now := a.env.Clock.Wall()
			listed := strings.FieldsFunc(nodes, func(r rune) bool { return strings.ContainsRune(", \n", r) })
			f, err := fleet.Read(a.env.Stdin, listed, now, all)
			if err != nil {
				return err
			}
			if html == "" {
				return a.write(f, !f.Sound())
			}
			var b bytes.Buffer
			if err := safetext.KeepAll(f, 400).HTML(&b, now, page.Style, page.Policy); err != nil {
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
	f.BoolVar(&a.check, "exit-code", false, "exit 1 if a node has a problem")
	return a.inJSON(cmd)
}
