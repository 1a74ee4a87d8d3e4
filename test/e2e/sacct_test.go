package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"bookend/test/cluster"
	"bookend/test/must"
	"bookend/test/site"
)

// Findings of jobs, also of an array's task with the array's own number, are in Slurm's accounting, whose newest record
// of a requeued job is of another run.
func TestSacct(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"mariadbd", "mariadb-install-db", "slurmdbd"} {
		if _, err := exec.LookPath(program); err != nil || cluster.Root() != "/" {
			t.Skipf("no %s of this Slurm", program)
		}
	}
	s := given(t, site.Options{Conf: []string{soonAgain}, Before: func(conf string) error {
		accounting(t, filepath.Dir(filepath.Dir(conf)), conf)
		return nil
	}})
	leaves := func(script string, args ...string) (id cluster.JobID) {
		id = s.submits(s.user, script, append(args, oneGPU)...)
		if strings.Contains(script, "ready") {
			s.isReady(id)
			must.Do(s.t, s.on.Scontrol("requeue", string(id)))
		}
		s.ends(id)
		must.Do(s.t, s.on.EndLeftovers())
		s.cardsAreFree("n1")
		return id
	}
	again := leaves(`[ "$SLURM_RESTART_COUNT" ] && exit 0` + "\n" + leavesOrphan + "\necho ready\nsleep 600")
	task, job := leaves(leavesOrphan, "--array=7"), leaves(leavesOrphan)
	status := must.Have(s.on.Bookend("n1", "status", "--node", "n1", "--json"))(t)
	write := func() string {
		cmd := must.Have(s.on.Command("", s.on.Program("bookend"), "sacct"))(t)
		cmd.Stdin = strings.NewReader(status)
		out, err := cmd.CombinedOutput()
		must.Not(s.t, err != nil, "bookend sacct: %v\n%s", err, out)
		return string(out)
	}
	s.until("all is in the accounting", func() bool {
		return strings.HasSuffix(write(), "not certainly the job's last run: 1\nthere already: 2\n")
	})
	cmd := must.Have(s.on.Command(s.user, "sacct", "-XDPnoJobID,State,SystemComment"))(t)
	out := string(must.Have(cmd.Output())(t))
	const comment = "|COMPLETED|bookend n1: bkd-orphan gpu 0 2.5 gib\n"
	want := fmt.Sprintf("%s|REQUEUED|\n%[1]s|COMPLETED|\n%s_7%s%s%[3]s", again, task, comment, job)
	must.Be(s.t, "the accounting", strings.ToLower(out), strings.ToLower(want))

	failed := s.runs(s.user, "exit 3")
	s.runs(s.user, "true")
	login := filepath.Join(filepath.Dir(s.on.ConfigFile("n1")), "login.yaml")
	must.Do(s.t, os.WriteFile(login, []byte("version: 1\npaths: {run: /run/none}\n"), 0o644))
	s.until("the last job that failed is in the accounting", func() bool {
		cmd := must.Have(s.on.Command(s.user, s.on.Program("bookend"), "why"))(t)
		cmd.Env = append(cmd.Env, "BOOKEND_CONFIG="+login)
		out, _ := cmd.CombinedOutput()
		return strings.Contains(string(out), "job "+string(failed)) && strings.Contains(string(out), "FAILED")
	})
	cmd = must.Have(s.on.Command(s.user, s.on.Program("bookend"), "peaks"))(t)
	cmd.Env = append(cmd.Env, "BOOKEND_CONFIG="+login)
	out = string(must.Have(cmd.Output())(t))
	for _, id := range []cluster.JobID{job, task + "_7", again} {
		must.Not(t, !strings.Contains(out, "\n"+string(id)+" "), "peaks has no job %s:\n%s", id, out)
	}
}

// accounting starts slurmdbd with a database of its own in dir, and has slurm.conf use it. dir is the cluster's.
func accounting(t *testing.T, dir, conf string) {
	t.Helper()
	port := must.Have(net.Listen("tcp", "127.0.0.1:0"))(t)
	number := port.Addr().(*net.TCPAddr).Port
	port.Close()
	own, munge := t.TempDir(), filepath.Join(dir, "munge/munge.socket")
	data, socket := filepath.Join(own, "db"), filepath.Join(own, "db.sock")
	must.Have(exec.Command("mariadb-install-db", "--no-defaults", "--user=root", "--datadir="+data, "--skip-test-db").CombinedOutput())(t)
	start := func(name string, environment []string, args ...string) {
		cmd := exec.Command(name, args...)
		cmd.Env = append(os.Environ(), environment...)
		must.Do(t, cmd.Start())
		t.Cleanup(func() { must.Do(t, cmd.Process.Kill()); _ = cmd.Wait() })
	}
	first := filepath.Join(own, "first.sql")
	must.Do(t, os.WriteFile(first, []byte("create database slurm_acct_db;\n"), 0o600))
	start("mariadbd", nil, "--no-defaults", "--user=root", "--datadir="+data, "--socket="+socket, "--skip-networking",
		"--skip-grant-tables", "--init-file="+first, "--innodb-buffer-pool-size=32M")
	dbd := filepath.Join(own, "slurmdbd.conf")
	must.Do(t, os.WriteFile(dbd, fmt.Appendf(nil, "AuthType=auth/munge\nAuthInfo=socket=%s\nDbdHost=localhost\nDbdPort=%d\n"+
		"SlurmUser=root\nStorageType=accounting_storage/mysql\nStorageHost=localhost\nStorageUser=root\nLogFile=%s\n",
		munge, number, filepath.Join(own, "slurmdbd.log")), 0o600))
	answers := func(what, network, address string) {
		(&story{t: must.Steps{T: t}}).until(what+" answers", func() bool {
			c, err := net.Dial(network, address)
			if err == nil {
				c.Close()
			}
			return err == nil
		})
	}
	answers("MariaDB", "unix", socket)
	start("slurmdbd", []string{"SLURM_CONF=" + dbd, "MYSQL_UNIX_PORT=" + socket}, "-D")
	answers("slurmdbd", "tcp", fmt.Sprintf("localhost:%d", number))
	text := strings.Replace(must.Read(t, conf), "AccountingStorageType=accounting_storage/none", fmt.Sprintf(
		"AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageTRES=gres/gpu\nAccountingStorageHost=localhost\nAccountingStoragePort=%d\n"+
			"AccountingStoragePass=%s", number, munge), 1)
	must.Do(t, os.WriteFile(conf, []byte(text), 0o644))
}
