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
