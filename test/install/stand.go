package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"bookend/test/cluster"
	"bookend/test/fakegpu"
)

const patience = 2 * time.Minute

// node is what a Debian is given: two fake GPUs, a log daemon, and a Slurm once it is asked for.
type node struct {
	dir, root string
	world     *fakegpu.World
	slurm     *cluster.Cluster
	user      string
	asked     *bufio.Scanner
}

// stand gives a Debian in root what it needs, with its files in dir, and answers each line of its input with a line that
// begins with "ok" or "error". All goes when the input ends.
func stand(dir, root string) (err error) {
	n := &node{dir: dir, root: root, asked: bufio.NewScanner(os.Stdin)}
	n.user = cluster.Users(1)[0]
	if n.world, err = fakegpu.New(filepath.Join(dir, "world"), fakegpu.GPUs(2)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.world.Close()) }()
	if err := n.world.StartKeeper(); err != nil {
		return err
	}
	// Refused where a log daemon runs: its socket is not for tests.
	log, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: "/dev/log", Net: "unixgram"})
	if err != nil {
		return err
	}
	defer os.Remove("/dev/log")
	go keepLog(log, filepath.Join(dir, "syslog"))
	w := n.world
	driver := fmt.Sprintf("paths: {sys: %s, dev: %s}\nnvidia: {nvml_library: %s, cuda_library: %s, driver_proc: %s}\n",
		w.Sys(), w.Dev(), w.NVML(), w.CUDA(), w.DriverProc())
	if err := errors.Join(os.Chmod("/dev/log", 0o666),
		os.WriteFile(filepath.Join(dir, "driver.yaml"), []byte(driver), 0o644)); err != nil {
		return err
	}
	fmt.Println("ok")
	defer func() { err = errors.Join(err, n.down()) }()
	for n.asked.Scan() {
		if said, err := n.answer(strings.Fields(n.asked.Text())); err != nil {
			fmt.Println("error", oneLine(err))
		} else {
			fmt.Println("ok", said)
		}
	}
	return nil
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// keepLog writes what a machine's log daemon would read to a file.
func keepLog(log *net.UnixConn, path string) {
	file, err := os.Create(path)
	buffer := make([]byte, 64<<10)
	for n := 0; err == nil; _, err = file.Write(append(buffer[:n:n], '\n')) {
		if n, err = log.Read(buffer); err != nil {
			return
		}
	}
	fmt.Fprintln(os.Stderr, "install-test: syslog:", err)
}

func (n *node) answer(words []string) (string, error) {
	arg := strings.Join(words[1:], " ")
	switch words[0] {
	case "slurm":
		return "", n.up()
	case "driver": // CALL BEHAVIOUR; see fakegpu's World.Set
		call, how, _ := strings.Cut(arg, " ")
		return "", n.world.Set(call, how)
	case "submit": // FILE
		script, err := os.ReadFile(arg)
		if err != nil {
			return "", err
		}
		id, err := n.slurm.Submit(n.user, string(script), "--gres=gpu:1")
		return string(id), err
	case "output": // JOB
		job, err := n.slurm.Job(cluster.JobID(arg))
		return job.StdOut, err
	case "ends": // JOB, whose epilog has run then
		job, err := n.slurm.Wait(cluster.JobID(arg), patience)
		return job.State, err
	case "node": // once nothing is going on there
		s, err := n.slurm.WaitNode("n1", patience, func(s cluster.NodeState) bool { return s.Has("IDLE") || s.Has("DRAIN") })
		return strings.Join(s.Flags, "+") + " " + s.Reason, err
	}
	return "", fmt.Errorf("no such request: %q", words)
}

// up brings Slurm up. Before a daemon reads slurm.conf the Debian may change it: it is told its path, and says "go".
func (n *node) up() (err error) {
	n.slurm, err = cluster.Up(cluster.Options{
		Dir: filepath.Join(n.dir, "slurm"), Root: n.root, OwnRoot: true, Binds: []string{n.world.Dir()},
		Nodes: []cluster.Node{{Name: "n1", Devices: []string{n.world.Node(0), n.world.Node(1)}}},
		Before: func(conf string) error {
			if fmt.Println("ok", conf); !n.asked.Scan() || n.asked.Text() != "go" {
				return errors.New("slurm.conf could not be changed")
			}
			return nil
		},
	})
	return err
}

func (n *node) down() error {
	if n.slurm == nil {
		return nil
	}
	return errors.Join(n.slurm.EndLeftovers(), n.slurm.Down())
}
