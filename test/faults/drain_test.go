package faults

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"bookend/internal/drain"
)

const (
	lostReason  = "BKD-LOST gpu=0 job=100 prolog; see: bookend show 100"
	wroteReason = "update NodeName=" + nodeName + " State=DRAIN Reason=" + lostReason
)

// controller stands for scontrol with slurmctld behind it.
type controller struct {
	*node
}

// newController makes a node whose Slurm is a script. It writes down what it is asked; what it says of the node is the
// file slurm/node, after which comes slurm/next, where there is one. slurm/first and slurm/then are run before its
// answers.
func newController(t *testing.T, extra string) controller {
	t.Helper()
	n := newNode(t, "enforce")
	must(t, os.Mkdir(n.in("slurm"), 0o755))
	scontrol := n.script("slurm/scontrol", "cd "+n.in("slurm")+`
echo "$*" >>asked
case "$*" in
show*) if [ -e shown ]; then [ ! -e then ] || . ./then; else [ ! -e first ] || . ./first; fi
	: >shown
	/bin/cat node; [ ! -e next ] || /bin/mv next node;;
esac`)
	n.configure(func(c *conf) { c.scontrol, c.extra = scontrol, extra })
	return controller{n}
}

func (c controller) put(name, text string) { c.Helper(); c.node.put("slurm/"+name, text, 0o755) }

// drained lets Slurm say of the node that it is drained, since now; state, that it is not.
func (c controller) drained(name, reason string) {
	c.Helper()
	stamp := time.Now().UTC().Format("2006-01-02T15:04:05")
	c.state(name, fmt.Sprintf("IDLE+DRAIN ThreadsPerCore=1\n   Reason=%s [root@%s]", reason, stamp))
}

func (c controller) state(name, state string) {
	c.Helper()
	c.put(name, "NodeName="+nodeName+" Arch=x86_64 \n   State="+state+"\n\n")
}

// asked are the calls of scontrol since the last time.
func (c controller) asked() (all []string) {
	c.Helper()
	for line := range strings.Lines(c.get(c.in("slurm/asked"))) {
		all = append(all, strings.TrimSuffix(line, "\n"))
	}
	os.Remove(c.in("slurm/asked"))
	os.Remove(c.in("slurm/shown"))
	return all
}

// updates requires those of them that change something.
func (c controller) updates(want ...string) {
	c.Helper()
	if got := lines(strings.Join(c.asked(), "\n"), "update"); fmt.Sprint(got) != fmt.Sprint(want) {
		c.Errorf("asked for %q, want %q\n%s", got, want, c.log())
	}
}

// failsAtStart lets a prolog drain the node for a lost GPU, as which Slurm then knows it.
func (c controller) failsAtStart() {
	c.Helper()
	c.set("on.any.gpu0", "rc 15")
	c.exits(20, prolog, newJob())
	c.set("on.any.gpu0", "")
	c.drained("node", drain.PrologError)
}

// remembers requires whether a written reason is in the node's memory, and how many failures are settled.
func (c controller) remembers(written bool, settled int) {
	c.Helper()
	m, err := c.store().Drain()
	must(c, err)
	if (m.Written != nil) != written || len(m.Settled) != settled {
		c.Errorf("remembered is %+v, want written %v, settled %d", m, written, settled)
	}
}

// asksNoMore: a check that could not keep what it saw, since the machine was too busy for a lock, leaves it to the
// next.
func (c controller) asksNoMore() {
	c.Helper()
	var asked []string
	for range 3 {
		c.check()
		if asked = c.asked(); len(asked) == 0 {
			return
		}
	}
	c.Errorf("with nothing left to do the check asked %q\n%s", asked, c.log())
}

// Slurm is asked only while there is something to settle: not once the reason stands, or is an admin's, or is nobody's
// task. It is asked by the SLURM_CONF of the hook that failed: the health check has none.
func TestAsksSlurmNothing(t *testing.T) {
	t.Parallel()
	c := newController(t, "")
	c.put("first", `echo "$SLURM_CONF" >conf`+"\n")
	c.job(99)
	c.check()
	if asked := c.asked(); len(asked) > 0 {
		t.Errorf("a clean node's check asked %q", asked)
	}
	c.failsAtStart()
	c.check()
	if asked := c.asked(); len(asked) != 3 || asked[2] != wroteReason {
		t.Errorf("for the reason it asked %q", asked)
	}
	want := newJob()["SLURM_CONF"]
	if conf := c.get(c.in("slurm/conf")); conf != want+"\n" || c.runs(100)[0].Start.SlurmConf != want {
		t.Errorf("SLURM_CONF was %q", conf)
	}
	c.drained("node", lostReason)
	c.check()
	if asked := c.asked(); len(asked) != 1 {
		t.Errorf("to see that it was done it asked %q", asked)
	}
	c.asksNoMore()
}

// A controller that does not answer, or answers something else, is told; what is to be done is done by the next check.
func TestSlurmDoesNotAnswer(t *testing.T) {
	for name, answer := range map[string]string{
		"first":  "exec /bin/sleep 1000\n",
		"then":   "exec /bin/cat /dev/zero\n",
		"first ": "echo Incompatible versions of client and server code >&2; exit 1\n",
		"then ":  "echo NodeName=n2; exit 0\n",
	} {
		t.Run(answer, func(t *testing.T) {
			t.Parallel()
			c := newController(t, "")
			c.failsAtStart()
			c.put(strings.TrimSpace(name), answer)
			c.check()
			c.updates()
			c.saysTimes(1, "BKD-REASON", "read node")
			must(t, os.Remove(c.in("slurm/"+strings.TrimSpace(name))))
			c.check()
			c.updates(wroteReason)
		})
	}
}

// A health check that is killed between what it remembers and what it does leaves it to the next.
func TestCheckKilledBetween(t *testing.T) {
	t.Parallel()
	c := newController(t, "")
	c.failsAtStart()
	c.put("then", ": >here; exec /bin/sleep 1000\n")
	p := c.start(healthcheck, bySlurm)
	await(t, "the second look", func() bool { _, err := os.Stat(c.in("slurm/here")); return err == nil })
	p.signal(syscall.SIGKILL)
	p.wait()
	c.remembers(true, 0)
	must(t, os.Remove(c.in("slurm/then")))
	c.asked()
	c.check()
	c.updates(wroteReason)
	c.remembers(true, 0) // the check that sees it stand settles the exit
}
