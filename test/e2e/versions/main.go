// Command versions runs the end-to-end tests on several releases of Slurm and with each way to track processes, and lists
// what passed. The releases are Debian's own packages; test/install-slurm.sh brings them. A run of all tests is kept in
// test/e2e/results, a failed one too; each run's whole output is in build/. What fails is run once more, alone.
//
//	go run ./test/e2e/versions -slurm all
//	go run ./test/e2e/versions -slurm 24.11,26.05 -track cgroup/v2 -run TestRequeue
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"bookend/test/cluster"
	"bookend/test/e2e/results"
)

// releases are those that Debian has, oldest first, and where.
var releases = []struct{ branch, from string }{
	{"22.05", "Debian 12"}, {"24.11", "Debian 13"}, {"26.05", "Debian 14 (in the making)"},
}

func main() {
	slurm := flag.String("slurm", "all", "releases of Slurm, separated by commas, or all")
	track := flag.String("track", "all", "ways to track processes (linuxproc, cgroup/v1, cgroup/v2), or all that this host can")
	only := flag.String("run", "", "only the tests that match, as go test understands it; nothing is kept then")
	flag.Parse()
	runs, err := runAll(*slurm, *track, *only)
	fmt.Print("\n", results.List(runs))
	for _, r := range runs {
		if r.Count(results.Failed) > 0 || len(r.Tests) == 0 {
			err = errors.Join(err, fmt.Errorf("%d failed on Slurm %s with %s", r.Count(results.Failed), r.Slurm, r.Track))
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "versions:", err)
		os.Exit(1)
	}
}

func runAll(slurm, track, only string) (runs []results.Run, err error) {
	branches, tracks, err := choose(slurm, track)
	if err != nil {
		return nil, err
	}
	commit, err := commit() // results that are kept change the tree
	if err != nil {
		return nil, err
	}
	for _, branch := range branches {
		root, err := install(branch)
		if err != nil {
			return runs, err
		}
		of, err := runRelease(branch, root, commit, tracks, only)
		runs = append(runs, of...)
		if err != nil {
			return runs, err
		}
	}
	return runs, nil
}

// runRelease runs the tests with each way to track side by side: they wait most of the time, and clusters keep out of each
// other's cgroups. What failed is run again alone.
func runRelease(branch, root, commit string, tracks []cluster.Track, only string) ([]results.Run, error) {
	version, err := cluster.VersionIn(root)
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(version.String(), branch+".") {
		return nil, fmt.Errorf("below %s is Slurm %v, not %s", root, version, branch)
	}
	runs, errs := make([]results.Run, len(tracks)), make([]error, len(tracks))
	var all sync.WaitGroup
	for i, track := range tracks {
		runs[i] = results.Run{
			Slurm: version.String(), Track: string(track), Paths: paths(version, track), Slurms: from(branch), Host: host(),
			Commit: commit, Date: time.Now().UTC().Truncate(time.Second),
		}
		fmt.Printf("Slurm %v of %s, %s\n", version, root, track)
		all.Go(func() { errs[i] = runOne(&runs[i], root, logOf(branch, track), only) })
	}
	all.Wait()
	for i, track := range tracks {
		if errs[i] == nil {
			errs[i] = finish(&runs[i], root, logOf(branch, track), only)
		}
	}
	return runs, errors.Join(errs...)
}

func logOf(branch string, track cluster.Track) string {
	return filepath.Join("build", "e2e-"+branch+"-"+strings.ReplaceAll(string(track), "/", "-")+".log")
}

// choose reads the two lists.
func choose(slurm, track string) (branches []string, tracks []cluster.Track, err error) {
	for _, r := range releases {
		branches = append(branches, r.branch)
	}
	if slurm != "all" {
		known := branches
		branches = strings.Split(slurm, ",")
		for _, b := range branches {
			if !slices.Contains(known, b) {
				return nil, nil, fmt.Errorf("release %q: want some of %q, or all", b, known)
			}
		}
	}
	if tracks, err = cluster.Tracks(); err != nil || track == "all" {
		return branches, tracks, err
	}
	can := tracks
	tracks = nil
	for name := range strings.SplitSeq(track, ",") {
		if !slices.Contains(can, cluster.Track(name)) {
			return nil, nil, fmt.Errorf("way to track %q: this host can %q", name, can)
		}
		tracks = append(tracks, cluster.Track(name))
	}
	return branches, tracks, nil
}

// install provides a release; the answer is its root folder.
func install(branch string) (root string, err error) {
	cmd := exec.Command("test/install-slurm.sh", "--version", branch)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("install Slurm %s: %w", branch, err)
	}
	_, root, ok := strings.Cut(strings.TrimSpace(string(out)), "BOOKEND_SLURM_ROOT=")
	if !ok {
		return "", fmt.Errorf("install Slurm %s: the script said %q", branch, out)
	}
	return root, nil
}

func runOne(r *results.Run, root, log, only string) (err error) {
	start := time.Now()
	r.Tests, err = test(root, cluster.Track(r.Track), only, log)
	r.Seconds = time.Since(start).Seconds()
	return err
}

// finish runs again what failed, alone, tells how the run went and keeps it.
func finish(r *results.Run, root, log, only string) error {
	if again := r.Failed(); len(again) > 0 && len(again) <= mostAgain {
		fmt.Printf("  %s again, alone: %s\n", r.Track, strings.Join(again, " "))
		second, err := test(root, cluster.Track(r.Track), "^("+strings.Join(again, "|")+")$", log+".again")
		if err != nil {
			return err
		}
		r.Retry(second)
	}
	fmt.Printf("  %s: %d passed, %d failed, %d left out in %.0f s: %s\n",
		r.Track, r.Count(results.Passed), r.Count(results.Failed), r.Count(results.LeftOut), r.Seconds, log)
	if only == "" {
		return r.Write(results.Folder)
	}
	return nil
}

// mostAgain is how many tests may fail and be run again: a busy machine makes some of them late. More are no accident.
const mostAgain = 5

// test runs the tests; that some failed is no error.
func test(root string, track cluster.Track, only, logFile string) ([]results.Test, error) {
	args := []string{"test", "-json", "-count=1", "-timeout=60m"}
	if only != "" {
		args = append(args, "-run", only)
	}
	if track != cluster.LinuxProc {
		args = append(args, "-parallel=1") // clusters with nodes of the same names share their cgroups
	}
	cmd := exec.Command("go", append(args, "./test/e2e")...)
	cmd.Env = append(os.Environ(), "BOOKEND_SLURM_ROOT="+root, "BOOKEND_E2E_TRACK="+string(track))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(logFile), 0o755); err != nil {
		return nil, err
	}
	log, err := os.Create(logFile)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	tests, err := results.Read(out, log)
	return results.Blame(tests, cmd.Wait()), err
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

func from(branch string) string {
	for _, r := range releases {
		if r.branch == branch {
			return r.from
		}
	}
	return ""
}

// commit is what the tree is at, with "+" behind it where files differ.
func commit() (string, error) {
	id, err := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return "", fmt.Errorf("tell the commit: %w", err)
	}
	changed, err := exec.Command("git", "status", "--porcelain").Output()
	if err != nil {
		return "", fmt.Errorf("tell what differs from the commit: %w", err)
	}
	if len(changed) > 0 {
		return strings.TrimSpace(string(id)) + "+", nil
	}
	return strings.TrimSpace(string(id)), nil
}

// host is the system and kernel that the tests run on, and how it mounts cgroups.
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
