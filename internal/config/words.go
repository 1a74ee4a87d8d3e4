package config

import (
	"fmt"
	"strings"

	"bookend/internal/catalog"
	"bookend/internal/slurm"
)

// PolicyOf describes the policy's action for a finding in each phase, in partitions that have no policy of their own.
func (c Config) PolicyOf(code catalog.Code) string {
	return fmt.Sprintf("prolog %s, epilog %s, health check %s", c.Action(slurm.Prolog, "", code),
		c.Action(slurm.Epilog, "", code), c.Action(slurm.HealthCheck, "", code))
}

// DrainsFor describes when a hook drains for a finding with a policy, as PolicyOf describes it.
func DrainsFor(code catalog.Code, policy string) string {
	entry, _ := catalog.Lookup(code)
	switch why := entry.NeverDrains(); {
	case entry.Scope != catalog.Own && why != "":
		return "never: " + why
	case code == catalog.Output:
		return "never: it is about a file in its user's hands"
	case strings.Contains(policy, string(Repeat)):
		return "in mode enforce, if the last job on the GPU or the node ended with the same before this one began"
	}
	return "in mode enforce, if the policy says drain and the evidence is certain"
}

// Explain describes a finding and what the configuration does with it, for admins.
func (c Config) Explain(code catalog.Code) string {
	entry, _ := catalog.Lookup(code)
	policy, shipped := c.PolicyOf(code), Default().PolicyOf(code)
	if policy != shipped {
		policy += " (default: " + shipped + ")"
	}
	drains, exit := DrainsFor(code, policy), "none of its own"
	if !strings.HasPrefix(drains, "never") {
		exit = fmt.Sprintf("%d if it drains", catalog.Exit(code))
	}
	return catalog.Paragraph(string(code), entry.Title,
		[2]string{"means", entry.Meaning}, [2]string{"do", entry.Remedy}, [2]string{"policy", policy},
		[2]string{"drains", drains}, [2]string{"exit", exit},
		[2]string{"more", "docs/findings.md#" + strings.ToLower(string(code))})
}

// Suggest returns the word that a misspelt one is most like, in a list: a finding, a reason of Slurm's, or one of more.
func Suggest(what string, more ...string) []string {
	for _, e := range catalog.All() {
		more = append(more, string(e.Code), strings.TrimPrefix(string(e.Code), "BKD-"))
	}
	what = strings.Join(strings.Fields(what), " ")
	like := Closest(what[:min(len(what), 40)], append(more, catalog.SlurmForms()...))
	if code, short := catalog.Parse(like); short {
		like = string(code)
	}
	return []string{like}
}

// Closest returns a known name that a misspelt one is most like, or nothing if none is.
func Closest(name string, known []string) string {
	for edits := range min((len(name)+2)/3, 3) + 1 {
		for _, k := range known {
			if within(edits, strings.ToLower(name), strings.ToLower(k)) {
				return k
			}
		}
	}
	return ""
}

// within reports whether so many bytes inserted, removed or replaced, or fewer, make one text of another.
func within(edits int, a, b string) bool {
	switch {
	case a == b || a == "" || b == "":
		return a == b || len(a)+len(b) <= edits
	case a[0] == b[0]:
		return within(edits, a[1:], b[1:])
	}
	return edits > 0 && (within(edits-1, a[1:], b[1:]) || within(edits-1, a[1:], b) || within(edits-1, a, b[1:]))
}

// Sharing is what the admin says of GPUs that are given out in parts, nil if Slurm's files are to say it.
func (s Slurm) Sharing() *slurm.Sharing {
	switch s.Shards {
	case ShardsYes:
		return &slurm.Sharing{Shared: slurm.Yes, Why: "GPUs are given out in shards here (slurm.shards)"}
	case ShardsNo:
		return &slurm.Sharing{Shared: slurm.No}
	}
	return nil
}

// DidYouMean ends an error with at most three words that a misspelt one is like; it is empty without any.
func DidYouMean(near []string) string {
	words := strings.Join(near[:min(len(near), 3)], " or ")
	if words == "" {
		return ""
	}
	return "; did you mean " + strings.ReplaceAll(words, "\u00a0", " ") + "?"
}
