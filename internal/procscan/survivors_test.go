package procscan

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bookend/internal/leftover"
	"bookend/test/must"
)

// A survivor is a process of the user that goes on, with what its environment says; one that ended meanwhile is none.
func TestSurvivors(t *testing.T) {
	proc := t.TempDir()
	environ := "A=1\x00SLURM_JOB_ID=77\x00SLURM_JOB_ID=78\x00"
	for pid, edit := range map[string]func(folder string){
		"10": func(string) {},
		"11": func(folder string) {
			must.Write(t, filepath.Join(folder, "status"), "Name:\tx\nUid:\t1001\t1000\t1000\t1000\n")
		},
		"12": func(folder string) { must.Write(t, filepath.Join(folder, "stat"), "12 (py) Z"+statTail) },
		"13": func(folder string) {
			const cut = "\x00SLURM_JOB_ID=7" // in the middle of the number
			must.Write(t, filepath.Join(folder, "environ"), strings.Repeat("x", maxEnviron-len(cut))+cut+"7\x00")
			must.Write(t, filepath.Join(folder, "stat"), "13 (py) D"+strings.Replace(statTail, " 0 -1 ", " 34816 -1 ", 1))
			must.Write(t, filepath.Join(folder, "status"), "Uid:\t0\n\nUid:\t1000\t1000\t1000\t1000\nNSpid:\t13\t1\n")
		},
	} {
		folder := fixture(t, proc, pid, "0::/\n", environ)
		must.Write(t, filepath.Join(folder, "cmdline"), "python3\x00-c\x00")
		edit(folder)
	}
	pipe(fixture(t, proc, "15", jobCgroup, ""), "environ") // to read it would hang
	request := SurvivorRequest{proc, 1000, []int{10, 11, 12, 13, 14, 15}, []string{"SLURM_JOB_ID", "A", "B"}}
	all := must.Have(request.survivors())(t)
	start := 1234560 * time.Millisecond
	must.Be(t, "survivors", all, []leftover.Survivor{
		{PID: 10, Parent: 1, Start: start, Name: "py (x", Cgroups: "0::/\n", Arguments: "python3\x00-c\x00",
			Environ: map[string]string{"SLURM_JOB_ID": "77", "A": "1", "B": ""}},
		{PID: 13, Parent: 1, Start: start, Name: "py", Terminal: true, Apart: true, Cgroups: "0::/\n", Arguments: "python3\x00-c\x00",
			Environ: map[string]string{"SLURM_JOB_ID": "", "A": "", "B": ""}},
		{PID: 15, Parent: 1, Start: start, Name: "py (x", Cgroups: jobCgroup,
			Environ: map[string]string{}},
	})
	must.Do(t, os.Remove(filepath.Join(proc, "10", "environ")))
	must.Do(t, os.Mkdir(filepath.Join(proc, "10", "environ"), 0o700))
	_, err := request.survivors()
	must.Not(t, err == nil, "a process that could not be read is passed over")
}

// The owner of a directory in /proc is the process's user, also if the process hides what is in it.
func TestOwned(t *testing.T) {
	own := start(t, "idle", as(1000))
	pids := must.Have(Owned("/proc", 1000))(t)
	must.Not(t, !strings.Contains(fmt.Sprint(pids), fmt.Sprint(own)), "%d is not among %d", own, pids)
	_, err := Owned(t.TempDir()+"/none", 1000)
	must.Not(t, err == nil, "a /proc that is not there lists none")
}

// A node with 1,000 processes, of which none is the user's.
func BenchmarkOwned(b *testing.B) {
	for b.Loop() {
		must.Have(Owned("/proc", 4000000))(b)
	}
}
