package faults

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bookend/internal/code"
	"bookend/internal/ledger"
)

// wallOf gives the job's start on record the time of another clock: the machine's was set anew since.
func (n *node) wallOf(wall time.Time) {
	n.Helper()
	path := n.ownRecord()
	text, err := os.ReadFile(path)
	must(n, err)
	var r ledger.Run
	must(n, json.Unmarshal(text, &r))
	r.Start.Wall = wall
	if strings.HasPrefix(r.Key, "w") {
		r.Key = fmt.Sprintf("w%d", max(0, wall.UnixNano()))
	}
	text, err = json.Marshal(r)
	must(n, err)
	must(n, os.Remove(path))
	must(n, os.WriteFile(filepath.Join(filepath.Dir(path), r.Key+".json"), text, 0o600))
}

// The clock on the wall is set forward or back while a job runs. Nothing is judged by it: what the job left is found and
// is its own, and what it did not leave is not; no run is lost, and the words for people name no time that cannot be.
func TestWallClockSteps(t *testing.T) {
	clocks := map[string]time.Time{
		"set back by years": time.Now().AddDate(10, 0, 0), "set forward by years": time.Now().AddDate(-10, 0, 0),
		"was in 1970": time.Unix(3, 0), "set back by seconds": time.Now().Add(30 * time.Second),
	}
	for version, identity := range versions {
		for name, wall := range clocks {
			for _, leaves := range []bool{false, true} {
				t.Run(fmt.Sprint(version, " ", name, " ", leaves), func(t *testing.T) {
					t.Parallel()
					n := newNode(t, "enforce")
					j := newJob().with(identity[0]...)
					n.clean(prolog, j)
					n.wallOf(wall)
					exit := 0
					if leaves {
						n.leftover()
						exit = 10
					}
					if o := n.hook(epilog, j); o.exit != exit {
						t.Errorf("%v\n%s", o, n.log())
					}
					r := n.run(100)
					if r.Start == nil || len(r.Ends) != 1 || has(r.Ends[0].Findings, code.Orphan) != leaves || len(r.Ends[0].Findings) > 1 {
						t.Errorf("%+v", r)
					}
					if shown, exit := n.bookend("show", "100"); exit != 0 || strings.Contains(shown, "took -") {
						t.Errorf("exit %d\n%s", exit, shown)
					}
				})
			}
		}
	}
}

// A machine that was suspended while the job ran has been up for longer than it worked: CLOCK_BOOTTIME goes on, and the
// start times of processes with it.
func TestBootClockSteps(t *testing.T) {
	for name, tt := range map[string]struct{ atStart, atEnd int }{
		"forward": {0, 8 * 3600}, "back, as after a restored checkpoint": {8 * 3600, 0},
	} {
		for _, leaves := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " ", leaves), func(t *testing.T) {
				t.Parallel()
				n := newNode(t, "enforce")
				n.boots("only")
				n.clean(n.later(prolog, tt.atStart), newJob())
				if leaves {
					n.leftover()
				}
				o := n.hook(n.later(epilog, tt.atEnd), newJob())
				r := n.latest()
				if r.Start == nil || len(r.Ends) != 1 {
					t.Fatalf("%+v", r)
				}
				found := r.Ends[0].Findings
				switch {
				case !leaves && (o.exit != 0 || len(found) != 0):
					t.Errorf("%v %+v", o, found)
				case leaves && tt.atEnd > tt.atStart && (o.exit != 10 || !has(found, code.Orphan)):
					t.Errorf("%v %+v\n%s", o, found, n.log())
				case leaves && tt.atEnd < tt.atStart && (len(found) == 0 || found[0].Owner != nil && found[0].Owner.Job != 100):
					t.Errorf("%v %+v", o, found)
				}
			})
		}
	}
}
