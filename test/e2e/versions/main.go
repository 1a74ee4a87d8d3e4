// Command versions runs the end-to-end tests on several releases of Slurm and with each way to track processes, and
// lists in docs/packages.md what passed. The releases are Debian's own packages; test/install-slurm.sh brings them. Each
// run's whole output is in build/.
//
//	go run ./test/e2e/versions -slurm all
//	go run ./test/e2e/versions -slurm 24.11,26.05
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"bookend/internal/slurm"
	"bookend/test/cluster"
	"bookend/test/rig"
)

// releases are those that Debian 12, 13 and the next one have.
var releases = []string{"22.05", "24.11", "26.05"}

func main() {
	slurm := flag.String("slurm", "all", "releases of Slurm, separated by commas, or all")
	flag.Parse()
	if err := rig.Attempt(func() { runAll(*slurm) }); err != nil {
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
	// of the commit "+" says that files differ; what is listed changes the tree
	commit := said("git", "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+")
	host := said("sh", "-c", hostIs)
	ran, failed := 0, 0
	for _, r := range releases {
		if slurm == "all" || strings.Contains(","+slurm+",", ","+r+",") {
			ran++
			failed += runRelease(Run{Slurm: r, Host: host, Commit: commit})
		}
	}
	if ran == 0 || failed > 0 {
		panic(fmt.Errorf("%d runs with failures; releases %q, of %v", failed, slurm, releases))
	}
}

// runRelease runs the tests with each way to track side by side: they wait most of the time, and clusters keep out of
// each other's cgroups. It counts the runs in which something failed.
func runRelease(release Run) (failed int) {
	_, root, _ := strings.Cut(said("test/install-slurm.sh", "--version", release.Slurm), "BOOKEND_SLURM_ROOT=")
	version := rig.Have(cluster.VersionIn(root))
	release.Slurm = version.String()
	fmt.Printf("Slurm %v of %s, %v\n", version, root, cluster.Tracks())
	var runs []*Run
	var all sync.WaitGroup
	for _, track := range cluster.Tracks() {
		r := release
		r.Track, r.Paths = string(track), paths(version, track)
		runs = append(runs, &r)
		all.Go(func() {
			began := time.Now()
			r.test(root)
			r.Seconds = time.Since(began).Seconds()
			fmt.Printf("  %s: %s\n%s", r.Track, r.cell(), r.note())
		})
	}
	all.Wait()
	for _, r := range runs {
		text := rig.Have(os.ReadFile(page))
		rig.Try(os.WriteFile(page, []byte(r.on(string(text))), 0o644)) //nolint:gosec // a document
		if r.count(Failed) > 0 || r.Passed == 0 {
			failed++
		}
	}
	return failed
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
	rig.Try(os.WriteFile(filepath.Join("build", "e2e-"+r.Slurm+"-"+strings.ReplaceAll(r.Track, "/", "-")+".log"), []byte(text), 0o644))
	r.blame(failed)
}

// paths is how a job's cgroup is called, which TestNamesOfCgroups checks.
func paths(v slurm.Version, track cluster.Track) string {
	switch {
	case track == cluster.LinuxProc:
		return ""
	case track == cluster.CgroupV2 && v.Has(slurm.Version{26, 5}):
		return "SLUID"
	}
	return "job_N"
}
