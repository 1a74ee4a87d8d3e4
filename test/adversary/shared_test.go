package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/sharedmem"
	"bookend/test/faultinject"
	"bookend/test/must"
)

var removals = flag.Int("removals", 2000, "files that are exchanged between look and removal")

// Files that a child removes as the job's user are exchanged for others' just before their removal: it never removes one
// of those. Without the guard it does.
func TestRemovalOfSharedMemory(t *testing.T) {
	onBench(t)
	guard := guards[slices.IndexFunc(guards, func(g faultinject.Mutant) bool { return g.Name == "uid change" })]
	for _, tt := range []struct {
		without faultinject.Mutant
		swaps   int
	}{{faultinject.Mutant{}, *removals}, {guard, 8}} {
		program := filepath.Join(programs(tt.without, "bookend-epilog"), "bookend-epilog")
		swaps, removed, lost := 0, 0, 0
		for swaps < tt.swaps {
			s, r, l := removing(t, program, min(tt.swaps-swaps, 1000))
			swaps, removed, lost = swaps+s, removed+r, lost+l
			must.Not(t, s == 0, "nothing is exchanged: the child removes nothing")
		}
		t.Logf("%q: %d swaps, %d removed, %d of others removed", tt.without.Name, swaps, removed, lost)
		must.Not(t, (lost > 0) != (tt.without.Name != ""), "without %q: %d of others' files are gone", tt.without.Name, lost)
	}
}

// removing lets a child remove files of the user. At each removal the name leads to another's file, a root's, a pipe of
// root's, or still to the user's. It returns the exchanges, what the child says it removed, and how many others' are gone.
func removing(t *testing.T, program string, files int) (swaps, removed, lost int) {
	t.Helper()
	dir := newDir("shm")
	must.Do(t, os.Chmod(dir, 0o777|os.ModeSticky))
	in := func(kind string, i int) string { return filepath.Join(dir, fmt.Sprint(kind, i)) }
	var request sharedmem.Removal
	for i := range files {
		for kind, uid := range map[string]int{"own": user, "foreign": []int{other, 0, 0}[i%3]} {
			if kind == "foreign" && i%3 == 2 {
				must.Do(t, unix.Mkfifo(in(kind, i), 0o666))
			} else {
				must.Do(t, os.WriteFile(in(kind, i), []byte(precious), 0o666))
			}
			must.Do(t, os.Chown(in(kind, i), uid, uid))
		}
		var st unix.Stat_t
		must.Do(t, unix.Stat(in("own", i), &st))
		request.Search.Files, request.Search.Device = append(request.Search.Files, st.Ino), st.Dev
	}
	slices.Sort(request.Search.Files)
	request.Search.Place = sharedmem.Place{Dir: dir, Proc: "/proc", UID: user}
	request.GID = user
	cmd := exec.Command(program, "--child", "remove-shared-memory")
	stdin, feed, err := os.Pipe() // as long as it is open, a hook waits for the reply
	must.Do(t, err)
	defer feed.Close()
	defer stdin.Close()
	must.Have(feed.Write(must.Have(json.Marshal(request))(t)))(t)
	cmd.Env, cmd.Stdin = []string{}, stdin
	out, _ := watch(cmd, time.Minute, []faultinject.Filter{{Number: unix.SYS_UNLINKAT}}, func(c faultinject.Call) faultinject.Answer {
		var i int
		if n, _ := fmt.Sscanf(c.Text(1), "own%d", &i); n == 1 && i%4 != 3 {
			must.Do(t, unix.Renameat2(unix.AT_FDCWD, in("own", i), unix.AT_FDCWD, in("foreign", i), unix.RENAME_EXCHANGE))
			swaps++
		}
		return faultinject.Answer{}
	})
	var gone []uint64
	must.Not(t, json.Unmarshal([]byte(out), &gone) != nil, "the child says %q", out)
	names := map[bool]int{}
	for _, e := range must.Have(os.ReadDir(dir))(t) {
		info := must.Have(e.Info())(t)
		names[info.Sys().(*syscall.Stat_t).Uid == user]++
	}
	must.Not(t, names[true] != files-len(gone)+(files-names[false]), "%d of the user's %d files are left, %d removed", names[true],
		files, len(gone))
	return swaps, len(gone), files - names[false]
}
