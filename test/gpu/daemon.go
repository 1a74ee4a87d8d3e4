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
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// daemon starts programs for jobs as container daemons do: it is root's, lives outside every job, and so does what
// it starts, though that runs as the user who asked.
type daemon struct {
	listener *net.UnixListener
	programs map[string][]string // by name: the only ones it starts
	env      []string
	fake     bool
	mark     string // a setting in the environment of all it starts, by which that is found again

	mu      sync.Mutex
	started []*holder
}

// contained is cudajob in a PID namespace of its own, which root makes for it as container daemons do.
const contained = "contained"

const holderPatience = 60 * time.Second // PyTorch's first import takes some 20 s

// askFor is a request: one of the daemon's programs, with its arguments.
type askFor struct {
	Card    string   `json:"card"` // UUID of the card to use, empty for none
	Program string   `json:"program"`
	Args    []string `json:"args"`
}

func startDaemon(socket string, programs map[string][]string, env []string, fake bool) (*daemon, error) {
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(socket, 0o666); err != nil {
		return nil, err
	}
	d := &daemon{listener: listener, programs: programs, env: env, fake: fake, mark: "BOOKEND_LANE_DAEMON=" + socket}
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
	// Threat: any local user may connect. Known programs alone are started, as that user, with words for their flags.
	var a askFor
	if err := json.NewDecoder(io.LimitReader(conn, 4096)).Decode(&a); err != nil {
		return "", err
	}
	if who.Uid == 0 {
		return "", errors.New("root has no job here")
	}
	h, err := d.start(who.Uid, who.Gid, a)
	if err != nil {
		return "", err
	}
	return h.line, nil
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

// start runs a program until it says that it is ready.
func (d *daemon) start(uid, gid uint32, a askFor) (*holder, error) {
	argv := append(slices.Clone(d.programs[a.Program]), a.Args...)
	if len(d.programs[a.Program]) == 0 || !regexp.MustCompile(`^(GPU-[0-9a-f-]{36})?$`).MatchString(a.Card) {
		return nil, fmt.Errorf("program %q, GPU %q", a.Program, a.Card)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(slices.Clone(d.env), "CUDA_VISIBLE_DEVICES="+a.Card, d.mark)
	cmd.Dir, cmd.Stderr = "/", os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: uid, Gid: gid}}
	switch {
	case a.Program != contained:
	case d.fake: // the fake driver learns a program's PID from the /proc of the host
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID
	default:
		cmd.Path, cmd.Args = "/proc/self/exe", append([]string{"gpu-lane", "inside", fmt.Sprint(uid), fmt.Sprint(gid)},
			argv...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	h := &holder{cmd: cmd}
	d.mu.Lock()
	err = cmd.Start()
	if err == nil {
		d.started = append(d.started, h)
	}
	d.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return h, d.await(h, out, uid)
}

// await reads the program's ready line.
func (d *daemon) await(h *holder, out io.Reader, uid uint32) error {
	stop := time.AfterFunc(holderPatience, func() { _ = h.cmd.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if stop.Stop(); err != nil || !strings.HasPrefix(line, "ready ") {
		return fmt.Errorf("the program was not ready: %q: %v", line, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	h.ready(line, uid)
	return nil
}

// since are the holders that were started after the first n.
func (d *daemon) since(n int) []*holder {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.started[min(n, len(d.started)):])
}

func (d *daemon) count() int { return len(d.since(0)) }

// killAll ends everything the daemon started, with all that came of it, and reaps what is its own.
func (d *daemon) killAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, h := range d.started {
		h.kill()
	}
	for _, pid := range marked(d.mark) {
		// Threat: the PID may be another's by now. A mark in the environment was read a moment ago, and nobody
		// but the lane's own programs has it.
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	d.started = nil
}

func (d *daemon) close() {
	_ = d.listener.Close()
	d.killAll()
}

// ask is the job's side: it prints the started program's ready line.
func ask(socket, program, card string, args []string) int {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		fmt.Fprintln(os.Stderr, "gpu-lane ask:", err)
		return exitWrong
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(holderPatience))
	if err := json.NewEncoder(conn).Encode(askFor{Card: card, Program: program, Args: args}); err != nil {
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
