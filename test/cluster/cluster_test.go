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

const patience = 3 * time.Minute

var oneNode = []Node{{Name: "n1"}}

func anybody(t *testing.T) string {
	t.Helper()
	names := must.Have(Users(1))(t)
	return names[0]
}

// TestLoopbackOnly: whoever reaches slurmd and has the key is root here.
func TestLoopbackOnly(t *testing.T) {
	c := Start(t, Options{Nodes: oneNode})
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
			if address != loopback {
				t.Errorf("port %d is open on address %s", n, address)
			}
		}
	}
	if found != len(c.ports) {
		t.Errorf("found %d of %d ports", found, len(c.ports))
	}
}

// TestSameNames: cgroups carry the node's name only, so the second cluster has to wait for the first.
func TestSameNames(t *testing.T) {
	tracks := must.Have(Tracks())(t)
	track := tracks[len(tracks)-1]
	first := Start(t, Options{Track: track, Nodes: oneNode})
	if _, err := Up(Options{Dir: TempDir(t), Track: track, Nodes: oneNode, Patience: time.Second}); err == nil ||
		!strings.Contains(err.Error(), "another cluster") {
		t.Errorf("second cluster with the same names: %v", err)
	}
	must.Do(t, first.Down())
	Start(t, Options{Track: track, Nodes: oneNode})
}

func TestUpRefuses(t *testing.T) {
	for _, tt := range []struct {
		name string
		o    Options
		want string
	}{
		{"relative directory", Options{Dir: "some/where"}, "want an absolute path"},
		{"long directory", Options{Dir: "/" + strings.Repeat("x", 64)}, "want an absolute path"},
		{"no Slurm", Options{Dir: TempDir(t), Root: t.TempDir()}, "install-slurm.sh"},
		{"unknown track", Options{Dir: TempDir(t), Track: "cgroup/v3"}, "no hierarchy for cgroup/v3"},
		{"missing device", Options{Dir: TempDir(t), Nodes: []Node{{Name: "n1", Devices: []string{"/dev/none"}}}},
			"/dev/none"},
		{"bad line", Options{Dir: TempDir(t), Conf: []string{"NoSuchKey=1"}}, "NoSuchKey"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.o.Patience = 20 * time.Second
			if tt.o.Nodes == nil {
				tt.o.Nodes = oneNode
			}
			c, err := Up(tt.o)
			if err == nil {
				t.Error(c.Down())
				t.Fatal("the cluster came up")
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %q, want %q in it", err, tt.want)
			}
		})
	}
}

// What runs in another root folder writes nothing there, sees the host's folders that it needs, and is in no chroot: a
// job may make namespaces of its own.
func TestRootOfItsOwn(t *testing.T) {
	root := Root()
	if root == "/" {
		root = t.TempDir() // nothing runs there
		if _, err := VersionIn(root); err == nil || !strings.Contains(err.Error(), `no program "slurmd"`) {
			t.Errorf("version in an empty directory: %v", err)
		}
		return
	}
	before := listing(t, root+"/var/lib")
	c := Start(t, Options{Nodes: oneNode})
	id, err := c.Submit(anybody(t), "readlink /proc/self/root; readlink /proc/$$/cwd; unshare --user true && echo "+
		"no chroot; grep VERSION_ID /etc/os-release /dev/null | cut -c1-12")
	if err == nil {
		_, err = c.Wait(id, patience)
	}
	if err != nil {
		t.Fatal(err)
	}
	out := must.Have(c.Output(id))(t)
	if home, err := c.Home(anybody(t)); err != nil || !strings.HasPrefix(out, "/\n"+home+"\nno chroot\n") {
		t.Errorf("the job says %q, %v", out, err)
	}
	if after := listing(t, root+"/var/lib"); after != before {
		t.Errorf("below %s is now %q, was %q", root, after, before)
	}
}

func listing(t *testing.T, folder string) (names string) {
	t.Helper()
	entries := must.Have(os.ReadDir(folder))(t)
	for _, e := range entries {
		names += e.Name() + " "
	}
	return names
}
