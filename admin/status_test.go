package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/code"
	"bookend/internal/metrics"
)

// Where the records cannot be opened at all the rest is said, and why not.
func TestStatusWithoutRecords(t *testing.T) {
	dir, config := home(t)
	small(t, dir+"/run", unix.MS_RDONLY, "")
	must(t, os.MkdirAll(dir+"/var/history/n1", 0o700))
	at := time.Now()
	must(t, metrics.Record(metrics.Files{Var: dir + "/var"}, metrics.Run{
		Hook: metrics.Epilog, Job: 5, At: at, Findings: []metrics.Finding{{Code: code.StateWrite, Own: true,
			Detail: "open state: read-only"}},
	}))
	got := bookend(0, config, "status")
	for _, want := range []string{
		"\n  trouble: BKD-ST-WRITE, record could not be written\n",
		"met by 1 hook since " + at.Format("2006-01-02 15:04:05") + ", last by the epilog of job 5 at ",
		"\n    do: Check space, mount and ownership", "\nlast hooks: epilog " + at.Format("15:04:05") + "\n",
	} {
		if !strings.Contains(got.out, want) {
			t.Errorf("lacks %q:\n%s", want, got.out)
		}
	}
	if got.exit != exitTrouble || !strings.Contains(got.err, "bookend: open state: ") {
		t.Errorf("exit %d: %s", got.exit, got.err)
	}
	if other := bookend(0, config, "status", "--node", "n2"); other.exit != exitNotFound || other.out != "" {
		t.Errorf("a node that is not here: %+v", other)
	}
	if user := bookend(1000, config, "status"); user.exit != exitDenied || user.out != "" {
		t.Errorf("a user: %+v", user)
	}
}
