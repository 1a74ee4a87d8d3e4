package faults

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"bookend/test/must"
)

// Where slurm.conf enables expedited requeue, an epilog fails for a fault of the GPU alone: what drains for a leftover is
// scontrol, or nothing if that fails. A configuration that cannot be read counts as such from Slurm 25.11 on, whose hooks
// are given the id of the run. Everywhere else the exit code drains, and what is found and on record is the same.
func TestExpeditedRequeue(t *testing.T) {
	const on, off = "SlurmctldParameters = enable_configless,Enable_Expedited_Requeue\n", "SlurmctldParameters=a\n"
	const unread = "Include gone.conf\n"
	left := func(n *node) { n.leftover() }
	dead := func(n *node) { n.silent(); n.xid(0, 79, offTheBus) }
	each(t, "enforce", map[string]struct {
		conf, sluid string
		during      func(*node)
		refuses     bool // scontrol
		exit        int
		finds, told string
	}{
		"a leftover":             {conf: on, during: left, finds: "BKD-ORPHAN", told: "Reason=BKD-ORPHAN gpu=0"},
		"scontrol fails":         {conf: on, during: left, refuses: true, finds: "BKD-ORPHAN"},
		"a fault":                {conf: on, during: dead, exit: 29, finds: "BKD-XIDFATAL"},
		"both":                   {conf: on, during: func(n *node) { left(n); dead(n) }, exit: 10, finds: "BKD-ORPHAN BKD-XIDFATAL"},
		"nothing":                {conf: on, during: func(*node) {}},
		"not enabled":            {conf: off, sluid: "sCHNM7Y8WBK900", during: left, exit: 10, finds: "BKD-ORPHAN"},
		"not read, before 25.11": {conf: unread, during: left, exit: 10, finds: "BKD-ORPHAN"},
		"not read, since 25.11": {conf: unread, sluid: "sCHNM7Y8WBK900", during: left, finds: "BKD-ORPHAN",
			told: "Reason=BKD-ORPHAN gpu=0"},
	}, func(n *node, tt struct {
		conf, sluid string
		during      func(*node)
		refuses     bool
		exit        int
		finds, told string
	}) {
		n.put("slurm.d/slurm.conf", tt.conf+n.get(n.in("slurm.d/slurm.conf")), 0o644)
		n.scontrol(fmt.Sprintf("f=%s\n"+`[ $1 = show ] || { %s; echo "$*" >$f; exit; }
state=IDLE+COMPLETING; [ -e $f ] && state=$state+DRAIN
printf 'NodeName=%s \n   State=%%s \n' $state`, n.in("told"), map[bool]string{true: "exit 1", false: ":"}[tt.refuses], nodeName))
		j := numbered(100)
		if tt.sluid != "" {
			j = j.With("SLURM_JOB_SLUID", tt.sluid)
		}
		n.exits(0, prolog, j)
		tt.during(n)
		n.exits(tt.exit, epilog, j)
		e := n.endOf(100)
		must.Be(n, "found", codes(e.Findings), tt.finds)
		drains := tt.finds != ""
		must.Not(n, (e.Verdict.Exit != 0) != drains || e.Verdict.ByScontrol != (drains && tt.exit == 0), "on record: %+v", e.Verdict)
		told, _ := os.ReadFile(n.in("told"))
		must.Not(n, !strings.Contains(string(told), tt.told) || tt.told == "" && len(told) > 0, "scontrol was told %q", told)
		n.says("program=bookend-epilog", fmt.Sprintf("exit=%d", tt.exit))
		if tt.refuses {
			n.says("BKD-REASON", "the node was not drained: drain node")
		}
	})
}
