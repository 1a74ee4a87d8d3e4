package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"bookend/internal/code"
	"bookend/internal/config"
)

// logged writes a line of the kernel's log with a facility and a level, as syslog counts them: what root's programs
// write there has a facility from 8 on.
func (n *node) logged(priority int, text string) {
	n.Helper()
	path := filepath.Join(n.world.Dev(), "kmsg")
	now, err := os.ReadFile(path)
	must(n, err)
	seq := 100 + strings.Count(string(now), "\n")
	must(n, os.WriteFile(path, fmt.Appendf(now, "%d,%d,%d,-;%s\n", priority, seq, seq*1_000_000, text), 0o600))
}

// xidLine is how the kernel's module reports an error of a card.
func (n *node) xidLine(card, number int, text string) string {
	return fmt.Sprintf("NVRM: Xid (PCI:%s): %d, %s", strings.TrimSuffix(n.world.BusID(card), ".0"), number, text)
}

// silent makes the driver not tell whether a card needs recovery, as one from before 570.
func (n *node) silent() { n.Helper(); must(n, n.world.Set("gpu0.recovery_action_rc", "3")) }

// An Xid after which NVIDIA calls for a reset drains if the kernel itself wrote it of the job's card while the job ran,
// and the driver does not say that all is well.
func TestXid(t *testing.T) {
	const gone = "pid=4711, name=secret, GPU has fallen off the bus."
	for name, tt := range map[string]struct {
		before, during func(n *node)
		finds          code.Code
		doubt          bool
		action         config.Action
		exit           int
		reads          string
		elsewhere      int // lines on record that are of no card of the job's
	}{
		"fatal": {during: func(n *node) { n.silent(); n.kernel(n.xidLine(0, 79, gone)) }, finds: code.XidFatal, action: config.Drain,
			exit: 29, reads: "the driver's error Xid 79: the card has fallen off the bus"},
		"fatal, and the driver asks for nothing": {during: func(n *node) { n.kernel(n.xidLine(0, 79, gone)) }, finds: code.XidFatal,
			doubt: true, action: config.Warn, reads: "the driver's error Xid 79"},
		"NVLink": {during: func(n *node) { n.silent(); n.kernel(n.xidLine(0, 74, "pid=1, name=x, NVLink: fatal error")) },
			finds: code.XidFatal, doubt: true, action: config.Warn, reads: "the driver's error Xid 74"},
		"a program's": {during: func(n *node) { n.silent(); n.kernel(n.xidLine(0, 13, "pid=4711, name=secret, Graphics Exception")) },
			finds: code.Xid, action: config.Warn, reads: "the driver's error Xid 13: error in a program's kernel"},
		"of no table": {during: func(n *node) { n.silent(); n.kernel(n.xidLine(0, 999, gone)) }, finds: code.Xid, action: config.Warn, reads: "Xid 999"},
		"of a program with such a name": {during: func(n *node) {
			n.silent() // a kernel's line may begin with the name, of 15 bytes
			n.kernel(`NVRM: Xid (PCI:[4711]: segfault at 0 ip 0 sp 0 error 4 in x[0+1000]`)
			n.kernel(`NVRM: Xid (PCI: page allocation failure: order:4, nodemask=(null),cpuset=): 79`)
			n.kernel(`x\x0aNVRM: Xid (PCI:0000:1b:00): 79, [4711]: segfault at 0`)
		}},
		"before the job": {before: func(n *node) { n.kernel(n.xidLine(0, 79, gone)) }, during: (*node).silent},
		"another card's": {during: func(n *node) { n.silent(); n.kernel(n.xidLine(1, 79, gone)) }, elsewhere: 1},
		"a program of root's wrote it": {during: func(n *node) {
			n.silent()
			for _, priority := range []int{8 + 3, 24 + 3, 23*8 + 0} {
				n.logged(priority, n.xidLine(0, 79, gone))
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "enforce")
			n.kernel("eth0: link is up")
			if tt.before != nil {
				tt.before(n)
			}
			n.clean(prolog, newJob())
			tt.during(n)
			read, all := n.ended(tt.exit)
			if tt.finds == "" {
				if k := n.endOf(100).Kernel; len(all) != 0 || k.Unknown != "" || len(k.Xids) != tt.elsewhere {
					t.Errorf("%+v %+v", all, k)
				}
				return
			}
			f, v := n.found(all, tt.finds), n.endOf(100).Verdict
			if (len(f.Doubts) > 0) != tt.doubt || v.Code != tt.finds || v.Action != tt.action {
				t.Errorf("%+v %+v", f, v)
			}
			if !strings.Contains(strings.Join(strings.Fields(read), " "), tt.reads) || strings.Contains(read, "4711") || strings.Contains(read, "secret") {
				t.Errorf("the user reads:\n%s", read)
			}
			if tt.doubt && tt.finds == code.XidFatal && len(lines(n.log(), "doubt=", string(code.XidFatal))) == 0 {
				t.Errorf("the log does not say why nothing was drained:\n%s", n.log())
			}
		})
	}
}

// Where the kernel's log cannot be read, or tells of another boot, nothing is found in it and nothing else suffers.
func TestKernelLogOutOfUse(t *testing.T) {
	fatal := func(n *node) { n.silent(); n.kernel(n.xidLine(0, 79, "GPU has fallen off the bus.")) }
	path := func(n *node) string { return filepath.Join(n.world.Dev(), "kmsg") }
	none := func(n *node) { must(n, os.Remove(path(n))) }
	for name, tt := range map[string]struct {
		before, during func(n *node)
		extra          string
		says           string // on the record of the end
	}{
		"missing":              {before: none, says: "no such file"},
		"missing at the start": {before: none, during: func(n *node) { n.kernel("eth0: link is up"); fatal(n) }},
		"gone at the end": {before: func(n *node) { n.kernel("eth0: link is up") },
			during: func(n *node) { n.silent(); must(n, os.Remove(path(n))) }, says: "no such file"},
		"another boot's": {before: func(n *node) { n.kernel("eth0: link is up"); n.kernel("eth0: link is down") },
			during: func(n *node) { must(n, os.Remove(path(n))); fatal(n) }, says: "another boot's"},
		"a folder": {before: func(n *node) { n.kernel("eth0: link is up") },
			during: func(n *node) { must(n, os.Remove(path(n))); must(n, os.Mkdir(path(n), 0o755)) }, says: "is a directory"},
		"not to be read": {before: func(n *node) { n.kernel("eth0: link is up") }, during: fatal, extra: "look: {kernel_log: false}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, "enforce")
			n.configure(func(c *conf) { c.extra, c.onUnknown = tt.extra, "drain" })
			if tt.before != nil {
				tt.before(n)
			}
			n.clean(prolog, newJob())
			if tt.during != nil {
				tt.during(n)
			}
			read, all := n.ended(0)
			k := n.endOf(100).Kernel
			if len(all) != 0 || len(lines(read, "| bookend: ")) != 2 { // start and end, one line each
				t.Errorf("%+v, the user reads:\n%s", all, read)
			}
			if tt.extra == "" && (k == nil || !strings.Contains(k.Unknown, tt.says)) || tt.extra != "" && k != nil {
				t.Errorf("%+v, want %q", k, tt.says)
			}
		})
	}
}
