// Command bookend-gpu is the NVIDIA backend: one request on stdin, JSON lines on stdout (package wire), then
// it ends. It is the only program of Bookend that runs the vendor's code, and so the one that may crash, hang
// or be killed; whoever starts it treats that as an answer. It reads nothing but its stdin and the driver.
//
// A test allocation (op probe) asks CUDA for the largest block of memory that one call gives, where NVML says that
// nobody else is on the card, and gives it back at once. CUDA starts beside NVML, as that is what takes the time. It
// makes no context, is never a client of MPS, holds the card's lock while it has
// memory, and never asks for more than is free. See probe.go for the order of things, probe_search.go for the search,
// probe_card.go for what forbids a test and cuda_errors.go for what the driver's codes mean.
//
// Build it lazily bound: go-nvml leaves some 400 driver functions to be resolved when called, and a program
// that resolves them at start dies on every driver that lacks one of them.
//
//	go build -trimpath -ldflags '-X main.version=1.2.3 -extldflags=-Wl,-z,lazy' -o bookend-gpu ./cuda
//
// Exit codes: 0 answered (a fault of the driver is an answer), 1 the request could not be served, 3 stdin was
// closed before the answer was complete; SIGALRM at the deadline; 127 the driver lacks a function that was
// called nevertheless.
package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"bookend/internal/routine"
	"bookend/internal/wire"

	"golang.org/x/sys/unix"
)

var version = "devel" // set by the linker

// patience is how long the request may take to arrive: it is in the pipe before this program starts.
const patience = 5 * time.Second

const (
	exitAnswered = 0
	exitRefused  = 1
	exitStopped  = 3
)

func main() {
	if len(os.Args) > 1 {
		os.Exit(arguments(os.Args[1:]))
	}
	err := answer()
	if err != nil && stopping.Load() {
		os.Exit(exitStopped) // the error is that of an output that stop closed
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bookend-gpu:", err)
		os.Exit(exitRefused)
	}
	// No nvmlShutdown: it costs 3 to 6 ms, and the driver cleans up after a process anyway.
	os.Exit(exitAnswered)
}

func arguments(args []string) int {
	if len(args) == 1 && args[0] == "--version" {
		fmt.Println("bookend-gpu", version)
		return exitAnswered
	}
	fmt.Fprintln(os.Stderr, "bookend-gpu: takes no arguments but --version: it reads a request from stdin")
	return exitRefused
}

// answer reads the request and serves it, under an alarm from the first byte on.
func answer() error {
	runtime.LockOSThread() // the alarm is unblocked on this thread
	if err := setAlarm(patience); err != nil {
		return err
	}
	out := wire.NewWriter(os.Stdout)
	req, err := wire.ReadRequest(os.Stdin)
	if err != nil {
		return errors.Join(err, refuse(out, err))
	}
	if err := setAlarm(req.Deadline()); err != nil {
		return err
	}
	routine.Go(func(p *routine.Panic) { stop() }, awaitHangUp)
	return serve(req, out, routine.SystemClock().Boot)
}

// refuse names this program's protocol version to a hook that speaks another one.
func refuse(out *wire.Writer, err error) error {
	var problem *wire.Error
	if errors.As(err, &problem) && problem.Problem == wire.WrongVersion {
		return out.Write(hello())
	}
	return nil
}

// awaitHangUp ends the process when nobody waits for the answer any more: the hook that asked holds the other
// end of stdin. Its thread is never inside the driver, so the alarm always finds one that can take it.
func awaitHangUp() {
	runtime.LockOSThread()
	if err := unblockAlarm(); err == nil {
		_, _ = os.Stdin.Read(make([]byte, 1)) // the end, an error or a second request: all mean stop
	}
	stop()
}

var stopping atomic.Bool

// stop closes the outputs first: a thread stuck in the driver keeps the process, and with it these
// descriptors, alive after the exit, and whoever reads them would wait for it.
func stop() {
	stopping.Store(true)
	_ = unix.Close(1)
	_ = unix.Close(2)
	os.Exit(exitStopped)
}
