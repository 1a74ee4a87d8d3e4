// Command versions runs the end-to-end tests on several releases of Slurm and with each way to track processes, and
// lists what passed. The releases are Debian's own packages; test/install-slurm.sh brings them. A run is
// kept in test/e2e/results, a failed one too; each run's whole output is in build/.
//
//	go run ./test/e2e/versions -slurm all
//	go run ./test/e2e/versions -slurm 24.11,26.05
//	go run ./test/e2e/versions -page       the table of what ran where in docs/admin.md, from the kept results and nothing else
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"bookend/test/cluster"
)

// releases are those that Debian has, oldest first, and where.
var releases = []struct{ branch, from string }{
	{"22.05", "Debian 12"}, {"24.11", "Debian 13"}, {"26.05", "Debian 14 (in the making)"},
}

func main() {
	slurm := flag.String("slurm", "all", "releases of Slurm, separated by commas, or all")
	page := flag.Bool("page", false, "only write the table of docs/admin.md, from the kept results")
	flag.Parse()
	var err error
	if *page {
		var text string
		if text, err = rendered("."); err == nil {
			err = os.WriteFile(tablePage, []byte(text), 0o644)
		}
	} else {
		err = runAll(*slurm)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "versions:", err)
		os.Exit(1)
	}
}

func runAll(slurm string) error {
	commit, err := commit() // before results that are kept change the tree
	if err != nil {
		return err
	}
	ran := 0
	var errs []error
	for _, r := range releases {
		if slurm == "all" || strings.Contains(","+slurm+",", ","+r.branch+",") {
			ran++
			errs = append(errs, runRelease(Run{Slurm: r.branch, Slurms: r.from, Host: host(), Commit: commit}))
		}
	}
	if ran == 0 {
		return fmt.Errorf("releases %q: want some of %v, or all", slurm, releases)
	}
	return errors.Join(errs...)
}

// runRelease runs the tests with each way to track side by side: they wait most of the time, and clusters keep out of
// each other's cgroups.
func runRelease(release Run) error {
	root, err := install(release.Slurm)
	if err != nil {
		return err
	}
	version, err := cluster.VersionIn(root)
	if err != nil {
		return err
	}
	release.Slurm, release.Date = version.String(), time.Now().UTC().Truncate(time.Second)
	tracks := cluster.Tracks()
	fmt.Printf("Slurm %v of %s, %v\n", version, root, tracks)
	errs := make([]error, len(tracks))
	var all sync.WaitGroup
	for i, track := range tracks {
		all.Go(func() {
			r := release
			r.Track, r.Paths = string(track), paths(version, track)
			if r.Tests, errs[i] = test(root, r); errs[i] == nil {
				r.Seconds = time.Since(release.Date).Seconds()
				errs[i] = r.end()
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// end tells how a run went and keeps it.
func (r Run) end() error {
	fmt.Printf("  %s: %s\n%s", r.Track, r.cell(), notes([]Run{r}))
	err := r.write(kept)
	if n := r.count(Failed); n > 0 || len(r.Tests) == 0 {
		err = errors.Join(err, fmt.Errorf("%d failed on Slurm %s with %s", n, r.Slurm, r.Track))
	}
	return err
}

// install provides a release; the answer is its root directory.
func install(branch string) (root string, err error) {
	cmd := exec.Command("test/install-slurm.sh", "--version", branch)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	_, root, ok := strings.Cut(strings.TrimSpace(string(out)), "BOOKEND_SLURM_ROOT=")
	if err != nil || !ok {
		return "", fmt.Errorf("install Slurm %s: %q, %w", branch, out, err)
	}
	return root, nil
}

// test runs the tests; that some failed is no error.
func test(root string, r Run) ([]Test, error) {
	args := []string{"test", "-json", "-count=1", "-timeout=60m"}
	if r.Track != string(cluster.LinuxProc) {
		args = append(args, "-parallel=1") // clusters with nodes of the same names share their cgroups
	}
	cmd := exec.Command("go", append(args, "./test/e2e")...)
	cmd.Env = append(os.Environ(), "BOOKEND_SLURM_ROOT="+root, "BOOKEND_E2E_TRACK="+r.Track)
	cmd.Stderr = os.Stderr
	out, failed := cmd.Output()
	tests, text := readTests(out)
	log := filepath.Join("build", "e2e-"+r.name()+".log")
	if err := errors.Join(os.MkdirAll("build", 0o755), os.WriteFile(log, []byte(text), 0o644)); err != nil {
		return nil, err
	}
	return blame(tests, failed), nil
}

// paths is how a job's cgroup is called, which TestNamesOfCgroups checks.
func paths(v cluster.Version, track cluster.Track) string {
	switch {
	case track == cluster.LinuxProc:
		return ""
	case track == cluster.CgroupV2 && v.Since(26, 5):
		return "SLUID"
	}
	return "job_N"
}

// commit is what the tree is at, with "+" behind it where files differ.
func commit() (string, error) {
	out, err := exec.Command("git", "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+").Output()
	if err != nil {
		return "", fmt.Errorf("tell the commit: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// host is the system and kernel that the tests run on.
func host() string {
	system := "Linux"
	text, _ := os.ReadFile("/etc/os-release")
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(line, "PRETTY_NAME="); ok {
			system = strings.Trim(strings.TrimSpace(name), `"`)
		}
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		release, _, _ := strings.Cut(string(bytes.TrimRight(u.Release[:], "\x00")), "-")
		system += ", kernel " + release
	}
	return system
}
