package cluster

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"bookend/test/must"
)

// What jobs and hooks do on a cluster test/e2e shows. Here is what a cluster must not do to the machine that it runs
// on.

var oneNode = []Node{{Name: "n1"}}

// TestLoopbackOnly: whoever reaches slurmd and has the key is root here.
func TestLoopbackOnly(t *testing.T) {
	c := Start(t, Options{Nodes: oneNode})
	if !c.bound {
		t.Skip("this host's name does not mean 127.0.0.1 in /etc/hosts: Slurm listens on all addresses")
	}
	table := must.Have(os.ReadFile("/proc/net/tcp"))(t)
	const listening, loopback = "0A", "0100007F"
	found := 0
	for _, line := range strings.Split(string(table), "\n") {
		f := strings.Fields(line)
		if len(f) < 4 || f[3] != listening {
			continue
		}
		address, port, _ := strings.Cut(f[1], ":")
		if n, _ := strconv.ParseInt(port, 16, 32); slices.Contains(c.ports, int(n)) {
			found++
			must.Not(t, address != loopback, "port %d is open on address %s", n, address)
		}
	}
	must.Not(t, found != len(c.ports), "found %d of %d ports", found, len(c.ports))
}

// TestLoopback: the daemons are bound to the address from which they are called, or to none.
func TestLoopback(t *testing.T) {
	for hosts, bound := range map[string]bool{
		"127.0.0.1 localhost\n127.0.0.1 vm\n":                true,
		"127.0.0.1 localhost vm # 10.0.0.7 vm\n":             true,
		"::1 vm\n127.0.0.1 vm\n":                             true,
		"127.0.0.1 localhost\n127.0.1.1 vm.example.org vm\n": false,
		"127.0.0.1 localhost\n172.17.0.2 vm\n127.0.0.1 vm\n": false,
		"127.0.0.1 localhost\n":                              false,
		"":                                                   false,
	} {
		if address, got := loopback(hosts, "vm"); address != "127.0.0.1" || got != bound {
			t.Errorf("%q: %s, bound %v", hosts, address, got)
		}
	}
}

// TestSameNames: cgroups carry the node's name only, so the second cluster has to wait for the first.
func TestSameNames(t *testing.T) {
	tracks := Tracks()
	track := tracks[len(tracks)-1]
	first := Start(t, Options{Track: track, Nodes: oneNode})
	if _, err := Up(Options{Dir: TempDir(t), Track: track, Nodes: oneNode, Patience: time.Second}); err == nil ||
		!strings.Contains(err.Error(), "another cluster") {
		t.Errorf("second cluster with the same names: %v", err)
	}
	must.Do(t, first.Down())
	Start(t, Options{Track: track, Nodes: oneNode})
}
