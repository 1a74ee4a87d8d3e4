package stage

import (
	"fmt"
	"io"
	"os"

	"bookend/internal/confine"
)

// maxOwnFile bounds files of our own process in /proc: a cgroup file has a dozen lines.
const maxOwnFile = 64 << 10

// ServeChild serves as the program's own child, when it was started as one. own are the operations that only this
// program has, nil for none.
func ServeChild(env Env, own Operations) (exit int, done bool) {
	if len(env.Args) == 3 && env.Args[1] == "--child" {
		confined(env)
		return childMain(env, env.Args[2], own), true
	}
	return 0, false
}

// confined makes a process of root's give up what it does not need. Where that fails it is said, and the work goes on: it
// is a second line of defence. A user's own hook has nothing to hide from that user.
func confined(env Env) {
	if env.EUID != 0 {
		return
	}
	if err := confine.Process(); err != nil {
		fmt.Fprintf(env.Stderr, "bookend: %v\n", err)
	}
}

// preamble is what every hook program does first: it serves as its own child, or says its version.
func preamble(env Env, name string) (exit int, done bool) {
	if len(env.Args) < 2 {
		return 0, false
	}
	if exit, done := ServeChild(env, nil); done {
		return exit, done
	}
	if env.Args[1] == "--version" {
		fmt.Fprintf(env.Stdout, "%s %s\n", name, env.Version)
		return 0, true
	}
	fmt.Fprintf(env.Stderr, "%s: Slurm runs this program, without arguments; see bookend help\n", name)
	return 0, true
}

// readOwn reads a file about this very process: the kernel answers it without waiting for anybody.
func readOwn(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read %q: %w", path, err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxOwnFile))
	if err != nil {
		return "", fmt.Errorf("read %q: %w", path, err)
	}
	return string(b), nil
}
