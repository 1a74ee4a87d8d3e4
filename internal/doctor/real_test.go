package doctor

import (
	"bytes"
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestHealthy(t *testing.T) {
	n := newNode(t)
	results := n.examine()
	for _, r := range notWell(results) {
		t.Errorf("%+v", r)
	}
	if len(results) != len(Checks()) || Fails(results) {
		t.Errorf("%d results of %d checks", len(results), len(Checks()))
	}
	seen := map[string]string{}
	for _, r := range results {
		seen[r.Check] = r.Seen
	}
	for check, want := range map[string]string{
		"prolog": "root's, 0755", "state": "root's, 0700", "locks": "all ", "records": "all ", "drop-filesystem": "a tmpfs of its own: 16 MiB, 8192 inodes, nosuid, nodev, noexec",
		"cuda": "root's, 0644, by a link to libcuda.so.580.1", "history-records": "root's, 0600", "log-file": "root's, 0640", "config-text": "valid: mode observe",
	} {
		if !strings.HasPrefix(seen[check], want) {
			t.Errorf("%s: %q, want %q", check, seen[check], want)
		}
	}
}

// A node on which nothing has run yet lacks only what must be installed.
func TestBare(t *testing.T) {
	n := newNode(t)
	for _, name := range []string{"libexec", "etc", "lib", "var", "log", "collector"} {
		must(t, os.RemoveAll(n.in(name)))
	}
	must(t, unix.Unmount(n.in("run/drop"), unix.MNT_DETACH))
	must(t, os.RemoveAll(n.in("run")))
	n.site.Unread = "open: no such file or directory"
	want := map[string]Level{"prolog": Wrong, "epilog": Wrong, "healthcheck": Wrong, "backend": Wrong, "config": Warning, "config-folder": Warning, "nvml": Warning, "cuda": Warning,
		"drop-filesystem": Warning, "metrics-folder": Wrong}
	got := map[string]Level{}
	for _, r := range notWell(n.examine()) {
		if isBeyond(r.Check) {
			continue
		}
		got[r.Check] = r.Level
		said := map[string]string{"cuda": "in none of the usual folders", "drop-filesystem": "not a file system of its own", "metrics-folder": "missing: the hooks make none here"}[r.Check]
		if r.Seen != cmp.Or(said, "missing") || r.Why == "" || r.Fix == "" {
			t.Errorf("%+v", r)
		}
	}
	if len(got) != len(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for check, level := range want {
		if got[check] != level {
			t.Errorf("%s: %q, want %q", check, got[check], level)
		}
	}
}

// Every line fails once, on real files; where its fix is a command, that command makes it well again.
func TestEachLine(t *testing.T) {
	at := func(f func(path string) error, name string) func(node) error {
		return func(n node) error { return f(n.in(name)) }
	}
	mode := func(m os.FileMode) func(string) error {
		return func(path string) error { return unix.Chmod(path, uint32(m)) }
	}
	given := func(path string) error { return os.Chown(path, user, 0) }
	moved := func(n node, from, to string) error {
		must(n.T, os.MkdirAll(filepath.Dir(to), 0o755))
		must(n.T, os.Chown(filepath.Dir(to), user, 0))
		must(n.T, os.Rename(from, to))
		return os.Symlink(to, from)
	}
	twice := func(path string) error { return os.Link(path, path+"-other") }
	remount := func(options string) func(node) error {
		return func(n node) error {
			must(n.T, unix.Unmount(n.in("run/drop"), unix.MNT_DETACH))
			if options != "" {
				mount(n.T, n.in("run/drop"), options)
			}
			return nil
		}
	}
	over := func(name, options string) func(node) error {
		return func(n node) error {
			mount(n.T, n.in(name), options)
			return nil
		}
	}
	tests := map[string]struct {
		spoil func(node) error
		check string
		level Level
		seen  string // a part of it
		fixed bool   // the fix is a command that can be run here
	}{
		"prolog group-writable": {at(mode(0o775), "libexec/bookend-prolog"), "prolog", Wrong, "mode 0775, should be 0755: its group may write", true},
		"prolog setuid":         {at(mode(0o4755), "libexec/bookend-prolog"), "prolog", Wrong, "mode 04755, should be 0755: it runs with its owner's rights, whoever starts it (setuid)", true},
		"prolog not for users":  {at(mode(0o700), "libexec/bookend-prolog"), "prolog", Wrong, "mode 0700, should be 0755: too little", true},
		"epilog a user's":       {at(given, "libexec/bookend-epilog"), "epilog", Wrong, "belongs to user 65534, not to root", true},
		"epilog setgid":         {at(mode(0o2755), "libexec/bookend-epilog"), "epilog", Wrong, "(setgid)", true},
		"epilog a folder": {func(n node) error {
			must(n.T, os.Remove(n.in("libexec/bookend-epilog")))
			return os.Mkdir(n.in("libexec/bookend-epilog"), 0o755)
		}, "epilog", Wrong, "folder, where a file belongs", true},
		"health check not run":       {at(mode(0o644), "libexec/bookend-healthcheck"), "healthcheck", Wrong, "too little", true},
		"backend gone":               {at(os.Remove, "libexec/bookend-gpu"), "backend", Wrong, "missing", true},
		"backend in a user's folder": {func(n node) error { return moved(n, n.in("libexec/bookend-gpu"), n.in("home/gpu")) }, "backend", Wrong, "/home belongs to user 65534", false},
		"backend for everybody":      {at(mode(0o757), "libexec/bookend-gpu"), "backend", Wrong, "everybody may write", true},
		"bookend group-writable":     {at(mode(0o775), "bin/bookend"), "bookend", Wrong, "its group may write", true},
		"config folder for a group":  {at(mode(0o775), "etc"), "config-folder", Wrong, "mode 0775, should be 0755: its group may write", true},
		"config folder closed":       {at(mode(0o700), "etc"), "config-folder", Warning, "too little", true},
		"config group-writable":      {at(mode(0o664), "etc/bookend.yaml"), "config", Wrong, "its group may write", true},
		"config closed":              {at(mode(0o600), "etc/bookend.yaml"), "config", Warning, "too little", true},
		"config executable":          {at(mode(0o755), "etc/bookend.yaml"), "config", Warning, "everybody may start it", true},
		"config a link into /home":   {func(n node) error { return moved(n, n.in("etc/bookend.yaml"), n.in("home/me.yaml")) }, "config", Wrong, "/home belongs to user 65534", false},
		"config lost":                {at(os.Remove, "etc/bookend.yaml"), "config", Warning, "missing", true},
		"snippet for a group":        {at(mode(0o664), "root/etc/bookend/slurm/bookend.conf"), "snippets", Wrong, "its group may write", true},
		"snippet closed":             {at(mode(0o600), "root/etc/bookend/slurm/bookend.conf"), "snippets", Wrong, "too little", true},
		"snippet's hook a user's":    {at(given, "root/etc/bookend/slurm/hooks/prolog"), "snippet-hooks", Wrong, "belongs to user", true},
		"a pattern's hook writable":  {at(mode(0o777), "root/etc/bookend/slurm/prolog.d/00-bookend.sh"), "snippet-hooks", Wrong, "everybody may write", true},
		"folder of hooks for all":    {at(mode(0o777), "root/etc/bookend/slurm/hooks"), "snippet-folders", Wrong, "everybody may write", true},
		"folder of snippets closed":  {at(mode(0o700), "root/etc/bookend/slurm"), "snippet-folders", Wrong, "too little", true},
		"nvml a user's":              {at(given, "lib/libnvidia-ml.so.580.1"), "nvml", Wrong, "belongs to user", true},
		"cuda writable":              {at(mode(0o646), "lib/libcuda.so.580.1"), "cuda", Wrong, "everybody may write", true},
		"cuda in a user's folder":    {func(n node) error { return os.Chown(n.in("lib"), user, 0) }, "cuda", Wrong, "/lib belongs to user 65534", false},
		"cuda leads nowhere":         {at(os.Remove, "lib/libcuda.so.580.1"), "cuda", Unknown, "leads to libcuda.so.580.1, which does not exist", false},
		"scontrol writable":          {at(mode(0o775), "bin/scontrol"), "scontrol", Wrong, "its group may write", true},
		"scontrol gone":              {at(os.Remove, "bin/scontrol"), "scontrol", Wrong, "missing", false},
		"run closed":                 {at(mode(0o700), "run"), "run", Wrong, "too little", true},
		"run a user's":               {at(given, "run"), "run", Wrong, "belongs to user", true},
		"state 0755":                 {at(mode(0o755), "run/state"), "state", Wrong, "mode 0755, should be 0700: its group may read, everybody may read", true},
		"state of a node 0750":       {at(mode(0o750), "run/state/n1"), "state-node", Wrong, "its group may read", true},
		"folder of a job a user's":   {at(given, "run/state/n1/7"), "state-folders", Wrong, "belongs to user", true},
		"record readable":            {at(mode(0o644), "run/state/n1/stuck.json"), "records", Wrong, "everybody may read", true},
		"record twice":               {at(twice, "run/state/n1/stuck.json"), "records", Wrong, "has 2 names", true},
		"lock readable":              {at(mode(0o604), "run/state/n1/lock-7"), "locks", Wrong, "everybody may read", true},
		"lock a link": {func(n node) error {
			must(n.T, os.Remove(n.in("run/state/n1/lock-7")))
			return os.Symlink("stuck.json", n.in("run/state/n1/lock-7"))
		}, "locks", Wrong, "a symbolic link to stuck.json", true},
		"report 0755":             {at(mode(0o755), "run/report"), "report", Warning, "everybody may read", true},
		"report writable":         {at(mode(0o1777), "run/report"), "report", Wrong, "sticky bit, its group may write", true},
		"report closed":           {at(mode(0o700), "run/report"), "report", Wrong, "too little", true},
		"drop writable":           {at(mode(0o1777), "run/drop"), "drop", Wrong, "everybody may write", true},
		"drop without a tmpfs":    {remount(""), "drop-filesystem", Warning, "not a file system of its own", true},
		"drop without noexec":     {remount("size=16M,nr_inodes=8k,mode=0711,nosuid,nodev"), "drop-filesystem", Warning, "mounted without noexec", true},
		"drop without options":    {remount("size=16M,nr_inodes=8k,mode=0711"), "drop-filesystem", Warning, "mounted without nosuid, nodev, noexec", true},
		"drop too large":          {remount("size=1G,nr_inodes=8k,mode=0711,nosuid,nodev,noexec"), "drop-filesystem", Warning, "its limits are 1024 MiB and 8192 inodes", true},
		"drop without limits":     {remount("size=0,nr_inodes=0,mode=0711,nosuid,nodev,noexec"), "drop-filesystem", Warning, "no limit of inodes", true},
		"drop read-only":          {remount(DropOptions + ",ro"), "drop-filesystem", Wrong, "read-only", true},
		"drop full of files":      {remount("size=16M,nr_inodes=32,mode=0711,nosuid,nodev,noexec"), "drop-filesystem", Wrong, "full: 31 inodes are free", false},
		"drop full":               {remount("size=512k,nr_inodes=8k,mode=0711,nosuid,nodev,noexec"), "drop-filesystem", Wrong, "full: 512 KiB are free", false},
		"var a user's":            {at(given, "var"), "var", Wrong, "belongs to user", true},
		"history 0755":            {at(mode(0o755), "var/history"), "history", Wrong, "everybody may read", true},
		"history of a node 0711":  {at(mode(0o711), "var/history/n1"), "history-node", Wrong, "everybody may reach what is in it", true},
		"history record a user's": {at(given, "var/history/n1/6-1.json"), "history-records", Wrong, "belongs to user", true},
		"counters readable":       {at(mode(0o644), "var/metrics/lock"), "counters", Wrong, "everybody may read", true},
		"counters for a group":    {at(mode(0o770), "var/metrics"), "counters-folder", Wrong, "its group may write", true},
		"log folder a user's":     {at(given, "log"), "log", Wrong, "belongs to user 65534, not to root", true},
		"log folder for a group":  {at(mode(0o2775), "log"), "log", Wrong, "its group may write", true},
		"log readable":            {at(mode(0o644), "log/bookend.log"), "log-file", Warning, "everybody may read", true},
		"log group-writable":      {at(mode(0o660), "log/bookend.log"), "log-file", Wrong, "its group may write", true},
		"log a link": {func(n node) error {
			must(n.T, os.Remove(n.in("log/bookend.log")))
			return os.Symlink("/dev/null", n.in("log/bookend.log"))
		}, "log-file", Wrong, "a symbolic link to /dev/null", true},
		"log a FIFO": {func(n node) error {
			must(n.T, os.Remove(n.in("log/bookend.log")))
			return unix.Mkfifo(n.in("log/bookend.log"), 0o640)
		}, "log-file", Wrong, "neither file nor folder, where a file belongs", true},
		"metrics writable":         {at(mode(0o666), "collector/bookend.prom"), "metrics", Wrong, "everybody may write", true},
		"metrics without a folder": {func(n node) error { return os.RemoveAll(n.in("collector")) }, "metrics-folder", Wrong, "missing", true},
		"metrics folder a user's":  {at(given, "collector"), "metrics-folder", Wrong, "belongs to user 65534", false},
		"metrics folder closed":    {at(mode(0o700), "collector"), "metrics-folder", Warning, "too little", true},
		"var read-only":            {over("var", "mode=0755,ro"), "var-filesystem", Wrong, "read-only", true},
		"var full":                 {over("var", "mode=0755,size=512k"), "var-filesystem", Wrong, "full: 512 KiB are free", false},
		"log read-only":            {over("log", "mode=0755,ro"), "log-filesystem", Wrong, "read-only", true},
		"log full of files":        {over("log", "mode=0755,nr_inodes=32"), "log-filesystem", Wrong, "full: 31 inodes", false},
		"drop not there": {func(n node) error {
			must(n.T, unix.Unmount(n.in("run/drop"), unix.MNT_DETACH))
			return os.Remove(n.in("run/drop"))
		}, "drop-filesystem", Warning, "not a file system of its own", true},
		"metrics closed": {at(mode(0o600), "collector/bookend.prom"), "metrics", Warning, "too little", true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			must(t, tt.spoil(n))
			var said []Result
			for _, r := range notWell(n.examine()) {
				if r.Check == tt.check {
					said = append(said, r)
				}
			}
			if len(said) == 0 || said[0].Level != tt.level || !strings.Contains(said[0].Seen, tt.seen) || said[0].Fix == "" || said[0].Why == "" && tt.level != Unknown {
				t.Fatalf("said %+v", said)
			}
			if !tt.fixed {
				return
			}
			for _, r := range said {
				n.do(r.Fix)
			}
			for _, r := range notWell(n.examine()) {
				t.Errorf("after %q: %+v", said[0].Fix, r)
			}
		})
	}
	failed := map[string]bool{}
	for _, tt := range tests {
		failed[tt.check] = true
	}
	for _, c := range Checks() {
		if !failed[c.Name] && c.Area == "" && c.Name != "config-text" && c.Name != "run-filesystem" { // have tests of their own
			t.Errorf("no test shows %q failing", c.Name)
		}
	}
}

// What lies below a folder that others can write to is only as safe as that folder.
func TestFoldersAbove(t *testing.T) {
	n := newNode(t)
	must(t, os.Chmod(n.dir, 0o775))
	bad := map[string]Result{}
	for _, r := range notWell(n.examine()) {
		bad[r.Check] = r
	}
	for _, r := range Rules() {
		got, want := bad[r.Name], Wrong
		if r.Above != "" {
			want = r.Above
		}
		if got.Level != want || !strings.Contains(got.Seen, n.dir+" has mode 0775: its group may write") || got.Fix != "chmod go-w "+n.dir+compareFolder {
			t.Errorf("%s: %+v", r.Name, got)
		}
	}
	n.do(bad["prolog"].Fix)
	if bad := notWell(n.examine()); len(bad) > 0 {
		t.Errorf("%+v", bad)
	}
}

// A folder of Bookend's own that is a user's spoils all below it: each says so with the command that mends it, which the
// report prints once.
func TestOwnFolderAbove(t *testing.T) {
	n := newNode(t)
	must(t, os.Chown(n.in("run/state"), user, 0))
	must(t, os.Chown(n.in("var"), user, 0))
	results := n.examine()
	run, kept := "chown root:root "+n.in("run/state")+" && chmod 0700 "+n.in("run/state"), "chown root:root "+n.in("var")+" && chmod 0755 "+n.in("var")
	fixes := map[string]string{
		"state": run, "state-node": run, "state-folders": run, "records": run, "locks": run,
		"var": kept, "history": kept, "history-node": kept, "history-records": kept, "counters-folder": kept, "counters": kept,
	}
	bad := notWell(results)
	for _, r := range bad {
		if r.Fix != fixes[r.Check] {
			t.Errorf("%+v", r)
		}
		delete(fixes, r.Check)
	}
	if len(fixes) != 0 {
		t.Errorf("nothing of %v", fixes)
	}
	var text bytes.Buffer
	Print(&text, results)
	for _, fix := range []string{run, kept} {
		if n := strings.Count(text.String(), "fix: "+fix); n != 1 {
			t.Errorf("said %d times: %q:\n%s", n, fix, text.String())
		}
	}
	if want := "and for the same cause: state-node, state-folders, records, locks\n"; !strings.Contains(text.String(), want) {
		t.Errorf("not said: %q:\n%s", want, text.String())
	}
	n.do(run)
	n.do(kept)
	if bad := notWell(n.examine()); len(bad) > 0 {
		t.Errorf("%+v", bad)
	}
}

// Where the folders of the hooks are not made yet the file system on which they will be is looked at.
func TestFileSystemsBeforeTheFirstHook(t *testing.T) {
	n := newNode(t)
	must(t, os.Mkdir(n.in("ro"), 0o755))
	mount(t, n.in("ro"), "mode=0711,ro")
	n.site.Config.Paths.Var, n.site.Config.Paths.Log = n.in("ro/lib/var"), n.in("ro/log")
	found := 0
	for _, r := range n.examine() {
		if name := r.Check; (name == "var-filesystem" || name == "log-filesystem") != (r.Level == Wrong) {
			t.Errorf("%+v", r)
		} else if r.Level == Wrong && !strings.HasPrefix(r.Fix, "mount -o remount,rw "+n.in("ro")) {
			t.Errorf("%+v", r)
		} else if r.Level == Wrong {
			found++
		}
	}
	if found != 2 {
		t.Errorf("%d of 2 file systems are called wrong", found)
	}
}
