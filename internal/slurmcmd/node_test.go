package slurmcmd

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"bookend/internal/drain"
)

// node is what Slurm 22.05 says of one, shortened; further lines stand behind the reason.
func node(state, reason string, further ...string) string {
	lines := []string{
		"NodeName=n1 Arch=x86_64 CoresPerSocket=8 ", "   CPUAlloc=0 CPUEfctv=8 CPUTot=8 CPULoad=0.85",
		"   Gres=gpu:4", "   OS=Linux 6.1 State=of the art",
		"   State=" + state + " ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A", "   Partitions=main ",
		"   BootTime=2026-11-21T06:29:01 SlurmdStartTime=2026-11-21T06:29:01",
	}
	if reason != "" {
		lines = append(lines, "   Reason="+reason)
	}
	return strings.Join(append(lines, further...), "\n") + "\n\n"
}

var seven = time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)

func TestParseNode(t *testing.T) {
	const at = " [root@2026-11-21T07:00:00]"
	idle := []string{"IDLE", "DRAIN"}
	tests := map[string]struct {
		text string
		want drain.Node
	}{
		"idle": {node("IDLE", ""), drain.Node{Flags: []string{"IDLE"}}},
		"drained": {node("IDLE+DRAIN", "Epilog error"+at),
			drain.Node{Flags: idle, Reason: "Epilog error", By: "root", At: seven}},
		"brackets": {node("IDLE+DRAIN", "disk [sda] slow"+at),
			drain.Node{Flags: idle, Reason: "disk [sda] slow", By: "root", At: seven}},
		"a forged time": {node("IDLE+DRAIN", "Epilog error [root@2026-11-21T06:00:00]"+at),
			drain.Node{Flags: idle, Reason: "Epilog error [root@2026-11-21T06:00:00]", By: "root", At: seven}},
		"a time in another form": {node("IDLE+DRAIN", "Epilog error [root@Nov 21]"),
			drain.Node{Flags: idle, Reason: "Epilog error [root@Nov 21]"}},
		"two lines": {node("IDLE+DRAIN", "Epilog error"+at, "          disk"),
			drain.Node{Flags: idle, Reason: "Epilog error\ndisk", By: "root", At: seven}},
		"a comment before": {strings.Replace(node("IDLE+DRAIN", "disk"+at), "   State=",
			"   Comment=a Reason=Epilog error [root@2026-11-21T06:00:00]\n   State=", 1), drain.Node{Flags: idle,
			Reason: "disk", By: "root", At: seven}},
		"a comment and no reason": {node("IDLE", "", "   Extra=x Reason=Epilog error"+at),
			drain.Node{Flags: []string{"IDLE"}}},
		"down and silent": {node("DOWN*+DRAIN", "Not responding"+at),
			drain.Node{Flags: []string{"DOWN", "DRAIN"}, Silent: true, Reason: "Not responding", By: "root",
				At: seven}},
		"somebody with odd a name": {node("IDLE+DRAIN", "x [a b@c@2026-11-21T07:00:00]"),
			drain.Node{Flags: idle, Reason: "x [a b@c@2026-11-21T07:00:00]"}},
	}
	for name, tt := range tests {
		got, err := parseNode(tt.text, "n1")
		if err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %+v (%v), want %+v", name, got, err, tt.want)
		}
	}
}

// What could mean two things is no answer.
func TestParseNodeRefuses(t *testing.T) {
	drained := node("IDLE+DRAIN", "disk [root@2026-11-21T07:00:00]")
	for name, tt := range map[string]struct {
		text string
		want error
	}{
		"nothing":                     {"", errNode},
		"another node":                {strings.Replace(drained, "=n1 ", "=n11 ", 1), errNode},
		"no state":                    {strings.Replace(drained, "   State=", "   Status=", 1), errState},
		"a comment of lines, a state": {node("IDLE", "", "   Comment=x", "   State=IDLE+DRAIN"), errState},
		"a comment of lines, a reason": {node("IDLE+DRAIN", "disk", "   Comment=x",
			"   Reason=Epilog error [root@2026-11-21T07:00:00]"), errReason},
		"one line": {strings.ReplaceAll(drained, "\n   ", " "), errState},
	} {
		if got, err := parseNode(tt.text, "n1"); !errors.Is(err, tt.want) {
			t.Errorf("%s: %+v, %v; want %v", name, got, err, tt.want)
		}
	}
}
