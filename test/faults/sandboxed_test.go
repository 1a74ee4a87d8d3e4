package faults

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// A sandbox around slurmd takes rights from its hooks too. Whatever it takes, the node of a clean job is not drained, each
// hook ends by itself, and what could not be done is said: the table of deploy/systemd.md.
func TestSandboxNeverDrains(t *testing.T) {
	for flags, want := range map[string][]string{
		"--no-new-privs": nil,
		"--bounding-set=-sys_ptrace,-syslog,-kill,-fowner": nil,
		"--bounding-set=-dac_override,-dac_read_search":    nil,
		"--bounding-set=-setuid":                           {"BKD-OUTPUT"},
		"--bounding-set=-setgid":                           {"BKD-OUTPUT"},
		"--bounding-set=-setpcap":                          {"BKD-OUTPUT"},
		"--bounding-set=-chown":                            {"BKD-ST-WRITE"},
		"--bounding-set=-all":                              {"BKD-OUTPUT", "BKD-ST-WRITE"},
	} {
		t.Run(flags, func(t *testing.T) {
			n := newNode(t, "enforce")
			output := n.in("job.out")
			must(t, os.WriteFile(output, nil, 0o600))
			must(t, os.Chown(output, user, user))
			for _, h := range hooks {
				h.program = n.script("sandbox-"+h.program, "exec /usr/bin/setpriv "+flags+" "+program(h.program))
				if o := n.hook(h, newJob().with("SLURM_JOB_STDOUT", output)); o.exit != 0 {
					t.Errorf("%s", o)
				}
			}
			if got := saidCodes(n.log()); !slices.Equal(got, want) {
				t.Errorf("said %v, want %v:\n%s", got, want, n.log())
			}
			text, err := os.ReadFile(output)
			must(t, err)
			if refused := slices.Contains(want, "BKD-OUTPUT"); refused == strings.Contains(string(text), "| bookend: ") {
				t.Errorf("the job's output: %q", text)
			}
		})
	}
}

// saidCodes are the codes of findings in a log, once each.
func saidCodes(log string) []string {
	var codes []string
	for word := range strings.FieldsFuncSeq(log, func(c rune) bool { return strings.ContainsRune(" \":\n", c) }) {
		if strings.HasPrefix(word, "BKD-") {
			codes = append(codes, word)
		}
	}
	slices.Sort(codes)
	return slices.Compact(codes)
}
