package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"bookend/internal/drain"
	"bookend/internal/slurm"
	"bookend/internal/state"
)

const lostReason = "BKD-LOST gpu=0 job=100 prolog; see: bookend show 100"

// controller stands for scontrol with slurmctld behind it.
type controller struct {
	*node
}

// newController makes a node whose Slurm is a script. It writes down what it is asked; what it says of the node is the file
// slurm/node, after which comes slurm/next, where there is one. slurm/first and slurm/then are run before its answers.
func newController(t *testing.T, extra string) controller {
	n := newNode(t, "enforce")
	c := controller{n}
	must(t, os.Mkdir(n.in("slurm"), 0o755))
	script := `#!/bin/sh
cd ` + n.in("slurm") + `
echo "$*" >>asked
case "$*" in
show*) if [ -e shown ]; then [ ! -e then ] || . ./then; else [ ! -e first ] || . ./first; fi
	: >shown
	/bin/cat node; [ ! -e next ] || /bin/mv next node;;
esac
`
	must(t, os.WriteFile(n.in("slurm/scontrol"), []byte(script), 0o755))
	n.configure(func(c *conf) { c.scontrol, c.extra = n.in("slurm/scontrol"), extra })
	return c
}

func (c controller) put(name, text string) {
	c.Helper()
	must(c, os.WriteFile(c.in("slurm/"+name), []byte(text), 0o755))
}

// says lets Slurm say of the node that it is drained, since now.
func (c controller) says(name, reason string) {
	c.Helper()
	stamp := time.Now().UTC().Format("2006-01-02T15:04:05")
	c.put(name, fmt.Sprintf("NodeName=%s Arch=x86_64 \n   State=IDLE+DRAIN ThreadsPerCore=1\n   Reason=%s [root@%s]\n\n", nodeName, reason, stamp))
}

// asked are the calls of scontrol since the last time.
func (c controller) asked() []string {
	c.Helper()
	text, err := os.ReadFile(c.in("slurm/asked"))
	if err != nil && !os.IsNotExist(err) {
		c.Fatal(err)
	}
	os.Remove(c.in("slurm/asked"))
	os.Remove(c.in("slurm/shown"))
	return strings.Split(string(text), "\n")[:strings.Count(string(text), "\n")]
}

// updates are those of them that change something.
func (c controller) updates() []string { return lines(strings.Join(c.asked(), "\n"), "update") }

// failsAtStart lets a prolog drain the node for a lost card, as which Slurm then knows it.
func (c controller) failsAtStart() {
	c.Helper()
	must(c, c.world.Set("on.any.gpu0", "rc 15"))
	if o := c.hook(prolog, newJob()); o.exit != 20 {
		c.Fatalf("prolog: %+v\n%s", o, c.log())
	}
	must(c, c.world.Set("on.any.gpu0", ""))
	c.says("node", drain.PrologError)
}

func (c controller) memory() drain.Memory {
	c.Helper()
	store, err := state.Open(c.conf.run, nodeName)
	must(c, err)
	m, err := store.Drain()
	must(c, err)
	return m
}

const wroteReason = "update NodeName=" + nodeName + " State=DRAIN Reason=" + lostReason

// Slurm is asked only while there is something to settle.
func TestAsksSlurmNothing(t *testing.T) {
	t.Parallel()
	c := newController(t, "")
	c.clean(prolog, newJob())
	c.clean(epilog, newJob())
	c.check()
	if asked := c.asked(); len(asked) > 0 {
		t.Errorf("a clean node's check asked %q", asked)
	}
	c.failsAtStart()
	c.check()
	if asked := c.asked(); len(asked) != 3 || asked[2] != wroteReason {
		t.Errorf("for the reason it asked %q", asked)
	}
	c.says("node", lostReason)
	c.check()
	if asked := c.asked(); len(asked) != 1 {
		t.Errorf("to see that it was done it asked %q", asked)
	}
	c.asksNoMore()
}

// Once an admin owns the drain nobody asks any more.
func TestAsksSlurmNothingOfAnAdmins(t *testing.T) {
	t.Parallel()
	c := newController(t, "")
	c.failsAtStart()
	c.says("node", "an admin's own")
	c.check()
	if asked := c.asked(); len(asked) != 1 {
		t.Errorf("asked %q", asked)
	}
	c.asksNoMore()
}

// asksNoMore: a check that could not keep what it saw, since the machine was too busy for a lock, leaves it to the next.
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

func TestReasonByNobody(t *testing.T) {
	t.Parallel()
	c := newController(t, "drain: {reason_by: none}\n")
	c.failsAtStart()
	c.check()
	if asked := c.asked(); len(asked) > 0 {
		t.Errorf("asked %q", asked)
	}
}

// What somebody writes between the first look and the write stays.
func TestReasonChangesMeanwhile(t *testing.T) {
	t.Parallel()
	c := newController(t, "")
	c.failsAtStart()
	c.says("next", "I am on it, jd")
	c.check()
	if asked := c.asked(); len(asked) != 2 || len(lines(strings.Join(asked, "\n"), "update")) > 0 {
		t.Errorf("asked %q", asked)
	}
	c.check()
	if c.updates(); c.memory().Written != nil {
		t.Errorf("remembered is %+v", c.memory().Written)
	}
}

// A hook that fails meanwhile keeps the memory of what it wrote.
func TestMemoryChangesMeanwhile(t *testing.T) {
	t.Parallel()
	c := newController(t, "")
	c.failsAtStart()
	other := drain.Memory{Settled: []drain.Ref{{Job: 1, At: 1}}}
	store, err := state.Open(c.conf.run, nodeName)
	must(t, err)
	must(t, store.SwapDrain(drain.Memory{}, other))
	must(t, os.Rename(filepath.Join(c.conf.run, "state", nodeName, "drain.json"), c.in("slurm/drain.json")))
	c.put("first", "/bin/cp drain.json "+filepath.Join(c.conf.run, "state", nodeName, "drain.json")+"\n")
	c.check()
	if updates := c.updates(); len(updates) > 0 {
		t.Errorf("asked for %q", updates)
	}
	if m := c.memory(); m.Written != nil || len(m.Settled) != 1 || len(lines(c.log(), "the memory of the node's drain has changed")) != 1 {
		t.Errorf("remembered is %+v\n%s", m, c.log())
	}
}

// What cannot be remembered for want of space is told as that, and nothing is asked of Slurm that nobody would remember.
func TestMemoryWithoutRoom(t *testing.T) {
	t.Parallel()
	c := newController(t, "")
	c.mountRun("size=1m")
	c.failsAtStart()
	c.fill()
	if o := c.hook(healthcheck, bySlurm); o.exit != 0 || len(c.updates()) > 0 {
		t.Errorf("%v", o)
	}
	if log := c.log(); len(lines(log, "BKD-ST-WRITE: ", "remember drain", "no space left")) != 1 || strings.Contains(log, "BKD-ST-LOCK") {
		t.Errorf("%s", log)
	}
}

// Of two hooks that drain at the same moment one writes its reason: a text that is not the remembered one is nobody's.
func TestTwoHooksDrain(t *testing.T) {
	t.Parallel()
	c := newController(t, "drain: {reason_by: hook}\n")
	idle := fmt.Sprintf("NodeName=%s Arch=x86_64 \n   State=MIXED ThreadsPerCore=1\n\n", nodeName)
	must(t, c.world.Set("on.any.gpu0", "rc 15"))
	other := drain.Memory{Settled: []drain.Ref{{Job: 1, At: 1}}}
	store, err := state.Open(c.conf.run, nodeName)
	must(t, err)
	must(t, store.SwapDrain(drain.Memory{}, other))
	file := filepath.Join(c.conf.run, "state", nodeName, "drain.json")
	must(t, os.Rename(file, c.in("slurm/drain.json")))
	for name, meanwhile := range map[string]string{"another drains": "/bin/cp drain.json " + file + "\n", "alone": ":\n"} {
		os.Remove(file)
		c.put("node", idle)
		c.put("first", meanwhile)
		if o := c.hook(prolog, newJob()); o.exit != 20 {
			t.Errorf("%s: %+v\n%s", name, o, c.log())
		}
		updates := c.updates()
		if alone := name == "alone"; (len(updates) == 1) != alone || alone && updates[0] != wroteReason {
			t.Errorf("%s: asked for %q\n%s", name, updates, c.log())
		}
		if m := c.memory(); (m.Written != nil) != (name == "alone") {
			t.Errorf("%s: remembered is %+v", name, m)
		}
	}
}

// A hook that can remember nothing gives its reason all the same: the health check could not either.
func TestHookWithoutRoom(t *testing.T) {
	t.Parallel()
	c := newController(t, "drain: {reason_by: hook}\n")
	c.mountRun("size=1m")
	c.clean(prolog, newJob())
	c.fill()
	c.put("node", fmt.Sprintf("NodeName=%s Arch=x86_64 \n   State=MIXED ThreadsPerCore=1\n\n", nodeName))
	must(t, c.world.Set("on.any.gpu0", "rc 15"))
	if o := c.hook(prolog, newJob()); o.exit != 20 {
		t.Errorf("%+v\n%s", o, c.log())
	}
	if updates := c.updates(); len(updates) != 1 || updates[0] != wroteReason || c.memory().Written != nil {
		t.Errorf("asked for %q\n%s", updates, c.log())
	}
}

// A controller that does not answer, or answers something else, is told; what is to be done is done by the next check.
func TestSlurmDoesNotAnswer(t *testing.T) {
	for name, answer := range map[string]string{
		"hangs": "exec /bin/sleep 1000\n", "refuses": "echo Incompatible versions of client and server code >&2; exit 1\n",
		"talks nonsense": "echo NodeName=n2; exit 0\n", "floods": "exec /bin/cat /dev/zero\n", "dies": "kill -9 $$\n",
	} {
		for _, at := range []string{"first", "then"} {
			t.Run(name+" "+at, func(t *testing.T) {
				t.Parallel()
				c := newController(t, "")
				c.failsAtStart()
				c.put(at, answer)
				c.check()
				if updates := c.updates(); len(updates) > 0 || len(lines(c.log(), "BKD-REASON", "read node")) != 1 {
					t.Errorf("asked for %q\n%s", updates, c.log())
				}
				must(t, os.Remove(c.in("slurm/"+at)))
				c.check()
				if updates := c.updates(); len(updates) != 1 || updates[0] != wroteReason {
					t.Errorf("then asked for %q\n%s", updates, c.log())
				}
			})
		}
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
	must(t, syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL))
	p.wait()
	if m := c.memory(); m.Written == nil || len(m.Settled) > 0 {
		t.Errorf("remembered is %+v", m)
	}
	must(t, os.Remove(c.in("slurm/then")))
	c.asked()
	c.check()
	if updates := c.updates(); len(updates) != 1 || updates[0] != wroteReason {
		t.Errorf("then asked for %q", updates)
	}
	if m := c.memory(); m.Written == nil || len(m.Settled) != 1 {
		t.Errorf("then remembered is %+v", m)
	}
}

// Where the memory is damaged no reason that stands is ours.
func TestDamagedMemory(t *testing.T) {
	t.Parallel()
	c := newController(t, "drain: {resume: {enabled: true, after: 1}}\n")
	c.failsAtStart()
	c.check()
	c.updates()
	c.says("node", lostReason)
	must(t, os.WriteFile(filepath.Join(c.conf.run, "state", nodeName, "drain.json"), []byte(`{"version":1,"written":`), 0o600))
	for range 3 {
		c.check()
	}
	if updates := c.updates(); len(updates) > 0 || len(lines(c.log(), "BKD-ST-DAMAGED", "drain.json")) == 0 {
		t.Errorf("asked for %q\n%s", updates, c.log())
	}
}

// The health check has no SLURM_CONF: that of the hook that failed leads it to the same controller.
func TestSlurmConfOfTheHook(t *testing.T) {
	t.Parallel()
	c := newController(t, "")
	c.put("first", `echo "$SLURM_CONF" >conf`+"\n")
	c.failsAtStart()
	c.check()
	if conf, err := os.ReadFile(c.in("slurm/conf")); err != nil || string(conf) != newJob()["SLURM_CONF"]+"\n" {
		t.Errorf("SLURM_CONF was %q, %v", conf, err)
	}
	if r := c.run(slurm.JobID(100)); r.Start.SlurmConf != newJob()["SLURM_CONF"] {
		t.Errorf("on record is %q", r.Start.SlurmConf)
	}
}
