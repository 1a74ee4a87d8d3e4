// Command page makes records by running the real hooks on fake GPUs, spreads them over days, and makes report pages of
// them: for tests, and for the screenshots of "make page-look".
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"bookend/test/build"
	"bookend/test/cluster"
)

func main() {
	out := flag.String("out", "", "directory for the records and the pages; made again")
	flag.Parse()
	if *out == "" || flag.NArg() != 0 {
		flag.Usage()
		os.Exit(64)
	}
	if err := run(*out); err != nil {
		fmt.Fprintln(os.Stderr, "page:", err)
		os.Exit(1)
	}
}

// scene is a set of records with its page.
type scene struct {
	name    string
	records func(*machine) ([]record, error)
}

var scenes = []scene{
	{"week", week},
	{"one", one},
}

func run(out string) error {
	scratch, err := cluster.Scratch()
	if err != nil {
		return err
	}
	defer cluster.Remove(scratch)
	programs := filepath.Join(scratch, "libexec")
	if err := build.Programs(programs, "", build.Shipped...); err != nil {
		return err
	}
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	for _, s := range scenes {
		if err := s.make(scratch, programs, filepath.Join(out, s.name)); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return crowd(filepath.Join(out, "week"), filepath.Join(out, "crowd"), programs)
}

// make makes one scene's records and page in a folder.
func (s scene) make(scratch, programs, folder string) error {
	m, err := newMachine(filepath.Join(scratch, s.name), programs)
	if err != nil {
		return err
	}
	defer m.close()
	made, err := s.records(m)
	if err != nil {
		return err
	}
	if err := write(folder, made); err != nil {
		return err
	}
	return page(programs, folder)
}

// page has the command line make the page of a folder of records.
func page(programs, folder string) error {
	cmd := exec.Command(filepath.Join(programs, "bookend"), "report", "--records", folder, "--html",
		filepath.Join(folder, "page.html"))
	cmd.Env = []string{"TZ=UTC"}
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("bookend report: %w: %s", err, text)
	}
	return nil
}
