//go:build !race

package joblog

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bookend/internal/child"
	"bookend/internal/slurm"
	"bookend/test/must"
)

// spool asks the child for a file in a spool, and returns why there is none.
func spool(t *testing.T, dir string, s Spooled) string {
	t.Helper()
	req := NewSpoolRequest(dir, "", s, 10*time.Second)
	req.Sweep = s.At
	reply := must.Have(AppendAsUser.Ask(AppendRequest{UID: uid, GID: uid, Spool: req}, time.Minute))(t)
	must.Do(t, reply.Check())
	return reply.Spool
}

func TestSpool(t *testing.T) {
	dir := usersDir(t)
	at := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	write := func(s Spooled) {
		s.User, s.At = "ann", at.Add(time.Duration(s.ID)*time.Second)
		if why := spool(t, filepath.Dir(dir)+"/"+filepath.Base(dir), s); why != "" {
			t.Errorf("%+v: %s", s, why)
		}
	}
	write(Spooled{Node: "n1", Job: "42", ID: 42, End: "half"})
	write(Spooled{Node: "n1", Job: "42", ID: 42, End: "clean\n"})
	write(Spooled{Node: "n2", Job: "42", ID: 42, End: "left", Found: true})
	write(Spooled{Node: "n1", Job: "42", ID: 42, Restart: 1, SLUID: "s5XTFG6R62CR00"})
	write(Spooled{Node: "n1", Job: "43_7", ID: 50})
	write(Spooled{Node: "n1", Job: "44+1", ID: 45})
	for _, name := range []string{"notes.json", "7.n1.json.old", ".7.n1.json.3"} {
		put(t, filepath.Join(dir, name), "{}")
	}
	must.Do(t, os.Symlink("42.n1.json", filepath.Join(dir, "8.n1.json")))
	put(t, filepath.Join(dir, "9.n1.json"), strings.Repeat(" ", maxSpooled+1))
	for text, want := range map[string]string{"42": "n2.0 n1.1 n1.0", "43": "n1.0", "43_7": "n1.0", "50": "n1.0", "43_8": "",
		"44": "n1.0", "44+1": "n1.0", "4": "", "7": "", "8": "", "9": "", "s5XTFG6R62CR00": "n1.1"} {
		ref := must.Have(slurm.ParseRef(text))(t)
		var got []string
		for _, s := range must.Have(readSpool(dir, uid, func(s Spooled) bool { return s.Is(ref) }))(t) {
			got = append(got, fmt.Sprintf("%s.%d", s.Node, s.Restart))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	if text := must.Read(t, dir+"/42.n1.json"); !strings.Contains(text, `"clean\n"`) || strings.Contains(text, "half") {
		t.Error(text)
	}
}

// A spool that is not a directory of the user's own, closed to others, is not written to, and none is made.
func TestSpoolRefused(t *testing.T) {
	dir := usersDir(t)
	must.Do(t, os.Mkdir(dir+"/roots", 0o755))
	must.Do(t, os.Mkdir(dir+"/open", 0o755))
	must.Do(t, os.Chown(dir+"/open", uid, uid))
	must.Do(t, os.Chmod(dir+"/open", 0o775))
	must.Do(t, os.Symlink("roots", dir+"/link"))
	put(t, dir+"/file", "")
	for name, want := range map[string]string{"none": missing, "roots": notOwner, "open": notOwner, "link": notOwner, "file": other} {
		if got := spool(t, dir+"/"+name, Spooled{ID: 7, Node: "n1"}); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := spool(t, "%h/spool", Spooled{ID: 7, Node: "n1"}); got != missing { // the user has no account
		t.Errorf("home: %q", got)
	}
	// The home of an account of the system is found, before the process is that user's, and is root's.
	req := NewSpoolRequest("%h/", AskAccount(1, 1, "%h/").Home, Spooled{ID: 7, Node: "n1"}, 10*time.Second)
	daemon := must.Have(AppendAsUser.Ask(AppendRequest{UID: 1, GID: 1, Spool: req}, time.Minute))(t)
	must.Be(t, "home of daemon", daemon.Spool, notOwner)
	for _, s := range []Spooled{{ID: 7, Node: "n1"}, {User: "/", Node: "n1"}, {User: "ann", End: strings.Repeat("x", maxSpooled)}} {
		if r := NewSpoolRequest("/shared/%u", "", s, time.Second); r != nil {
			t.Errorf("%.80v: %+v", s, r)
		}
	}
	// The report counts more than figures: a run without its GPUs is not measured.
	large := Spooled{ID: 7, User: "ann", End: strings.Repeat("x", maxSpooled-1000), Used: Usage{GPUs: make([]Used, 20)}}
	text := NewSpoolRequest("/shared/%u", "", large, time.Second).Text
	must.Not(t, strings.Contains(text, "peak_bytes") || !strings.Contains(text, `"unmeasured":"its GPUs had no room`), "%s", text)
	if r := NewSpoolRequest("/shared/%u", "", Spooled{User: "../../etc", Node: "n1"}, time.Second); r.Dir != "/shared/etc" {
		t.Error(r.Dir)
	}
}

// The newest files stay, for 30 days.
func TestSweepSpool(t *testing.T) {
	dir := usersDir(t)
	now := time.Now()
	for i := range mostSpooled + 20 {
		name := fmt.Sprintf("%s/%d.n1.json", dir, i)
		put(t, name, fmt.Sprintf(`{"version":1,"job_id":%d}`, i+1))
		age := time.Duration(i) * time.Minute
		if i%100 == 7 {
			age = spoolTime + time.Hour
		}
		must.Do(t, os.Chtimes(name, now.Add(-age), now.Add(-age)))
	}
	for _, name := range []string{"/notes", "/1.loss.json"} { // the user's own
		put(t, dir+name, `{"version": 1, "loss": 0.5}`)
		must.Do(t, os.Chtimes(dir+name, time.Unix(0, 0), time.Unix(0, 0)))
	}
	if why := spool(t, dir, Spooled{ID: 1000, Node: "n1", At: now}); why != "" {
		t.Fatal(why)
	}
	files := must.Have(os.ReadDir(dir))(t)
	if len(files) != mostSpooled+2 { // with the user's own
		t.Errorf("%d files", len(files))
	}
	for _, name := range []string{"1000.n1.json", "0.n1.json", "notes", "1.loss.json"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"7.n1.json", "107.n1.json", "519.n1.json"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s is still there", name)
		}
	}
}

// swappedRequest asks for many files in a spool that is swapped meanwhile.
type swappedRequest struct {
	Spool SpoolRequest `json:"spool"`
	Times int          `json:"times"`
}

// writeSwapped is what AppendAsUser does for a spool, again and again in one process.
var writeSwapped = child.NewOperation("spool-swapped", func(r swappedRequest) (map[string]int, error) {
	if err := child.Become(uid, uid, nil); err != nil {
		return nil, err
	}
	counts := map[string]int{}
	for range r.Times {
		counts[r.Spool.put(uid)]++
	}
	return counts, nil
})

var swaps = flag.Int("swaps", 20_000, "files that are written while the spool is swapped")

// Whatever takes the spool's place between two steps, files come into the user's own closed directory alone.
func TestSpoolSwapped(t *testing.T) {
	dir := usersDir(t)
	own := must.Have(os.MkdirTemp("/tmp", "joblog-own-"))(t)
	defer os.RemoveAll(own)
	must.Do(t, os.Chown(own, uid, uid))
	targets := []string{own, dir + "/file", dir + "/none"}
	for name, of := range map[string]struct {
		uid  int
		mode os.FileMode
	}{"roots": {0, 0o755}, "others": {uid - 1, 0o777}, "open": {uid, 0o777}, "shared": {uid, 0o770}} {
		path := filepath.Join(dir, name)
		must.Do(t, errors.Join(os.Mkdir(path, 0o700), os.Chown(path, of.uid, of.uid), os.Chmod(path, of.mode)))
		targets = append(targets, path)
	}
	put(t, dir+"/file", "")
	done, stop := make(chan error), make(chan struct{})
	go func() {
		var err error
		for i := 0; err == nil; i++ {
			select {
			case <-stop:
				done <- nil
				return
			default:
				next := filepath.Join(dir, "next")
				err = errors.Join(os.Symlink(targets[i%len(targets)], next), os.Rename(next, filepath.Join(dir, "spool")))
			}
		}
		done <- err
	}()
	req := NewSpoolRequest(filepath.Join(dir, "spool"), "", Spooled{ID: 7, Node: "n1"}, time.Minute)
	counts := must.Have(writeSwapped.Ask(swappedRequest{*req, *swaps}, 10*time.Minute))(t)
	close(stop)
	must.Do(t, <-done)
	t.Logf("%v", counts)
	for _, path := range targets[3:] {
		if files := must.Have(os.ReadDir(path))(t); len(files) > 0 {
			t.Errorf("%s has %v", path, files)
		}
	}
	files := must.Have(os.ReadDir(own))(t)
	if len(files) != 1 || files[0].Name() != "7.n1.json" || counts[""] == 0 || counts[notOwner] == 0 || counts[missing] == 0 {
		t.Errorf("%v; own: %v", counts, files)
	}
}
