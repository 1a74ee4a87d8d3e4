package faults

import (
	"crypto/sha256"
	"fmt"
	"testing"

	"bookend/internal/code"
)

// A process in a container may be any live job's, whatever user it runs as: without one it is a stray, and drains.
func TestContainerOfAnotherUser(t *testing.T) {
	for name, live := range map[string]bool{"beside a live job": true, "with no other job": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "enforce")
			n.clean(prolog, newJob())
			if live {
				n.clean(prolog, bystanding())
			}
			p := n.holder(1500, nil, "--mib", "2048")
			n.move(p, fmt.Sprintf("docker-%x.scope", sha256.Sum256([]byte(n.dir))), "")
			o := n.hook(epilog, newJob())
			found := n.findings(epilog)
			if len(found) != 1 || found[0].Code != code.Stray || (len(found[0].Doubts) > 0) != live || (o.exit == 13) == live || o.exit != 0 && live {
				t.Errorf("%v %+v", o, found)
			}
		})
	}
}

// The tasks of a heterogeneous job have its leader's id in their environment, whose component they are of.
func TestComponentsLeftover(t *testing.T) {
	for name, tt := range map[string]struct {
		leader string
		exit   int
	}{"its leader's": {"99", 10}, "another job's": {"98", 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "enforce")
			j := newJob().with("SLURM_HET_JOB_ID", tt.leader, "SLURM_PACK_JOB_ID", tt.leader)
			n.clean(prolog, j)
			n.holder(user, []string{"SLURM_JOB_ID=99"}, "--mib", "2048")
			o := n.hook(epilog, j)
			found := n.findings(epilog)
			if o.exit != tt.exit || len(found) != 1 || found[0].Code != code.Orphan || (len(found[0].Doubts) == 0) != (tt.exit != 0) {
				t.Errorf("%v %+v", o, found)
			}
		})
	}
}
