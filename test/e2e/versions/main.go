// Command versions runs the end-to-end tests on several releases of Slurm and with each way to track processes, and
// lists what passed. The releases are Debian's own packages; test/install-slurm.sh brings them. A run is
// kept in test/e2e/results, a failed one too; each run's whole output is in build/.
//
//	go run ./test/e2e/versions -slurm all
//	go run ./test/e2e/versions -slurm 24.11,26.05
//	go run ./test/e2e/versions -page       the table of what ran where in docs/admin.md, from the kept results and nothing else
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"bookend/test/cluster"
	"bookend/test/rig"
)

// releases are those that Debian has, oldest first, and where.
var releases = []struct{ branch, from string }{
	{"22.05", "Debian 12"}, {"24.11", "Debian 13"}, {"26.05", "Debian 14 (in the making)"},
}

func main() {
	slurm := flag.String("slurm", "all", "releases of Slurm, separated by commas, or all")
	page := flag.Bool("page", false, "only write the table of docs/admin.md, from the kept results")
	flag.Parse()
	err := rig.Attempt(func() {
		if *page {
			rig.Try(os.WriteFile(tablePage, []byte(rendered(".")), 0o644))
		} else {
			runAll(*slurm)
		}
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "versions:", err)
		os.Exit(1)
	}
}

func said(name string, args ...string) string {
	cmd := exec.Command(name, args...)
	cmd.Stderr = os.Stderr
	return strings.TrimSpace(string(rig.Have(cmd.Output())))
}

// hostIs has the shell name the system and kernel that the tests run on.
const hostIs = `. /etc/os-release; echo "$PRETTY_NAME, kernel $(uname -r | cut -d- -f1)"`

func runAll(slurm string) {
	// of the commit "+" says that files differ; results that are kept change the tree
	commit := said("git", "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+")
	host := said("sh", "-c", hostIs)
	ran, failed := 0, 0
	for _, r := range releases {
		if slurm == "all" || strings.Contains(","+slurm+",", ","+r.branch+",") {
			ran++
			failed += runRelease(Run{Slurm: r.branch, Slurms: r.from, Host: host, Commit: commit})
		}
	}
	if ran == 0 || failed > 0 {
		panic(fmt.Errorf("%d runs with failures; releases %q, of %v", failed, slurm, releases))
	}
}

// runRelease runs the tests with each way to track side by side: they wait most of the time, and clusters keep out of
// each other's cgroups. It counts the runs in which something failed.
func runRelease(release Run) int {
	_, root, _ := strings.Cut(said("test/install-slurm.sh", "--version", release.Slurm), "BOOKEND_SLURM_ROOT=")
	version := rig.Have(cluster.VersionIn(root))
	release.Slurm, release.Date = version.String(), time.Now().UTC().Truncate(time.Second)
	tracks := cluster.Tracks()
	fmt.Printf("Slurm %v of %s, %v\n", version, root, tracks)
	var all sync.WaitGroup
	var failed atomic.Int64
	for _, track := range tracks {
		all.Go(func() {
			r := release
			r.Track, r.Paths = string(track), paths(version, track)
			r.test(root)
			r.Seconds = time.Since(release.Date).Seconds()
			fmt.Printf("  %s: %s\n%s", r.Track, r.cell(), notes([]Run{r}))
			r.write(kept)
			if r.count(Failed) > 0 || r.Passed == 0 {
				failed.Add(1)
			}
		})
	}
	all.Wait()
	return int(failed.Load())
}

// test runs the tests; that some failed is no error.
func (r *Run) test(root string) {
	args := []string{"test", "-json", "-count=1", "-timeout=60m"}
	if r.Track != string(cluster.LinuxProc) {
		args = append(args, "-parallel=1") // clusters with nodes of the same names share their cgroups
	}
	cmd := exec.Command("go", append(args, "./test/e2e")...)
	cmd.Env = append(os.Environ(), "BOOKEND_SLURM_ROOT="+root, "BOOKEND_E2E_TRACK="+r.Track)
	cmd.Stderr = os.Stderr
	out, failed := cmd.Output()
	text := r.read(out)
	rig.Try(os.MkdirAll("build", 0o755))
	rig.Try(os.WriteFile(filepath.Join("build", "e2e-"+r.name()+".log"), []byte(text), 0o644))
	r.blame(failed)
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
