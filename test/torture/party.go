package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/state"
)

// party are the user's own processes that live beside the hooks of a world.
type party struct {
	swapper *swapper
	tracer  *tracer
}

func newParty(w *world) (*party, error) {
	s, err := startAsUser("swapper", w.home, filepath.Join(w.drop, jobFolder), w.kept(""))
	if err != nil {
		return nil, err
	}
	t, err := startAsUser("tracer")
	return &party{&swapper{s}, &tracer{t}}, err
}

func (p *party) leave() { p.swapper.close(); p.tracer.close() }

// servant is this program started again as the user. It is told a line, and answers with a line.
type servant struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	answers *bufio.Reader
}

func startAsUser(args ...string) (*servant, error) {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Args[0] = "torture"
	cmd.Stderr = os.Stderr
	cmd.Dir, cmd.Env = "/", []string{asUser + "=1"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user},
		Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &servant{cmd, in, bufio.NewReader(out)}, cmd.Start()
}

// asUser marks the environment of this program started again as the user.
const asUser = "BOOKEND_TORTURE_AS_USER"

// serveAsUser does not return where this process was started as one of the party.
func serveAsUser() {
	if os.Getenv(asUser) == "" || len(os.Args) < 2 {
		return
	}
	if os.Args[1] == "tracer" {
		trace(os.Stdin, os.Stdout)
	} else {
		swapFreely(os.Args[2], os.Args[3], os.Args[4])
	}
	os.Exit(0)
}

func (s *servant) ask(line string) (string, error) {
	if _, err := io.WriteString(s.in, line+"\n"); err != nil {
		return "", err
	}
	answer, err := s.answers.ReadString('\n')
	return strings.TrimSpace(answer), err
}

func (s *servant) close() {
	_ = s.in.Close()
	_ = s.cmd.Wait()
}

// swapper is the user's process that swaps all the time, without knowing where a hook is.
type swapper struct{ *servant }

func (s *swapper) begin(withDrop bool) error {
	answer, err := s.ask("begin " + strconv.FormatBool(withDrop))
	if err == nil && answer != "begun" {
		err = fmt.Errorf("swapper: %s", answer)
	}
	return err
}

// end returns how often it has swapped.
func (s *swapper) end() (int, error) {
	answer, err := s.ask("end")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(answer)
}

// freely are the things that the free swapper exchanges, with the folders that they are in.
type freely struct {
	dir    int
	name   string
	others []string
}

// swapFreely is the swapper: between "begin" and "end" it puts things in each other's place, and back.
func swapFreely(home, drop, kept string) {
	lines := bufio.NewScanner(os.Stdin)
	spots, err := freeSpots(home)
	if err != nil {
		fmt.Println(err)
		return
	}
	for lines.Scan() {
		all := spots
		if lines.Text() == "begin true" {
			inDrop, err := freeDrop(drop, kept)
			if err != nil {
				fmt.Println(err)
				continue
			}
			all = append(all[:len(all):len(all)], inDrop)
		}
		var stop atomic.Bool
		done := make(chan int)
		go func() { done <- swapUntil(&stop, all) }()
		fmt.Println("begun")
		lines.Scan()
		stop.Store(true)
		fmt.Println(<-done)
		if len(all) > len(spots) {
			_ = unix.Close(all[len(spots)].dir)
		}
	}
}

func freeSpots(home string) ([]freely, error) {
	var spots []freely
	for p, folder := range map[place]string{outFile: "a/b", outFolder: "a", outAbove: ""} {
		dir, err := unix.Open(filepath.Join(home, folder), unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		f := freely{dir: dir, name: map[place]string{outFile: "out", outFolder: "b", outAbove: "a"}[p]}
		for _, k := range kinds {
			if k.where == p && k.plant != nil && !k.known {
				f.others = append(f.others, k.name)
			}
		}
		spots = append(spots, f)
	}
	return spots, nil
}

// freeDrop makes, as the user, what may take the place of a drop record.
func freeDrop(drop, kept string) (freely, error) {
	in := func(name string) string { return filepath.Join(drop, name) }
	text, err := os.ReadFile(in(state.DropFile))
	err = errors.Join(err, os.WriteFile(in("own"), text, 0o600), os.Symlink("../pool-root", in("link")),
		os.Symlink(filepath.Join(kept, "root"), in("far")), unix.Mkfifo(in("fifo"), 0o600), os.Mkdir(in("folder"),
			0o700))
	if err != nil {
		return freely{}, err
	}
	dir, err := unix.Open(drop, unix.O_PATH|unix.O_CLOEXEC, 0)
	return freely{dir, state.DropFile, []string{"own", "link", "far", "fifo", "folder"}}, err
}

func swapUntil(stop *atomic.Bool, spots []freely) (swaps int) {
	for i := 0; !stop.Load(); i++ {
		s := spots[i%len(spots)]
		other := s.others[i/len(spots)%len(s.others)]
		for range 2 { // there and back
			if unix.Renameat2(s.dir, s.name, s.dir, other, unix.RENAME_EXCHANGE) == nil {
				swaps++
			}
		}
		if i%8 == 7 {
			time.Sleep(5 * time.Millisecond) // the hooks need a processor, too
		}
	}
	return swaps
}
