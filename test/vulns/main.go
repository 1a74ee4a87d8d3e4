// Command vulns looks for known vulnerabilities in what the programs really call, with the Go project's govulncheck.
//
//	vulns [PACKAGE ...]
//
// It is run in the root of the tree, by make lint. VULNDB is the database: a URL, or a folder with a copy of it for
// machines without a way out; without VULNDB it is the public one. Where that cannot be reached this says so and is
// content, unless CHECK_VULNERABILITIES=must.
// Exit codes: 0 none was found, or nothing could be checked, 1 one was found, 2 the check failed, or must be made and
// could not.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

const (
	exitFound  = 1
	exitFailed = 2
)

// public is the Go project's own database.
const public = "https://vuln.go.dev"

const (
	patience = 5 * time.Second // for the database to answer at all
	longest  = 5 * time.Minute // for the whole check; it takes some ten seconds
)

// answersFound is govulncheck's exit code when the programs call something vulnerable.
const answersFound = 3

// unreached is how govulncheck says that the database is none, or went away while it was asked.
var unreached = regexp.MustCompile(`(?m)^(govulncheck: fetching vulnerabilities|creating client): `)

// errUnreached: nothing could be checked.
var errUnreached = errors.New("the database cannot be reached")

func main() {
	patterns := os.Args[1:]
	if len(patterns) == 0 {
		patterns = []string{"./..."}
	}
	must := os.Getenv("CHECK_VULNERABILITIES") == "must"
	os.Exit(run(os.Stdout, os.Getenv("VULNDB"), must, patterns))
}

// run checks, says what came of it, and returns the exit code.
func run(w io.Writer, db string, must bool, patterns []string) int {
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	db = address(db)
	found, err := check(ctx, w, db, patterns)
	switch {
	case errors.Is(err, errUnreached):
		fmt.Fprintf(w, "\n*** vulnerabilities NOT checked: %v\n", err)
		fmt.Fprintf(w, "*** Set VULNDB to a copy of %s (a URL, or a folder) to have them checked without it.\n\n", public)
		if must {
			return exitFailed
		}
	case err != nil:
		fmt.Fprintln(w, "vulns:", err)
		return exitFailed
	case found:
		return exitFound
	}
	return 0
}

// address makes a URL of what VULNDB says.
func address(db string) string {
	switch {
	case db == "":
		return public
	case strings.Contains(db, "://"):
		return strings.TrimSuffix(db, "/")
	}
	if absolute, err := filepath.Abs(db); err == nil {
		db = absolute
	}
	return "file://" + db
}

// check runs govulncheck where the database answers.
func check(ctx context.Context, w io.Writer, db string, patterns []string) (found bool, err error) {
	if err := reach(ctx, db); err != nil {
		return false, fmt.Errorf("%w: %s: %w", errUnreached, db, err)
	}
	args := append([]string{"tool", "-modfile=test/tools/go.mod", "govulncheck", "-db", db}, patterns...)
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		fmt.Fprintf(w, "no known vulnerability is called, says %s\n", db)
		return false, nil
	case errors.As(err, &exit) && exit.ExitCode() == answersFound:
		fmt.Fprintf(w, "%s", out.Bytes())
		return true, nil
	case unreached.Match(out.Bytes()):
		return false, fmt.Errorf("%w: %s", errUnreached, bytes.TrimSpace(out.Bytes()))
	}
	return false, fmt.Errorf("run govulncheck: %w\n%s", err, out.Bytes())
}

// reach asks for the database's smallest file, in the form in which it will be read.
func reach(ctx context.Context, db string) error {
	if folder, ok := strings.CutPrefix(db, "file://"); ok {
		_, err := os.ReadFile(filepath.Join(folder, "index", "db.json"))
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, db+"/index/db.json.gz", nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("it answers %s", answer.Status)
	}
	return nil
}
