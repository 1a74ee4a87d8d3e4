package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"bookend/test/cluster"
	"bookend/test/fakegpu"
)

const (
	patience = 2 * time.Minute
	packaged = "/etc/bookend/slurm/bookend.conf"
	oneGPU   = "--gres=gpu:1"
)

// node is a Debian with a Slurm of its own and two fake GPUs.
type node struct {
	root
	b        *bench
	slurm    *cluster.Cluster
	world    *fakegpu.World
	user     string
	log      *syslog
	included string // by slurm.conf
	known    string // what Bookend's log may say of a finding
}

// newNode makes the Debian; Slurm is not up yet.
func (b *bench) newNode(suite string, more ...string) *node {
	w, err := fakegpu.New(filepath.Join(b.dir, "world-"+b.part), fakegpu.GPUs(2))
	b.must("make fake GPUs", err)
	b.later(w.Close)
	b.must("start their keeper", w.StartKeeper())
	n := &node{b: b, world: w}
	n.root = b.debian(suite, append([]string{"slurmctld", "slurmd", "slurm-client", "munge", "logrotate"}, more...), w.Dir())
	users, err := cluster.Users(1)
	b.must("find a user for jobs", err)
	n.user = users[0]
	n.log, err = listen("/dev/log")
	b.must("listen to syslog", err)
	b.later(n.log.close)
	return n
}

// starts brings Slurm up. Its slurm.conf has one line about Bookend: it includes the package's lines, or setup's.
func (n *node) starts(includes func() (string, error)) {
	dir := filepath.Join(n.b.dir, "slurm-"+n.b.part)
	devices := []string{n.world.Node(0), n.world.Node(1)}
	var err error
	n.slurm, err = cluster.Up(cluster.Options{
		Dir: dir, Root: n.dir, OwnRoot: true, Binds: []string{n.world.Dir()},
		Nodes:  []cluster.Node{{Name: "n1", Devices: devices}},
		Before: func(conf string) error { return n.include(conf, includes) },
	})
	n.b.needs("Slurm "+n.slurmVersion()+" starts with one line: Include "+n.included, err)
	n.b.later(func() error {
		_, err := n.slurm.EndLeftovers()
		return errors.Join(err, n.slurm.Down())
	})
	// What the unit mounts where systemd runs.
	n.b.must("mount the drop", n.mountDrop())
}

func (n *node) slurmVersion() string {
	out, _ := n.run("slurmd", "-V")
	return strings.TrimSpace(strings.TrimPrefix(out, "slurm-wlm "))
}

// include adds the line to slurm.conf, which the chroot sees from now on.
func (n *node) include(conf string, includes func() (string, error)) (err error) {
	if err = n.linkConf(filepath.Dir(filepath.Dir(conf)), conf); err != nil {
		return err
	}
	if n.included, err = includes(); err != nil {
		return err
	}
	text, err := os.ReadFile(conf)
	if err != nil {
		return err
	}
	return os.WriteFile(conf, append(text, "Include "+n.included+"\n"...), 0o644)
}

// setsUp does what the README says.
func (n *node) setsUp() (string, error) {
	said, err := n.run("bookend", "setup", "--write")
	_, rest, _ := strings.Cut(said, "\n    Include ")
	include, _, ok := strings.Cut(rest, "\n")
	if err == nil && !ok {
		err = fmt.Errorf("bookend setup names no Include line: %s", said)
	}
	return include, err
}

// linkConf lets commands in the chroot find slurm.conf where an admin has it.
func (n *node) linkConf(dir, conf string) error {
	n.env = []string{"SLURM_CONF=" + conf, "SLURMD_NODENAME=n1"}
	_, err := command("sh", "-ec", `rm -rf "$1/etc/slurm"; mkdir "$1/etc/slurm"; mkdir -p "$1$2"; mount --bind "$2" "$1$2"
for name in slurm gres cgroup; do ln -s "$3/$name.conf" "$1/etc/slurm/"; done`, "sh", n.dir, dir, filepath.Dir(conf))
	return err
}

func (n *node) mountDrop() error {
	unit, err := os.ReadFile(n.in("/usr/lib/systemd/system/run-bookend-drop.mount"))
	if err != nil {
		return err
	}
	_, after, _ := strings.Cut(string(unit), "\nOptions=")
	options, _, _ := strings.Cut(after, "\n")
	drop := n.in("/run/bookend/drop")
	_, err = command("sh", "-ec", `mkdir -p -m 0711 "$1"; mount -t tmpfs -o "$2" tmpfs "$1"`, "sh", drop, options)
	return err
}

// configure writes what an admin would: where the driver is. Whatever is found would drain.
func (n *node) configure(mode string) error {
	text := fmt.Sprintf("version: 1\nmode: %s\non_unknown: drain\npaths: {sys: %s, dev: %s}\nnvidia: {nvml_library: %s, cuda_library: %s, driver_proc: %s}\n",
		mode, n.world.Sys(), n.world.Dev(), n.world.NVML(), n.world.CUDA(), n.world.DriverProc())
	return os.WriteFile(n.in("/etc/bookend/bookend.yaml"), []byte(text), 0o644)
}

// begins starts a job with a GPU, whose program ends when it is told to.
func (n *node) begins() (cluster.JobID, error) {
	_ = os.Remove(n.signal())
	id, err := n.slurm.Submit(n.user, n.world.FakeCUDA()+" alloc --mib 2000 --sleep 0\necho ready\nwhile [ ! -e go ]; do sleep 0.1; done", oneGPU)
	if err != nil {
		return id, err
	}
	return id, n.until("the job is ready", func() bool {
		text, err := n.slurm.Output(id)
		return err == nil && strings.Contains(text, "\nready\n")
	})
}

func (n *node) signal() string {
	home, _ := n.slurm.Home(n.user)
	return filepath.Join(home, "go")
}

// tells lets a job's program end.
func (n *node) tells() error { return os.WriteFile(n.signal(), nil, 0o644) }

// ends waits for a job's end, epilogs included, and checks what everybody then sees: an idle node, a whole record, both
// reports in the job's log, a line for each end in Bookend's own, and no finding in any of them.
func (n *node) ends(id cluster.JobID) error {
	job, err := n.slurm.Wait(id, patience)
	if err != nil {
		return err
	}
	if job.State != "COMPLETED" {
		return fmt.Errorf("job %s is %s, exit code %s", id, job.State, job.ExitCode)
	}
	return errors.Join(n.isUp(), n.isRecorded(id), n.isReported(id), n.isLogged(id))
}

func (n *node) isUp() error {
	state, err := n.slurm.WaitNode("n1", patience, func(s cluster.NodeState) bool { return s.Has("IDLE") || s.Has("DRAIN") })
	if err == nil && (state.Has("DRAIN") || state.Has("DOWN") || state.Reason != "") {
		err = fmt.Errorf("the node is %v: %q", state.Flags, state.Reason)
	}
	return err
}

func (n *node) isRecorded(id cluster.JobID) error {
	return n.answers([]string{"bookend", "show", "--node", "n1", string(id)}, "start:", "end:", "!BKD-", "!unknown")
}

func (n *node) isReported(id cluster.JobID) error {
	out, err := n.slurm.Output(id)
	return errors.Join(err, says(out, "\n| bookend: ", "GPU 0", "clean")) // an older release has other words
}

func (n *node) isLogged(id cluster.JobID) error {
	text, err := os.ReadFile(n.in("/var/log/bookend/bookend.log"))
	if err != nil {
		return err
	}
	for _, program := range []string{"bookend-prolog", "bookend-epilog"} {
		found := 0
		for line := range strings.Lines(string(text)) {
			fields := " " + strings.TrimSpace(line) + " "
			if strings.Contains(fields, " job="+string(id)+" ") && strings.Contains(fields, " program="+program+" ") {
				found++
				if strings.Contains(line, "BKD-") && (n.known == "" || !strings.Contains(line, n.known)) {
					err = errors.Join(err, errors.New(line))
				}
			}
		}
		if found == 0 {
			err = errors.Join(err, fmt.Errorf("bookend.log has no line of %s for job %s", program, id))
		}
	}
	return err
}

func (n *node) until(what string, done func() bool) error {
	for deadline := time.Now().Add(patience); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("not within %v: %s", patience, what)
		}
	}
	return nil
}

// syslog is what a machine's log daemon would read.
type syslog struct {
	conn *net.UnixConn
	path string
	mu   sync.Mutex
	text strings.Builder
}

// listen is refused where a log daemon runs: its socket is not for tests.
func listen(path string) (*syslog, error) {
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return nil, err
	}
	s := &syslog{conn: conn, path: path}
	go s.read()
	return s, os.Chmod(path, 0o666)
}

func (s *syslog) read() {
	buffer := make([]byte, 64<<10)
	for {
		n, err := s.conn.Read(buffer)
		if err != nil {
			return
		}
		s.mu.Lock()
		s.text.Write(append(buffer[:n:n], '\n'))
		s.mu.Unlock()
	}
}

func (s *syslog) said() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func (s *syslog) close() error { return errors.Join(s.conn.Close(), os.RemoveAll(s.path)) }
