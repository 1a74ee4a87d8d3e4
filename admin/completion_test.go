package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A real bash completes, with the script alone and as the package bash-completion would have it.
func TestCompletionInBash(t *testing.T) {
	bash, err := exec.LookPath("bash")
	must(t, err)
	n := busy(t)
	program := standIn(t, n.dir)
	script := bookend(0, n.config, "completion", "bash")
	if script.exit != exitOK {
		t.Fatalf("%+v", script)
	}
	write(t, filepath.Join(n.dir, "completion.bash"), script.out, 0o644)
	for line, want := range map[string]string{
		"bookend sta": "status", "bookend show 4": "",
		"bookend baseline res": "reset", "bookend completion z": "zsh",
	} {
		run := exec.Command(bash, "--norc", "--noprofile", "-c", fmt.Sprintf(`set -u
PATH=%s:/usr/bin:/bin
source %s/completion.bash
# as readline breaks a line: at blanks, and at = and :
line=%q
read -ra COMP_WORDS <<<"${line//=/ = }"
COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMP_LINE=$line COMP_POINT=${#line} COMP_TYPE=9 COMP_KEY=9
compopt() { :; }
complete -p bookend >/dev/null || exit 7
__start_bookend
for word in "${COMPREPLY[@]}"; do echo "${word%%%% *}"; done`, filepath.Dir(program), n.dir, line))
		run.Env = []string{"BOOKEND_CONFIG=" + n.config, "HOME=/nonexistent", "TERM=dumb", "COLUMNS=80"}
		out, err := run.CombinedOutput()
		if got := strings.Join(strings.Fields(string(out)), " "); err != nil || got != want {
			t.Errorf("%q: %v, %q, want %q", line, err, got, want)
		}
	}
}
