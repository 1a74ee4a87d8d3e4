package main

import (
	"fmt"
	"regexp"
	"strings"

	"bookend/test/gpu/runrecord"
)

// storyOf are the scenarios of the demonstration: what a user and an admin meet.
const storyOf = "cuda-clean,oom-self,oom-pool,orphan-observe,stray,orphan-enforce,check-resume"

type typed struct{ who, command, output string }

// screens are what users and admins see after a run: each job's own output, what Bookend has on record of it, and what
// Slurm says of the node.
func (r *run) screens() (all []typed) {
	for _, j := range r.rec.Jobs {
		user, _, _ := strings.Cut(j.User, "(")
		all = append(all, typed{user + "$", fmt.Sprintf("cat slurm-%d.out", j.ID), j.Output})
		// its complaint is worth reading, too
		show, _ := r.site.Bookend(r.node, "show", "--node", r.node, fmt.Sprint(j.ID))
		all = append(all, typed{"root#", fmt.Sprintf("bookend show %d", j.ID), show})
	}
	if cmd, err := r.site.Command("", "sinfo", "-R", "-o", "%E %N"); err == nil {
		out, _ := cmd.CombinedOutput()
		all = append(all, typed{"root#", "sinfo -R -o '%E %N'", string(out)})
	}
	return all
}

// retold is a run as the demonstration tells it: what is true, what everybody then sees, and each check of it.
func retold(rec runrecord.Run, screens []typed) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n\n%s (%s mode)\n%s\n%s\n", rec.Title, rec.Mode, strings.Repeat("=", len(rec.Title)),
		rec.Truth)
	for _, s := range screens {
		fmt.Fprintf(&b, "\n  %s %s\n", s.who, s.command)
		for line := range strings.Lines(s.output) {
			b.WriteString(strings.TrimRight("    "+line, " \n") + "\n")
		}
	}
	b.WriteByte('\n')
	for _, c := range rec.Checks {
		if c.Right {
			fmt.Fprintf(&b, "  ok    %s: %s\n", c.What, c.Got)
		} else {
			fmt.Fprintf(&b, "  WRONG %s: want %q, got %q\n", c.What, c.Want, c.Got)
		}
	}
	return b.String()
}

// renamed calls the accounts that run the demonstration's jobs alice and bob: theirs are a system's, such as games.
func renamed(text string, accounts []string) string {
	for i, name := range []string{"alice", "bob"} {
		if i < len(accounts) {
			text = regexp.MustCompile(`\b`+regexp.QuoteMeta(accounts[i])+`\b`).ReplaceAllString(text, name)
		}
	}
	return text
}
