package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/code"
)

// ownRecord is the job's own record, which its prolog has made.
func (n *node) ownRecord() string {
	n.Helper()
	files, err := filepath.Glob(n.inState("100/*.json"))
	must(n, err)
	if len(files) != 1 {
		n.Fatalf("records %q, want one", files)
	}
	return files[0]
}

// damages put garbage in a record's place; package state tries many kinds.
var damages = map[string]func(n *node, path string){
	"cut off":   func(n *node, path string) { must(n, os.Truncate(path, 200)) },
	"a version": func(n *node, path string) { n.replace(path, `"version":1`, `"version":99`) },
	"a job":     func(n *node, path string) { n.replace(path, `"id":100`, `"id":101`) },
	"a user's":  func(n *node, path string) { n.give(path, user) },
	"a link":    func(n *node, path string) { n.swap(path, func() error { return os.Symlink("/etc/passwd", path) }) },
	"a FIFO":    func(n *node, path string) { n.swap(path, func() error { return unix.Mkfifo(path, 0o600) }) },
}

func (n *node) replace(path, old, text string) {
	n.Helper()
	data := n.get(path)
	if !strings.Contains(data, old) {
		n.Fatalf("no %s in %s", old, data)
	}
	n.put(path, strings.Replace(data, old, text, 1), 0o600)
}

func (n *node) swap(path string, with func() error) {
	n.Helper()
	must(n, os.Remove(path))
	must(n, with())
}

// A record that cannot be used is set aside and said, and is its job's loss alone; the epilog goes on as if there had
// been no prolog.
func TestDamagedRecord(t *testing.T) {
	faults := map[string]fault{}
	for name, damage := range damages {
		faults[name] = fault{hooks: []hook{epilog}, finds: code.StateDamage, says: "/100/", exit: 38,
			harm: func(n *node) {
				damage(n, n.ownRecord())
				n.Cleanup(func() {
					if found := n.findings(epilog); !has(found, code.NoRecord) || !n.run(100).Closed() {
						n.Errorf("got %+v", found)
					}
					if aside, _ := os.ReadDir(n.inState("damaged")); len(aside) != 1 {
						n.Errorf("set aside: %v", aside)
					}
				})
			}}
	}
	try(t, faults)
}

// The folder of the state is made where it is missing; so is every one below. An end without a record of its start says
// so, and drains for nothing that is on the GPU.
func TestStateLostMeanwhile(t *testing.T) {
	for _, gone := range []string{"", "report", "drop", "state/" + nodeName + "/100"} {
		n := newNode(t, "enforce")
		n.configure(func(c *conf) { c.onUnknown = "drain" })
		n.clean(prolog, newJob())
		must(t, os.RemoveAll(filepath.Join(n.conf.run, gone)))
		kept := gone == "report" || gone == "drop"
		if !kept {
			n.leftover()
		}
		n.exits(0, epilog, newJob())
		if !n.run(100).Closed() || has(n.findings(epilog), code.NoRecord) == kept {
			t.Errorf("without %q: %+v", gone, n.findings(epilog))
		}
	}
}

// With more on record than a hook can read in its time, another job may have the GPU: what would drain is a warning
// then.
func TestTooManyRecordsDoNotDrain(t *testing.T) {
	t.Parallel()
	n := newNode(t, "enforce")
	n.clean(prolog, bystanding())
	n.clean(prolog, newJob())
	text := strings.Repeat(" ", 1000<<10) + n.record()
	old := time.Now().Add(-time.Hour)
	for id := range 80 {
		folder := n.inState(strconv.Itoa(1000 + id))
		must(t, os.Mkdir(folder, 0o700))
		n.put(folder+"/w1.json", strings.Replace(text, `"id":7,`, fmt.Sprintf(`"id":%d,`, 1000+id), 1), 0o600)
		must(t, os.Chtimes(folder, old, old))
	}
	n.inCgroup(n.leftover(), "100")
	n.exits(0, epilog, newJob())
	found := n.findings(epilog)
	f := n.found(found, code.Orphan)
	if !has(found, code.StateDamage) || !strings.Contains(strings.Join(f.Doubts, "; "), "not all records") {
		t.Errorf("%+v", found)
	}
}
