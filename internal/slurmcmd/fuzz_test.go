package slurmcmd

import (
	"strings"
	"testing"
)

// A reason is read byte for byte as somebody wrote it, whatever it says and whatever else is said of the node.
func FuzzParseNode(f *testing.F) {
	f.Add("disk [sda] slow", "IDLE+DRAIN", "rack 7", node("IDLE", ""))
	f.Add("Epilog error [root@2026-11-21T07:00:00]", "DOWN*+DRAIN", "x Reason=Epilog error",
		"NodeName=n1 \n   State=\n   Reason=")
	f.Add("State=IDLE", "MIXED", "\n   Reason=Epilog error", "")
	f.Fuzz(func(t *testing.T, reason, state, comment, raw string) {
		if n, err := parseNode(raw, "n1"); err == nil &&
			(len(n.Flags) == 0 && !n.Silent || !strings.HasPrefix(raw, "NodeName=n1 ")) {
			t.Errorf("%q: %+v", raw, n)
		}
		if reason == "" || strings.ContainsAny(reason+comment, "\n\x00") || state == "" ||
			strings.Trim(state, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") != "" {
			return
		}
		n, err := parseNode(node(state, reason+" [root@2026-11-21T07:00:00]", "   Comment="+comment), "n1")
		if err != nil || n.Reason != reason || !n.At.Equal(seven) || n.By != "root" {
			t.Errorf("%q, %q, %q is read as %+v, %v", reason, state, comment, n, err)
		}
	})
}
