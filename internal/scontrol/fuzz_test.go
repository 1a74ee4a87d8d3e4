package scontrol

import (
	"strings"
	"testing"
)

// A reason is read as somebody wrote it, and nobody else's is ever taken for ours or written over.
func FuzzParseNode(f *testing.F) {
	for _, line := range []string{idle, drained, mine, bare} {
		f.Add(line, "disk [sda] slow", "IDLE+DRAIN")
	}
	f.Add("State=", "BKD-ORPHAN GPU 0", "IDLE")
	f.Add("a State=DOWN*", "State=IDLE Reason=BKD-X", "MIXED")
	f.Add(" Reason=", "none", "ALLOCATED")
	f.Fuzz(func(t *testing.T, line, reason, state string) {
		gotState, gotReason := parseNode(line)
		if strings.ContainsAny(gotState, " \n") || !strings.Contains(line, gotState) || !strings.Contains(line, gotReason) {
			t.Errorf("%q: state %q, reason %q", line, gotState, gotReason)
		}
		if ours(gotState, gotReason) && foreign(gotState, gotReason) {
			t.Errorf("%q: state %q, reason %q is taken for ours", line, gotState, gotReason)
		}
		if strings.ContainsAny(reason, "\n\x00") || strings.TrimSpace(state) != state || len(strings.Fields(state)) != 1 {
			return
		}
		whole := "NodeName=n1 Arch=x86_64 State=" + state + " ThreadsPerCore=1 Partitions=main Reason=" + reason + " [root@2026-11-21T07:00:00]\n"
		gotState, gotReason = parseNode(whole)
		if gotState != state || gotReason != strings.TrimSpace(reason) {
			t.Errorf("state %q, reason %q are read as %q, %q", state, reason, gotState, gotReason)
		}
		if clean := strings.TrimSpace(reason); clean != "" && clean != "none" && ours(gotState, gotReason) != strings.HasPrefix(clean, Prefix) {
			t.Errorf("reason %q: ours %v", reason, ours(gotState, gotReason))
		}
	})
}

// foreign: somebody else has a say in this node.
func foreign(state, reason string) bool {
	if reason == "" || reason == "none" {
		return state == "" || strings.Contains(state, "DRAIN") || strings.Contains(state, "DOWN") || strings.Contains(state, "FAIL") || strings.Contains(state, "MAINT")
	}
	return !strings.HasPrefix(reason, Prefix)
}
