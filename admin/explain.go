package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"bookend/internal/answer"
	"bookend/internal/config"
)

func explainCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "explain CODE|EXITCODE|XID|REASON", Short: "what a finding, an exit code, an Xid or a drain reason means, " +
			"and what to do",
		Long: `Explains a finding by its code (BKD-ORPHAN, or orphan): what it means, what to do,
what the policy does with it, whether it can drain a node, and its exit code and
metrics; an exit code of Bookend's (10); an Xid, which is an error of the NVIDIA driver
(xid79); or a node's drain reason as Slurm shows it.`,
		Example: "  bookend explain orphan\n  bookend explain 10\n  bookend explain xid79\n  bookend explain \"Epilog error\"",
		Args:    operands(1, -1, "a finding, an exit code, an Xid or a drain reason"),
		RunE:    func(_ *cobra.Command, args []string) error { return a.explain(strings.Join(args, " ")) },
	}
	a.inJSON(cmd)
	return cmd
}

func (a *app) explain(what string) error {
	cfg := a.config()
	e := answer.NewExplain(what)
	if c, ok := answer.CodeOf(what); ok {
		e.Codes = append(e.Codes, answer.NewExplanation(c, cfg))
	} else if n, ok := xidNumber(what); ok {
		if e = e.WithXid(n, cfg); e.Xid == nil {
			return notFound(fmt.Sprintf("no known Xid: %d; NVIDIA lists all: docs.nvidia.com/deploy/xid-errors", n))
		}
	} else if n, err := strconv.Atoi(strings.TrimSpace(what)); err == nil {
		if e = explainExit(e, n, cfg).WithXid(n, cfg); len(e.Exits) == 0 && e.Xid == nil {
			return notFound(fmt.Sprintf("%d is no exit code of a Bookend program, and no known Xid", n))
		}
	} else if e = explainReason(e, what, cfg); e.Reason == nil {
		return notFound(fmt.Sprintf("no such finding, exit code or drain reason: %q; docs/findings.md has all "+
			"findings", what))
	}
	return a.write(func() any { return e }, func(w io.Writer) { e.Text(w) })
}

// xidNumber reads "xid79" and "Xid 79".
func xidNumber(what string) (int, bool) {
	digits, is := strings.CutPrefix(strings.ToLower(strings.TrimSpace(what)), "xid")
	n, err := strconv.Atoi(strings.TrimSpace(digits))
	return n, is && err == nil
}

// explainExit says what a number means as the exit code of a hook's, and of this program's.
func explainExit(e answer.Explain, n int, cfg config.Config) answer.Explain {
	if m, ok := answer.HookExit(n); ok {
		e.Exits = append(e.Exits, m)
		for _, c := range m.Codes {
			e.Codes = append(e.Codes, answer.NewExplanation(c, cfg))
		}
	}
	for _, x := range exits {
		if x.code == n {
			e.Exits = append(e.Exits, answer.NewExit(n, "bookend", x.means))
		}
	}
	return e
}
