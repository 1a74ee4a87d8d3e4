package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"bookend/test/gpu/record"

	"golang.org/x/sys/unix"
)

// daemon starts programs for jobs as container daemons do: it is root's, lives outside every job, and so does what
// it starts, though that runs as the user who asked.
type daemon struct {
	listener *net.UnixListener
	program  string // the only one it starts
	env      []string

	mu      sync.Mutex
	started []*holder
}

// holder is a program the daemon started.
type holder struct {
	record.Holder
	cmd *exec.Cmd
}

const holderPatience = 30 * time.Second

type askFor struct {
	Card string   `json:"card"` // UUID of the card to use, empty for none
	Args []string `json:"args"`
}

func startDaemon(socket, program string, env []string) (*daemon, error) {
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(socket, 0o666); err != nil {
		return nil, err
	}
	d := &daemon{listener: listener, program: program, env: env}
	go d.serve()
	return d, nil
}

func (d *daemon) serve() {
	for {
		conn, err := d.listener.AcceptUnix()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			line, err := d.answer(conn)
			if err != nil {
				line = "refused: " + err.Error() + "\n"
			}
			_, _ = io.WriteString(conn, line)
		}()
	}
}

// answer starts the program and returns its ready line.
func (d *daemon) answer(conn *net.UnixConn) (string, error) {
	who, err := peer(conn)
	if err != nil {
		return "", err
	}
	// Threat: any local user may connect. One program is ever started, as that user, with words for its flags.
	var a askFor
	if err := json.NewDecoder(io.LimitReader(conn, 4096)).Decode(&a); err != nil {
		return "", err
	}
	if who.Uid == 0 || !regexp.MustCompile(`^(GPU-[0-9a-f-]{36})?$`).MatchString(a.Card) {
		return "", fmt.Errorf("uid %d, card %q", who.Uid, a.Card)
	}
	return d.start(who, a)
}

func peer(conn *net.UnixConn) (*unix.Ucred, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var who *unix.Ucred
	var bad error
	err = raw.Control(func(fd uintptr) { who, bad = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return who, errors.Join(err, bad)
}

func (d *daemon) start(who *unix.Ucred, a askFor) (string, error) {
	cmd := exec.Command(d.program, a.Args...)
	cmd.Env = append(append([]string{}, d.env...), "PATH=/usr/bin:/bin", "CUDA_VISIBLE_DEVICES="+a.Card)
	cmd.Dir, cmd.Stderr = "/", os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: who.Uid, Gid: who.Gid}}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	d.mu.Lock()
	h := &holder{cmd: cmd}
	d.started = append(d.started, h)
	d.mu.Unlock()
	stop := time.AfterFunc(holderPatience, func() { _ = cmd.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if stop.Stop(); err != nil {
		return "", fmt.Errorf("the program was not ready: %q: %w", line, err)
	}
	said := parseReady(line)
	d.mu.Lock()
	h.Holder = record.Holder{
		PID: cmd.Process.Pid, UID: who.Uid, GPU: said["gpu"], Allocated: number(said["bytes"]), Gone: number(said["used"]),
		Cgroup: cgroupOf(cmd.Process.Pid),
	}
	d.mu.Unlock()
	return line, nil
}

// parseReady reads a program's "ready key=value ..." line.
func parseReady(line string) map[string]string {
	said := map[string]string{}
	for word := range strings.FieldsSeq(line) {
		if key, value, ok := strings.Cut(word, "="); ok {
			said[key] = value
		}
	}
	return said
}

func number(text string) uint64 {
	n, _ := strconv.ParseUint(text, 10, 64)
	return n
}

func cgroupOf(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return "unknown: " + err.Error()
	}
	return strings.TrimSpace(string(text))
}

// last is the holder started last.
func (d *daemon) last() (record.Holder, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.started) == 0 {
		return record.Holder{}, false
	}
	return d.started[len(d.started)-1].Holder, true
}

// killAll ends and reaps everything the daemon started.
func (d *daemon) killAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, h := range d.started {
		_ = h.cmd.Process.Kill()
		_ = h.cmd.Wait() // says that it was killed
	}
	d.started = nil
}

func (d *daemon) close() {
	_ = d.listener.Close()
	d.killAll()
}

// ask is the job's side: it prints the started program's ready line.
func ask(socket, card string, args []string) int {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		fmt.Fprintln(os.Stderr, "gpu-lane ask:", err)
		return exitWrong
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(holderPatience))
	if err := json.NewEncoder(conn).Encode(askFor{Card: card, Args: args}); err != nil {
		fmt.Fprintln(os.Stderr, "gpu-lane ask:", err)
		return exitWrong
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "ready ") {
		fmt.Fprintf(os.Stderr, "gpu-lane ask: the daemon said %q: %v\n", line, err)
		return exitWrong
	}
	fmt.Print("daemon: ", line)
	return exitRight
}
