package faults

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"bookend/internal/state"
	"bookend/test/must"
)

const (
	critical = `echo '{"overall_severity":"CRITICAL","affected_components":[{"check_ids":["gpu_xid_79"],"entities":["GPU-0"],` +
		`"max_severity":"CRITICAL"}]}'; exit 1`
	reasonExternal = "BKD-EXTERNAL healthcheck; see: bookend status"
)

// ownCheck gives the site a check of its own, which may drain, and a Slurm that has the node idle until it is drained.
func (n *node) ownCheck(script, limit string) {
	path := n.script("own", script)
	n.configure(func(c *conf) {
		c.extra = fmt.Sprintf("health: {external: {program: %s, arguments: [%s], limit: %s, drain_on: [7]}}\n", path, n.dir, limit) +
			"policy: {health_check: {BKD-EXTERNAL: drain}}\n"
	})
	n.scontrol(fmt.Sprintf(`[ "$1" = show ] || { echo "$*" >>%[1]s; exit; }
state=IDLE
[ ! -e %[1]s ] || state=IDLE+DRAIN
echo NodeName=%s Arch=x86_64
echo "   State=$state ThreadsPerCore=1"
[ ! -e %[1]s ] || echo "   Reason=%s [root@$(date -u +%%Y-%%m-%%dT%%H:%%M:%%S)]"`, n.in("told"), nodeName, reasonExternal))
}

// later makes the last health check one of a minute ago.
func (n *node) later() {
	c := must.Have(state.LastCheck.Load(n.store()))(n)
	c.At -= time.Minute
	must.Do(n, state.LastCheck.Save(n.store(), c))
}

func (n *node) toldSlurm() string {
	text, _ := os.ReadFile(n.in("told"))
	return string(text)
}

// Of what the site's own check says, only a CRITICAL or an exit status that the admin names drains, and only if two health
// checks in a row got it. Nothing that it does keeps the health check, and nothing that it starts stays.
func TestExternal(t *testing.T) {
	type row struct {
		script, finds, says string
		drains              bool
	}
	each(t, "enforce", map[string]row{
		"success":        {"exit 0", "", "", false},
		"PASS":           {`echo '{"overall_severity":"PASS"}'`, "", "", false},
		"WARNING":        {`echo '{"overall_severity":"WARNING"}'`, "BKD-EXTERNAL?", "says WARNING", false},
		"CRITICAL":       {critical, "BKD-EXTERNAL", "says CRITICAL: gpu_xid_79, GPU-0", true},
		"CRITICAL once":  {`[ -e "$1/once" ] && exit 0; : >"$1/once"; ` + critical, "", "", false},
		"UNKNOWN":        {`echo '{"overall_severity":"UNKNOWN"}'; exit 1`, "BKD-EXTERNAL*", "says UNKNOWN and exits 1", false},
		"a named status": {"echo ERROR: nhc; exit 7", "BKD-EXTERNAL", "exits 7", true},
		"another one":    {"exit 8", "BKD-EXTERNAL*", "exits 8 and gives no verdict", false},
		"killed":         {"kill -KILL $$", "BKD-EXTERNAL*", "was ended by signal 9", false},
		"damaged":        {`echo '{"overall_severity":"CRIT'; exit 7`, "BKD-EXTERNAL*", "is not a whole verdict", false},
		"too much":       {"head -c 1048576 /dev/zero; exit 7", "BKD-EXTERNAL*", "wrote more than 64 KiB", false},
		"hanging": {`trap "" TERM; sleep 600 & echo $! >"$1/pid"; wait; exit 7`, "BKD-EXTERNAL*", "did not end within 1.5s",
			false},
		"a child that keeps its output": {`sleep 600 & echo $! >"$1/pid"; exit 7`, "BKD-EXTERNAL", "exits 7", true},
		"not root's":                    {"exit 7", "BKD-EXTERNAL*", "was not started", false},
	}, func(n *node, tt row) {
		n.ownCheck(tt.script, "1500ms")
		if strings.Contains(tt.says, "not started") {
			n.give(n.in("own"), user)
		}
		n.check()
		must.Be(n, "after one health check Slurm was asked to", n.toldSlurm(), "")
		n.later()
		c := n.checked(tt.finds)
		want := ""
		if tt.drains {
			want = fmt.Sprintf("update NodeName=%s State=DRAIN Reason=%s\n", nodeName, reasonExternal)
		}
		must.Be(n, "Slurm was asked to", n.toldSlurm(), want)
		if tt.says != "" {
			n.says("BKD-EXTERNAL", tt.says)
		}
		if pid, err := os.ReadFile(n.in("pid")); err == nil {
			child := must.Have(strconv.Atoi(strings.TrimSpace(string(pid))))(n)
			await(n, "the end of what it started", func() bool { return gone(child) })
		}
		must.Not(n, c.Verdict.Exit != 0 || c.Stopped || c.Took > 20*time.Second, "%+v", c)
		if tt.drains { // an admin resumes the node: nothing drains it again while the fault stays
			must.Do(n, os.Remove(n.in("told")))
			for range 3 {
				n.later()
				n.checked(tt.finds + "?")
			}
			must.Be(n, "after an admin has resumed the node Slurm was asked to", n.toldSlurm(), "")
		}
	})
}

// A check that is stopped forgets no drain: what an admin has resumed since is drained again only once the program was
// without a fault.
func TestExternalAfterAStop(t *testing.T) {
	n := parallel(t, "enforce")
	n.ownCheck(`[ ! -e "$1/hang" ] || { : >"$1/began"; exec sleep 600; }; exit 7`, "20s")
	n.check()
	n.later()
	n.checked("BKD-EXTERNAL")
	must.Not(t, n.toldSlurm() == "", "it has not drained")
	must.Do(t, os.Remove(n.in("told")))
	must.Do(t, os.WriteFile(n.in("hang"), nil, 0o600))
	p := n.start(healthcheck, bySlurm)
	await(t, "its start", func() bool { _, err := os.Stat(n.in("began")); return err == nil })
	p.signal(syscall.SIGTERM)
	p.wait()
	must.Do(t, os.Remove(n.in("hang")))
	for range 3 {
		n.later()
		n.checked("BKD-EXTERNAL?")
	}
	must.Be(t, "Slurm was asked to", n.toldSlurm(), "")
}

// It ends with its health check, however that ends, and with it all that it has started if that is stopped.
func TestExternalEndsWithItsCheck(t *testing.T) {
	each(t, "enforce", map[string]syscall.Signal{"killed": syscall.SIGKILL, "stopped": syscall.SIGTERM}, endsWithItsCheck)
}

func endsWithItsCheck(n *node, by syscall.Signal) {
	script := `echo $$ >"$1/pid"; exec sleep 600`
	if by == syscall.SIGTERM {
		script = `sleep 600 & echo $! >"$1/pid"; wait`
	}
	n.ownCheck(script, "20s")
	p := n.start(healthcheck, bySlurm)
	started := 0
	await(n, "its start", func() bool {
		pid, _ := os.ReadFile(n.in("pid"))
		started, _ = strconv.Atoi(strings.TrimSpace(string(pid)))
		return started > 0
	})
	p.signal(by)
	p.wait()
	await(n, "its end", func() bool { return gone(started) })
}

// It gets a path, the node's name, slurm.conf and its arguments, and nothing else of the caller's environment. While a job is on the node
// nothing drains, and a prolog and an epilog never run it.
func TestExternalSurroundings(t *testing.T) {
	n := parallel(t, "enforce")
	n.ownCheck(`echo run "$#" >>"$1/runs"; env >"$1/env"; exit 7`, "5s")
	n.clean(prolog, newJob())
	n.clean(epilog, newJob())
	n.clean(prolog, bystanding())
	n.exits(0, healthcheck, bySlurm.With("SLURM_CONF", "/etc/slurm/slurm.conf").With("SLURM_JOB_USER", "mallory"))
	n.later()
	c := n.check()
	must.Be(t, "the runs", n.get(n.in("runs")), "run 1\nrun 1\n")
	for line := range strings.Lines(n.get(n.in("env"))) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		given := name == "PATH" || name == "SLURMD_NODENAME" && value == nodeName ||
			name == "SLURM_CONF" && value == "/etc/slurm/slurm.conf"
		must.Not(t, !given && name != "PWD" && name != "SHLVL" && name != "_" && name != "OLDPWD", "it gets %q", line)
	}
	must.Not(t, n.toldSlurm() != "" || !strings.Contains(c.Verdict.Held, "a job is on the node"), "%q, %+v", n.toldSlurm(), c.Verdict)
	n.unharmed()
}

// One that cannot be killed, or what it has started, is kept on record, and while it lives no other is started.
func TestExternalStays(t *testing.T) {
	each(t, "enforce", map[string]string{
		"the program":                        "exec cat $1/fuse/file",
		"a program of a script":              "cat $1/fuse/file; exit 7",
		"a program of a script that is over": "cat $1/fuse/file & sleep 0.3; exit 7",
	}, func(n *node, hangs string) {
		n.ownCheck(`echo x >>"$1/runs"; `+hangs, "1s")
		must.Do(n, os.Mkdir(n.in("fuse"), 0o755))
		n.deaf(n.in("fuse"), true)
		n.check()
		c := n.checked("BKD-EXTERNAL*")
		must.Not(n, !strings.Contains(c.Findings[0].Unknown, "an earlier one cannot be killed"), "%+v", c.Findings)
		must.Be(n, "the runs", n.get(n.in("runs")), "x\n")
	})
}
