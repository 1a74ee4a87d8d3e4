package slurmcmd

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bookend/internal/slurm"
	"bookend/test/golden"
	"bookend/test/must"
)

var update = flag.Bool("update", false, "rewrite testdata/nodes.txtar")

// script stands for scontrol: it answers "show" with a text and writes down an "update".
func script(t *testing.T, show, extra string) (Scontrol, string) {
	t.Helper()
	dir := t.TempDir()
	log := filepath.Join(dir, "update")
	text := fmt.Sprintf("#!/bin/sh\n%s\n"+
		"case $* in *show*) cat <<'END'\n%sEND\n;; *) printf '%%s\\n' \"$@\" \"$SLURM_CONF\" \"$TZ\" >%s;; esac\n",
		extra, show, log)
	path := filepath.Join(dir, "scontrol")
	must.Do(t, os.WriteFile(path, []byte(text), 0o755))
	return Scontrol{Path: path, Conf: "/etc/slurm/x.conf", Time: func() time.Duration { return time.Minute }}, log
}

func always(slurm.Node) bool { return true }

func TestUpdates(t *testing.T) {
	drained := node("IDLE+DRAIN", "BKD-X [root@2026-11-21T07:00:00]")
	for want, do := range map[string]func(Scontrol) error{
		"State=DRAIN\nReason=BKD-ORPHAN gpu=0\n": func(c Scontrol) error { return c.Drain("n1", "BKD-ORPHAN gpu=0", always) },
		"State=UNDRAIN\n": func(c Scontrol) error {
			return c.Resume("n1", func(n slurm.Node) bool { return n.Reason == "BKD-X" && n.Drained() })
		},
	} {
		c, log := script(t, drained, "")
		err := do(c)
		got, _ := os.ReadFile(log)
		if want = "update\nNodeName=n1\n" + want + "/etc/slurm/x.conf\nUTC0\n"; err != nil || string(got) != want {
			t.Errorf("scontrol was told %q (%v), want %q", got, err, want)
		}
	}
}

// What has changed since it was decided on is left alone.
func TestReadAgainRightBefore(t *testing.T) {
	c, log := script(t, node("IDLE+DRAIN", "BKD-X; swapped it [root@2026-11-21T07:00:00]"), "")
	same := func(n slurm.Node) bool { return n.Reason == "BKD-X" }
	must.Fail(t, "Drain", c.Drain("n1", "BKD-Y", same), ErrChanged)
	must.Fail(t, "Resume", c.Resume("n1", same), ErrChanged)
	must.Fail(t, "an update", must.Err(os.Stat(log)), os.ErrNotExist)
}

// A node counts as drained only if Slurm shows it so afterwards. A reason that was set before is kept.
func TestEnsureDrained(t *testing.T) {
	up, down := node("IDLE", ""), node("MIXED+COMPLETING+DRAIN", "disk swap [root@2026-11-21T07:00:00]")
	for name, tt := range map[string]struct {
		before, after, extra, want string
		updates                    bool
	}{
		"in service":                 {up, down, "", "", true},
		"drained already":            {down, down, "", "", false},
		"accepted, and not drained":  {up, up, "", "not drained", true},
		"refused":                    {up, up, "case $* in *State=*) echo denied >&2; exit 1;; esac", "denied", false},
		"refused, drained meanwhile": {up, down, "case $* in *State=*) touch $0.update; exit 1;; esac", "", false},
		"then it does not answer":    {up, "", "", "no such node", true},
	} {
		c, log := script(t, tt.before, "")
		text := must.Read(t, c.Path)
		shown := strings.Replace(text, "#!/bin/sh\n", fmt.Sprintf("#!/bin/sh\n%s\n[ ! -e $0.update -a ! -e %s ] || "+
			"case $* in *show*) cat <<'END'\n%sEND\nexit;; esac\n", tt.extra, log, tt.after), 1)
		must.Do(t, os.WriteFile(c.Path, []byte(shown), 0o755))
		err := c.EnsureDrained("n1", "BKD-X", always)
		_, missing := os.Stat(log)
		if fmt.Sprint(err) != "<nil>" && tt.want == "" || !strings.Contains(fmt.Sprint(err), tt.want) || (missing == nil) != tt.updates {
			t.Errorf("%s: %v, updated %v; want %q, %v", name, err, missing == nil, tt.want, tt.updates)
		}
	}
}

// A node that is not drained any more, as slurmctld says only when it is asked to undrain it, is as it was to be.
func TestUndrainedMeanwhile(t *testing.T) {
	const refuses = "case $* in *State=*) touch $0.asked; echo slurm_update error: Invalid node state specified >&2; exit 1;; esac\n" +
		"[ -e $0.asked ] && state=%s || state=IDLE+DRAIN\nsed \"s/STATE/$state/\" <<'END'\n%sEND\nexit"
	for state, done := range map[string]bool{"IDLE": true, "MIXED": true, "DOWN": true, "IDLE+DRAIN+INVALID_REG": false} {
		c, _ := script(t, "", fmt.Sprintf(refuses, state, node("STATE", "")))
		err := c.Resume("n1", slurm.Node.Drained)
		must.Not(t, (err == nil) != done, "a node that is %s now: %v", state, err)
	}
	gone, _ := script(t, "", fmt.Sprintf("[ -e $0.asked ] && exit 1\n"+refuses, "IDLE", node("STATE", "")))
	must.Not(t, gone.Resume("n1", always) == nil, "a node that cannot be read again counts as undrained")
}

func TestNoAnswer(t *testing.T) {
	hung, _ := script(t, "", "exec sleep 1000")
	must.Slower(t, 100*time.Millisecond, func(limit time.Duration) bool { // it must be under way by then
		hung.Time = func() time.Duration { return limit }
		want := fmt.Sprint("no answer within ", limit)
		drain, resume := hung.Drain("n1", "BKD-X", always), hung.Resume("n1", always)
		return drain != nil && resume != nil && strings.Contains(drain.Error(), want) && strings.Contains(resume.Error(), want)
	})
	refused, _ := script(t, "", "echo Incompatible versions of client and server code >&2; exit 1")
	denied, _ := script(t, node("IDLE", ""), "case $* in *State=*) echo denied >&2; exit 1;; esac")
	garbage, _ := script(t, "slurm_load_node error\n", "")
	untrusted, log := script(t, node("IDLE", ""), "")
	untrusted.Root = true
	must.Do(t, os.Chmod(untrusted.Path, 0o777))
	late, _ := script(t, node("IDLE", ""), "")
	late.Time = func() time.Duration { return 0 }
	relative, _ := script(t, node("IDLE", ""), "")
	relative.Conf = "slurm.conf"
	for name, tt := range map[string]struct {
		c    Scontrol
		want string
	}{
		"another version":                  {refused, "Incompatible versions"},
		"an update that slurmctld refuses": {denied, "denied"},
		"garbage":                          {garbage, "no such node"},
		"untrusted":                        {untrusted, "lets others write"},
		"no time left":                     {late, "no time left"}, "a relative slurm.conf": {relative, "not an absolute path"},
	} {
		for what, err := range map[string]error{"Drain": tt.c.Drain("n1", "BKD-X", always),
			"Resume": tt.c.Resume("n1", always)} {
			must.Not(t, err == nil || !strings.Contains(err.Error(), tt.want),
				"%s: %s: %v, want %q", name, what, err, tt.want)
		}
	}
	must.Fail(t, "an untrusted scontrol's update", must.Err(os.Stat(log)), os.ErrNotExist)
}

// node is what Slurm 22.05 says of one, shortened; further lines stand behind the reason.
func node(state, reason string, further ...string) string {
	lines := []string{
		"NodeName=n1 Arch=x86_64 CoresPerSocket=8 ", "   CPUAlloc=0 CPUEfctv=8 CPUTot=8 CPULoad=0.85",
		"   Gres=gpu:4", "   OS=Linux 6.1 State=of the art",
		"   State=" + state + " ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A", "   Partitions=main ",
		"   BootTime=2026-11-21T06:29:01 SlurmdStartTime=2026-11-21T06:29:01",
	}
	if reason != "" {
		lines = append(lines, "   Reason="+reason)
	}
	return strings.Join(append(lines, further...), "\n") + "\n\n"
}

var seven = time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)

func TestParseNode(t *testing.T) {
	golden.Archive(t, *update, "testdata/nodes.txtar", func(text string) string {
		n, err := parseNode(text, "n1")
		if err != nil {
			return err.Error()
		}
		return fmt.Sprintf("%s, silent: %v, %q by %s at %s", n.Flags, n.Silent, n.Reason, n.By, n.At)
	})
}

// A reason is read byte for byte as somebody wrote it, whatever it says and whatever else is said of the node.
func FuzzParseNode(f *testing.F) {
	f.Add("disk [sda] slow", "IDLE+DRAIN", "rack 7", node("IDLE", ""))
	f.Add("Epilog error [root@2026-11-21T07:00:00]", "DOWN*+DRAIN", "x Reason=Epilog error",
		"NodeName=n1 \n   State=\n   Reason=")
	f.Add("State=IDLE", "MIXED", "\n   Reason=Epilog error", "")
	f.Fuzz(func(t *testing.T, reason, state, comment, raw string) {
		if n, err := parseNode(raw, "n1"); err == nil &&
			(len(n.Flags) == 0 && !n.Silent || !strings.HasPrefix(raw, "NodeName=n1 ")) {
			t.Errorf("%q: %+v", raw, n)
		}
		if reason == "" || strings.ContainsAny(reason+comment, "\n\x00") || state == "" ||
			strings.Trim(state, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") != "" {
			return
		}
		n, err := parseNode(node(state, reason+" [root@2026-11-21T07:00:00]", "   Comment="+comment), "n1")
		must.Not(t, err != nil || n.Reason != reason || !n.At.Equal(seven) || n.By != "root",
			"%q, %q, %q is read as %+v, %v", reason, state, comment, n, err)
	})
}
