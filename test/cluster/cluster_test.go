package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const patience = 3 * time.Minute

// recorder is a hook that writes down who ran it, and with which environment, and fails where a file asks it to.
const recorder = `#!/bin/sh
{ id -u; env; } >@DIR@/log/@HOOK@.$SLURMD_NODENAME.$SLURM_JOB_ID
echo "@HOOK@ of $SLURM_JOB_ID"
[ ! -e @DIR@/etc/kill-@HOOK@ ] || kill -9 $$
[ ! -e @DIR@/etc/fail-@HOOK@ ] || exit 1
`

// withHooks returns options for a cluster whose Prolog and Epilog are recorders.
func withHooks(t *testing.T) Options {
	t.Helper()
	dir := TempDir(t)
	for _, name := range []string{"prolog", "epilog"} {
		text := strings.NewReplacer("@DIR@", dir, "@HOOK@", name).Replace(recorder)
		if _, err := WriteHook(dir, name, text); err != nil {
			t.Fatal(err)
		}
	}
	return Options{Dir: dir, Prolog: HookFile(dir, "prolog"), Epilog: HookFile(dir, "epilog"), PrologFlags: "Alloc"}
}

func users(t *testing.T) []string {
	t.Helper()
	names, err := Users(2)
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// recorded returns the lines that a recorder wrote.
func recorded(t *testing.T, c *Cluster, hook, node string, id JobID) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(c.Dir(), "log", fmt.Sprintf("%s.%s.%s", hook, node, id)))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

func wantLines(t *testing.T, have []string, want ...string) {
	t.Helper()
	for _, w := range want {
		found := false
		for _, line := range have {
			found = found || line == w
		}
		if !found {
			t.Errorf("no line %q in\n%s", w, strings.Join(have, "\n"))
		}
	}
}

// submit runs a batch job to its end and returns it with its output.
func submit(t *testing.T, c *Cluster, user, script string, args ...string) (Job, string) {
	t.Helper()
	id, err := c.Submit(user, script, args...)
	if err != nil {
		t.Fatal(err)
	}
	j, err := c.Wait(id, patience)
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.Output(id)
	if err != nil {
		t.Fatal(err)
	}
	return j, out
}

func TestJobs(t *testing.T) {
	o := withHooks(t)
	o.TaskProlog = HookFile(o.Dir, "task")
	if _, err := WriteHook(o.Dir, "task", "#!/bin/sh\necho print from the task prolog of $(id -un)\n"); err != nil {
		t.Fatal(err)
	}
	o.CredentialLife = 5 * time.Second // the requeued job waits for it
	c := Start(t, o)
	user := users(t)[0]

	for _, tt := range []struct {
		name string
		test func(t *testing.T, c *Cluster, user string)
	}{
		{"batch", testBatch},
		{"srun", testSrun},
		{"array", testArray},
		{"two nodes", testTwoNodes},
		{"requeue", testRequeue},
		{"cancel", testCancel},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.test(t, c, user) })
	}
}

func testBatch(t *testing.T, c *Cluster, user string) {
	j, out := submit(t, c, user, "id -un; pwd; exit 3", "--nodelist=n1", "--gres=gpu:1", "--output=a %x %j.txt", "--job-name=name")
	if j.State != "FAILED" || j.ExitCode != "3:0" || !strings.HasSuffix(j.StdOut, "/a name "+string(j.ID)+".txt") {
		t.Errorf("job: %+v", j)
	}
	home, err := c.Home(user)
	if err != nil {
		t.Fatal(err)
	}
	if want := "from the task prolog of " + user + "\n" + user + "\n" + home + "\n"; out != want {
		t.Errorf("output %q, want %q", out, want)
	}
	wantLines(t, recorded(t, c, "prolog", "n1", j.ID), "0", "SLURM_JOB_GPUS=0", "SLURM_SCRIPT_CONTEXT=prolog_slurmd")
	wantLines(t, recorded(t, c, "epilog", "n1", j.ID), "0", "SLURM_JOB_GPUS=0", "SLURM_JOB_EXIT_CODE2=3:0")
	runs, err := c.HookRuns("n1")
	if err != nil || len(runs) != 2 || runs[1].Output != "epilog of "+string(j.ID) || runs[1].Failed() {
		t.Errorf("hook runs %+v, error %v", runs, err)
	}
}

func testSrun(t *testing.T, c *Cluster, user string) {
	out, err := c.Srun(user, "--nodelist=n1", "--gres=gpu:2", "/bin/sh", "-c", "echo id $SLURM_JOB_ID gpus $SLURM_STEP_GPUS")
	if err != nil {
		t.Fatal(err)
	}
	var id JobID
	_, line, _ := strings.Cut(out, "from the task prolog of "+user+"\n")
	if _, err := fmt.Sscanf(line, "id %s gpus 0,1", &id); err != nil {
		t.Fatalf("output %q: %v", out, err)
	}
	if _, err := c.Wait(id, patience, "COMPLETED"); err != nil {
		t.Fatal(err)
	}
	wantLines(t, recorded(t, c, "epilog", "n1", id), "SLURM_JOB_GPUS=0,1")
	if _, err := c.Output(id); err == nil {
		t.Error("an srun job has no output file, but Output found one")
	}
}

func testArray(t *testing.T, c *Cluster, user string) {
	id, err := c.Submit(user, "echo task $SLURM_ARRAY_TASK_ID", "--array=1-2", "--gres=gpu:1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Wait(id, patience, "COMPLETED"); err != nil {
		t.Fatal(err)
	}
	jobs, err := c.Jobs(id)
	if err != nil || len(jobs) != 2 || jobs[0].ID == jobs[1].ID {
		t.Fatalf("jobs %+v, error %v", jobs, err)
	}
	for _, j := range jobs {
		recorded(t, c, "epilog", j.NodeList, j.ID)
	}
	if out, err := c.Output(id + "_2"); err != nil || !strings.Contains(out, "task 2\n") {
		t.Errorf("output %q, error %v", out, err)
	}
}

func testTwoNodes(t *testing.T, c *Cluster, user string) {
	j, _ := submit(t, c, user, "true", "--nodes=2", "--gres=gpu:4")
	if j.NodeList != "n[1-2]" {
		t.Errorf("nodes %q", j.NodeList)
	}
	for _, node := range []string{"n1", "n2"} {
		wantLines(t, recorded(t, c, "prolog", node, j.ID), "SLURM_JOB_GPUS=0,1,2,3", "SLURMD_NODENAME="+node)
		wantLines(t, recorded(t, c, "epilog", node, j.ID), "SLURM_JOB_GPUS=0,1,2,3")
	}
}

func testRequeue(t *testing.T, c *Cluster, user string) {
	id, err := c.Submit(user, `[ "$SLURM_RESTART_COUNT" ] || sleep 600`, "--nodelist=n1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Wait(id, patience, "RUNNING"); err != nil {
		t.Fatal(err)
	}
	if err := c.Requeue(id); err != nil {
		t.Fatal(err)
	}
	if j, err := c.Wait(id, patience, "COMPLETED"); err != nil || j.Restarts != 1 {
		t.Errorf("job %+v, error %v", j, err)
	}
	wantLines(t, recorded(t, c, "prolog", "n1", id), "SLURM_JOB_RESTART_COUNT=1")
}

func testCancel(t *testing.T, c *Cluster, user string) {
	id, err := c.Submit(user, "sleep 600")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Wait(id, patience, "RUNNING"); err != nil {
		t.Fatal(err)
	}
	if err := c.Cancel(id); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Wait(id, patience, "COMPLETED"); err == nil || !strings.Contains(err.Error(), "ended as CANCELLED") {
		t.Errorf("waiting for another end: %v", err)
	}
}

func TestFailingHooks(t *testing.T) {
	c := Start(t, withHooks(t))
	user := users(t)[0]
	t.Run("epilog", func(t *testing.T) {
		order(t, c, "fail-epilog")
		j, _ := submit(t, c, user, "true", "--gres=gpu:1", "--nodelist=n1")
		if j.State != "COMPLETED" {
			t.Errorf("job %+v", j)
		}
		wantDrained(t, c, "n1", "Epilog error")
		if run := lastHook(t, c, "n1"); run != (HookRun{Hook: "epilog", Job: j.ID, Exit: 1, Output: "epilog of " + string(j.ID)}) {
			t.Errorf("last hook %+v", run)
		}
	})
	t.Run("epilog killed", func(t *testing.T) {
		order(t, c, "kill-epilog")
		j, _ := submit(t, c, user, "true", "--nodelist=n1")
		wantDrained(t, c, "n1", "Epilog error")
		if run := lastHook(t, c, "n1"); run.Job != j.ID || run.Signal != 9 || run.Exit != 0 {
			t.Errorf("last hook %+v", run)
		}
	})
	t.Run("prolog", func(t *testing.T) {
		order(t, c, "fail-prolog")
		id, err := c.Submit(user, "true", "--gres=gpu:1", "--nodelist=n1")
		if err != nil {
			t.Fatal(err)
		}
		j, err := c.WaitFor(id, patience, func(j Job) (bool, error) {
			return j.State == "PENDING" && j.Reason == "launch_failed_requeued_held", nil
		})
		if err != nil || j.Restarts != 1 {
			t.Errorf("job %+v, error %v", j, err)
		}
		wantDrained(t, c, "n1", "Prolog error")
		if err := c.Cancel(id); err != nil {
			t.Error(err)
		}
	})
}

// order makes a recorder fail until the test ends.
func order(t *testing.T, c *Cluster, name string) {
	t.Helper()
	file := filepath.Join(c.Dir(), "etc", name)
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(file) })
}

// wantDrained checks that the node is drained for the reason, and resumes it.
func wantDrained(t *testing.T, c *Cluster, node, reason string) {
	t.Helper()
	n, err := c.WaitNode(node, patience, func(n NodeState) bool { return n.Has("DRAIN") && n.Has("IDLE") })
	if err != nil || n.Reason != reason {
		t.Errorf("node %v, reason %q, error %v", n.Flags, n.Reason, err)
	}
	if err := c.Resume(node); err != nil {
		t.Error(err)
	}
}

func lastHook(t *testing.T, c *Cluster, node string) HookRun {
	t.Helper()
	runs, err := c.HookRuns(node)
	if err != nil || len(runs) == 0 {
		t.Fatalf("hook runs %+v, error %v", runs, err)
	}
	return runs[len(runs)-1]
}

func TestSideBySide(t *testing.T) {
	user := users(t)[0]
	a, b := Start(t, Options{}), Start(t, Options{})
	if err := a.Down(); err != nil {
		t.Fatal(err)
	}
	out, err := b.Srun(user, "--nodes=2", "--gres=gpu:1", "/usr/bin/printenv", "SLURM_CONF")
	if err != nil || out != strings.Repeat(b.ConfFile()+"\n", 2) {
		t.Errorf("srun on the other cluster: %q, %v", out, err)
	}
}

// TestLoopbackOnly: whoever reaches slurmd and has the key is root here.
func TestLoopbackOnly(t *testing.T) {
	c := Start(t, Options{})
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
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
	tracks, err := Tracks()
	if err != nil {
		t.Fatal(err)
	}
	track := tracks[len(tracks)-1]
	first := Start(t, Options{Track: track})
	if _, err := Up(Options{Dir: TempDir(t), Track: track, Patience: time.Second}); err == nil || !strings.Contains(err.Error(), "another cluster") {
		t.Errorf("second cluster with the same names: %v", err)
	}
	if err := first.Down(); err != nil {
		t.Fatal(err)
	}
	Start(t, Options{Track: track})
}

func TestUpRefuses(t *testing.T) {
	closed := filepath.Join(TempDir(t), "closed")
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		o    Options
		want string
	}{
		{"relative folder", Options{Dir: "some/where"}, "want an absolute path"},
		{"long folder", Options{Dir: "/" + strings.Repeat("x", 64)}, "want an absolute path"},
		{"closed folder", Options{Dir: filepath.Join(closed, "c")}, "is closed to other users"},
		{"no Slurm", Options{Dir: TempDir(t), Root: closed}, "install-slurm.sh"},
		{"unknown track", Options{Dir: TempDir(t), Track: "cgroup/v3"}, "no hierarchy for cgroup/v3"},
		{"missing device", Options{Dir: TempDir(t), Nodes: []Node{{Name: "n1", Devices: []string{"/dev/none"}}}}, "/dev/none"},
		{"bad line", Options{Dir: TempDir(t), Conf: []string{"NoSuchKey=1"}}, "NoSuchKey"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.o.Patience = 20 * time.Second
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
