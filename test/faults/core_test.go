package faults

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"bookend/internal/code"
)

// The vendor-neutral core is enough: a static program that knows ids, memory and processes gives a clean start
// and names what the job left.
func TestCoreOnlyBackend(t *testing.T) {
	for _, tt := range []struct {
		mode string
		exit int
	}{{"observe", 0}, {"enforce", 10}} {
		t.Run(tt.mode, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, tt.mode)
			must(t, os.Mkdir(n.in("core"), 0o755))
			copyFile(t, program("core-backend"), n.in("core/backend"))
			n.configure(func(c *conf) { c.backend = n.in("core/backend") })
			n.clean(prolog, bystanding())
			n.clean(prolog, newJob())
			others, orphan := n.record(), sleeper(t, user)
			must(t, os.WriteFile(n.in("core/cards"), fmt.Appendf(nil, "%s %d %d\n", n.world.UUID(0), orphan, 700<<20), 0o644))

			o := n.hook(epilog, newJob())

			found := n.findings(epilog)
			if o.exit != tt.exit || len(found) != 1 || found[0].Code != code.Orphan {
				t.Fatalf("%v\n%+v", o, found)
			}
			if f := found[0]; f.Holder.PID != orphan || f.Bytes.Bytes != 700<<20 || f.Owner == nil || f.Owner.Job != 100 {
				t.Errorf("%+v", f)
			}
			n.unharmed(others)
		})
	}
}

// A node without the driver's folder in /proc, whose backend lists the cards: another vendor's, say.
func TestCoreBackendListsTheCards(t *testing.T) {
	n := newNode(t, "enforce")
	must(t, os.Mkdir(n.in("core"), 0o755))
	copyFile(t, program("core-backend"), n.in("core/backend"))
	var all []string
	for i := range 2 {
		all = append(all, fmt.Sprintf(`{"id": %q, "bus_id": %q, "minor": %d}`, n.world.UUID(i), n.world.BusID(i), i))
	}
	must(t, os.WriteFile(n.in("core/devices"), fmt.Appendf(nil, "[%s]", strings.Join(all, ",")), 0o644))
	n.configure(func(c *conf) { c.backend, c.driverProc = n.in("core/backend"), `""` })
	must(t, os.RemoveAll(n.world.DriverProc()))
	n.clean(prolog, newJob())
	orphan := sleeper(t, user)
	must(t, os.WriteFile(n.in("core/cards"), fmt.Appendf(nil, "%s %d %d\n", n.world.UUID(0), orphan, 700<<20), 0o644))

	o := n.hook(epilog, newJob())

	found := n.findings(epilog)
	if o.exit != 10 || len(found) != 1 || found[0].Code != code.Orphan || found[0].Holder.PID != orphan {
		t.Errorf("got %v\n%+v, want a drain for process %d", o, found, orphan)
	}
}

// sleeper is a process of a user's that outlives whatever it belonged to.
func sleeper(t testing.TB, uid uint32) int {
	t.Helper()
	cmd := exec.Command("/bin/sleep", "1000")
	cmd.Env = []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}, Setsid: true}
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

func copyFile(t testing.TB, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	must(t, err)
	must(t, os.WriteFile(to, data, 0o755))
}
