package stage

import (
	"fmt"
	"time"

	"bookend/internal/judge"
	"bookend/internal/operation"
	"bookend/internal/session"
)

// Env is the outside world as a main hands it over.
type Env = operation.Env

// preamble is what every hook program does first: it serves as its own child, or says its version.
func preamble(env Env, name string) (exit int, done bool) {
	if len(env.Args) < 2 {
		return 0, false
	}
	if exit, done := operation.ServeChild(env, nil); done {
		return exit, done
	}
	if env.Args[1] == "--version" {
		fmt.Fprintf(env.Stdout, "%s %s\n", name, env.Version)
		return 0, true
	}
	fmt.Fprintf(env.Stderr, "%s: Slurm runs this program, without arguments; see bookend help\n", name)
	return 0, true
}

// What programs of the command line use of the hooks' own ways: where it is defined says what it does.
type (
	Operations = operation.Others
	Readers    = operation.Readers
	Glance     = session.Glance
)

// These too.
var (
	ServeChild    = operation.ServeChild
	StuckText     = operation.StuckText
	Holdings      = operation.Holdings
	JobsOnCards   = operation.JobsOnCards
	GPUCount      = operation.GPUCount
	ReadSharing   = operation.ReadSharing
	ReadNumbering = session.ReadNumbering
	ReadConfig    = session.ReadConfig
	LoadConfig    = session.LoadConfig
	Snapshot      = session.Snapshot
	Look          = session.Look
	Limits        = judge.Limits
)

// Served makes a typed function an operation of one program.
func Served[Req, Rep any](f func(Req) (Rep, error)) func([]byte) (any, error) {
	return operation.Served(f)
}

// Ask has one of a program's own operations done in a child.
func Ask[Rep any](op string, req any, timeout time.Duration) (Rep, error) {
	return operation.Ask[Rep](op, req, timeout)
}
