package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/config"
)

// spoilt is a node on which one thing is not as it must be, and what is said of it.
type spoilt struct {
	spoil func(node)
	check string
	level Level
	seen  string // a part of it
	fix   string // a part of it; DIR stands for the node's folder
}

func (n node) said(check string) (said []Result) {
	for _, r := range n.examine() {
		if r.Check == check {
			said = append(said, r)
		}
	}
	return said
}

func (tt spoilt) try(t *testing.T) {
	n := newNode(t)
	tt.spoil(n)
	said := n.said(tt.check)
	for _, r := range said {
		fix, seen := strings.ReplaceAll(tt.fix, "DIR", n.dir), strings.ReplaceAll(tt.seen, "DIR", n.dir)
		if r.Level == tt.level && strings.Contains(r.Seen, seen) && strings.Contains(r.Fix, fix) && (r.Level == OK || r.Fix != "") {
			return
		}
	}
	t.Errorf("said %+v", said)
}

func gone(name string) func(node) {
	return func(n node) { must(n.T, os.RemoveAll(n.in(name))) }
}

func set(change func(*config.Config)) func(node) {
	return func(n node) { change(&n.site.Config) }
}

// asShipped puts a file of deploy/ where an admin does.
func asShipped(name, to string) func(node) {
	return func(n node) { file("root/"+to, text(n.T, "../../deploy/"+name), 0o644)(n) }
}

// timer enables the health check's timer as systemctl does.
func timer(n node) {
	file("root/usr/lib/systemd/system/bookend-healthcheck.timer", "[Timer]\n", 0o644)(n)
	must(n.T, os.MkdirAll(filepath.Dir(n.in("root/"+timerLink)), 0o755))
	must(n.T, os.Symlink(n.in("root/usr/lib/systemd/system/bookend-healthcheck.timer"), n.in("root/"+timerLink)))
}

// slurmd lets slurmd and scontrol be of a version.
func slurmd(version string) func(node) {
	return both(file("sbin/slurmd", "#!/bin/sh\necho "+version+"\n", 0o755), file("bin/scontrol", "#!/bin/sh\necho "+version+"\n", 0o755))
}

// Every line about Slurm and its hooks fails once.
func TestSlurmLines(t *testing.T) {
	for name, tt := range slurmLines() {
		t.Run(name, tt.try)
	}
}

func slurmLines() map[string]spoilt {
	return map[string]spoilt{
		"no slurm.conf":             {gone("slurm/slurm.conf"), "slurm-conf", Unknown, "in none of: ", "Prolog=/etc/bookend/slurm/hooks/prolog\nEpilog=/etc/bookend/slurm/hooks/epilog\n"},
		"a pipe":                    {both(gone("slurm/slurm.conf"), func(n node) { must(n.T, unix.Mkfifo(n.in("slurm/slurm.conf"), 0o600)) }), "slurm-conf", Unknown, "could not be read", ""},
		"an include unread":         {gone("slurm/nodes.conf"), "slurm-conf", Unknown, `slurm.conf line 15 includes "nodes.conf", which is not read`, ""},
		"a pattern included":        {edit("slurm/slurm.conf", "Include nodes.conf", "Include nodes*"), "slurm-conf", Unknown, "Slurm takes no pattern here", "correct that line"},
		"two keys in a line":        {conf("SlurmUser=slurm", "SlurmUser=slurm KillWait=30"), "slurm-conf", Wrong, "slurm.conf line 3 has SlurmUser= and KillWait= in one line", "a line of its own"},
		"gres.conf unread":          {both(gone("slurm/gres.conf"), func(n node) { must(n.T, os.Mkdir(n.in("slurm/gres.conf"), 0o755)) }), "slurm-conf", Unknown, "gres.conf beside it could not be read", ""},
		"another node":              {edit("slurm/nodes.conf", "n[1-4]", "m[1-4]"), "slurm-conf", Warning, `it has no node "n1"`, ""},
		"Slurm 20.11":               {slurmd("slurm-wlm 20.11.7"), "slurm-version", Wrong, "20.11.7: not supported", "upgrade"},
		"Slurm 21.08":               {slurmd("slurm 21.08.8-2"), "slurm-version", Wrong, "21.08.8: not supported", "upgrade"},
		"Slurm 22.05.2":             {slurmd("slurm 22.05.2"), "slurm-version", Warning, "22.05.2", "22.05.4"},
		"Slurm 22.05.8":             {slurmd("slurm 22.05.8"), "slurm-version", OK, "neither SLUID nor start time", ""},
		"Slurm 23.02.3":             {slurmd("slurm 23.02.3"), "slurm-version", Warning, "23.02.3", "23.02.5"},
		"Slurm 26.11":               {slurmd("slurm 26.11.0"), "slurm-version", OK, "newer than those that were tried", ""},
		"slurmd silent":             {file("sbin/slurmd", "#!/bin/sh\nexit 3\n", 0o755), "slurm-version", Unknown, "exit 3", "slurmd -V"},
		"slurmd untrusted":          {func(n node) { must(n.T, os.Chmod(n.in("sbin/slurmd"), 0o777)) }, "slurm-version", Unknown, "not started", "slurmd -V"},
		"scontrol other":            {file("bin/scontrol", "#!/bin/sh\necho slurm 22.05.8\n", 0o755), "scontrol-version", Wrong, "22.05.8, slurmd is 24.11.5", "slurm.scontrol"},
		"scontrol gone":             {gone("bin/scontrol"), "scontrol-version", Wrong, "missing", "slurm.scontrol"},
		"slurmd not root's":         {conf("SlurmUser=slurm", "SlurmdUser=slurm"), "slurmd-user", Wrong, "SlurmdUser=slurm", "SlurmdUser=root"},
		"no prolog":                 {conf("Prolog=DIR/hooks/prolog\nEpilog", "Epilog"), "slurm-prolog", Wrong, "no Prolog=", "Prolog=/etc/bookend/slurm/hooks/prolog   # in DIR/slurm/slurm.conf"},
		"no epilog":                 {conf("\nEpilog=DIR/hooks/epilog", ""), "slurm-epilog", Wrong, "no Epilog=", "Epilog=/etc/bookend/slurm/hooks/epilog"},
		"epilog alone":              {conf("Prolog=DIR/hooks/prolog\nEpilog", "Epilog"), "slurm-pair", Wrong, "Epilog= without Prolog=", "Prolog=/etc/bookend/slurm/hooks/prolog"},
		"prolog alone":              {conf("\nEpilog=DIR/hooks/epilog", ""), "slurm-pair", Wrong, "Prolog= without Epilog=", "Epilog=/etc/bookend/slurm/hooks/epilog"},
		"on the controller":         {conf("SlurmUser", "PrologSlurmctld=DIR/libexec/bookend-prolog\nSlurmUser"), "slurm-pair", Wrong, "PrologSlurmctld=", "take that line out"},
		"prolog elsewhere":          {conf("Prolog=DIR/hooks/prolog\nEpilog", "Prolog=DIR/none\nEpilog"), "slurm-prolog", Wrong, "does not exist", "Prolog=/etc/bookend/slurm/hooks/prolog"},
		"prolog of nothing":         {conf("Prolog=DIR/hooks/prolog\nEpilog", "Prolog=DIR/prolog.d/*\nEpilog"), "slurm-prolog", Wrong, "no file matches", ""},
		"not ours":                  {both(conf("Prolog=DIR/hooks/prolog\nEpilog", "Prolog=DIR/own\nEpilog"), file("own", "#!/bin/sh\n# bookend-prolog one day\n", 0o755)), "slurm-prolog", Wrong, "none is bookend-prolog", "[ ! -x /etc/bookend/slurm/hooks/prolog ] || /etc/bookend/slurm/hooks/prolog || exit $?   # as a line of DIR/own"},
		"by a script":               {both(conf("Prolog=DIR/hooks/prolog\nEpilog", "Prolog=DIR/own\nEpilog"), file("own", "#!/bin/sh\nDIR/libexec/bookend-prolog || exit\n", 0o755)), "slurm-prolog", OK, "bookend-prolog by own", ""},
		"another's program":         {conf("Prolog=DIR/hooks/prolog\nEpilog", "Prolog=DIR/libexec/bookend-epilog\nEpilog"), "slurm-prolog", Wrong, "Prolog=", "Prolog=/etc/bookend/slurm/hooks/prolog"},
		"twice":                     {both(conf("SlurmUser", "Prolog=DIR/own\nSlurmUser"), file("own", "#!/bin/sh\nbookend-prolog\n", 0o755)), "slurm-prolog", Wrong, "2 times: own, prolog", "once"},
		"two lines too early":       {both(slurmd("slurm 23.11.4"), conf("SlurmUser", "Prolog=DIR/own\nSlurmUser"), file("own", "#!/bin/sh\n", 0o755)), "slurm-prolog", Wrong, "2 lines Prolog=, but slurmd is 23.11.4", "prolog.d/*"},
		"in reverse order":          {both(conf("Prolog=DIR/hooks/prolog\nEpilog", "Prolog=DIR/p.d/*\nEpilog"), file("p.d/10-a", "#!/bin/sh\n", 0o755), file("p.d/20-b", "#!/bin/sh\nbookend-prolog\n", 0o755), file("p.d/.30-c", "#!/bin/sh\nbookend-prolog\n", 0o755)), "slurm-prolog", OK, "in this order: 20-b, 10-a; bookend-prolog by 20-b", ""},
		"a folder among them":       {both(conf("Prolog=DIR/hooks/prolog\nEpilog", "Prolog=DIR/p.d/*\nEpilog"), file("p.d/20-b", "#!/bin/sh\nbookend-prolog\n", 0o755), file("p.d/old/x", "", 0o644)), "slurm-prolog", Wrong, "folder, where a program belongs", "take it out of DIR/p.d"},
		"epilog not run":            {func(n node) { must(n.T, os.Chmod(n.in("hooks/epilog"), 0o644)) }, "slurm-epilog", Wrong, "mode 0644", "chmod 0755"},
		"task hook for root":        {func(n node) { must(n.T, os.Chmod(n.in("libexec/bookend-prolog"), 0o700)) }, "slurm-taskprolog", Wrong, "mode 0700", "chmod 0755"},
		"hook of a user":            {func(n node) { must(n.T, os.Chown(n.in("hooks"), user, 0)) }, "slurm-epilog", Wrong, "hooks belongs to user 65534", "chown root:root DIR/hooks"},
		"a stump":                   {both(conf("Epilog=DIR/hooks/epilog\n", "Epilog=bookend-epilog\n"), file("slurm/bookend-epilog", "\x7fELF\x02\x01\x01", 0o755)), "slurm-epilog", Wrong, "cut off after 7 bytes", "install -m 0755 /etc/bookend/slurm/hooks/epilog "},
		"a program itself":          {conf("Prolog=DIR/hooks/prolog\nEpilog", "Prolog=DIR/libexec/bookend-prolog\nEpilog"), "slurm-prolog", Warning, "the program itself", "Prolog=/etc/bookend/slurm/hooks/prolog"},
		"an earlier script":         {file("hooks/epilog", "#!/bin/sh\nhook=/usr/libexec/bookend/bookend-epilog\n# exec\nexec \"$hook\"\n", 0o755), "slurm-epilog", Warning, "a script that execs bookend-epilog", "call /etc/bookend/slurm/hooks/epilog instead"},
		"a site's script execs":     {file("hooks/epilog", "#!/bin/sh\nX=1 exec /usr/libexec/bookend/bookend-epilog\n", 0o755), "slurm-epilog", Warning, "a script that execs bookend-epilog", ""},
		"by way of our script":      {file("hooks/epilog", "#!/bin/sh\n/etc/bookend/slurm/hooks/epilog || exit\nexec own\n", 0o755), "slurm-epilog", OK, "bookend-epilog by epilog", ""},
		"task hook gone":            {conf("TaskProlog=DIR/libexec/bookend-prolog", "TaskProlog=DIR/none"), "slurm-taskprolog", Wrong, "does not exist", ""},
		"no task hook":              {conf("TaskProlog=DIR/libexec/bookend-prolog\n", ""), "slurm-taskprolog", OK, "no TaskProlog=", ""},
		"another task hook":         {both(conf("TaskEpilog=DIR/libexec/bookend-epilog", "TaskEpilog=DIR/own"), file("own", "#!/bin/sh\n", 0o755)), "slurm-taskepilog", Warning, "does not name bookend-epilog", "[ ! -x /etc/bookend/slurm/hooks/task-epilog ] || /etc/bookend/slurm/hooks/task-epilog   # as a line of DIR/own"},
		"no health check":           {conf("HealthCheckProgram=DIR/libexec/hc\n", ""), "slurm-healthcheck", Warning, "no HealthCheckProgram=", "HealthCheckProgram=/etc/bookend/slurm/hooks/healthcheck\nHealthCheckInterval=300"},
		"NHC without it":            {both(conf("/libexec/hc", "/nhc"), file("nhc", "#!/bin/bash\n", 0o755), file("root/etc/nhc/nhc.conf", "* || check_fs_mount /\n", 0o644)), "slurm-healthcheck", Wrong, "none is bookend-healthcheck", ""},
		"NHC by our check":          {both(conf("/libexec/hc", "/nhc"), file("nhc", "#!/bin/bash\n", 0o755), file("root/etc/nhc/nhc.conf", "* || check_bookend\n", 0o644), asShipped("nhc/bookend.nhc", nhcScript)), "slurm-healthcheck", OK, "bookend-healthcheck by nhc.conf", ""},
		"NHC without our check":     {both(conf("/libexec/hc", "/nhc"), file("nhc", "#!/bin/bash\n", 0o755), file("root/etc/nhc/nhc.conf", "* || check_bookend\n", 0o644)), "slurm-healthcheck", Wrong, "there is no /etc/nhc/scripts/bookend.nhc", "install -D -m 0644 deploy/nhc/bookend.nhc /etc/nhc/scripts/bookend.nhc"},
		"a timer":                   {both(conf("HealthCheckProgram=DIR/libexec/hc\n", ""), timer), "slurm-healthcheck", OK, "no HealthCheckProgram=: a timer runs bookend-healthcheck", ""},
		"a timer beside NHC":        {both(conf("/libexec/hc", "/nhc"), file("nhc", "#!/bin/bash\n", 0o755), timer), "slurm-healthcheck", OK, "bookend-healthcheck by a timer", ""},
		"a timer as well":           {timer, "slurm-healthcheck", Warning, "and so does a timer", "systemctl disable --now bookend-healthcheck.timer"},
		"a task hook lost":          {both(conf("SlurmUser", "TaskProlog=DIR/own\nSlurmUser"), file("own", "#!/bin/sh\n", 0o755)), "slurm-twice", Wrong, "TaskProlog=DIR/own in slurm.conf line 3 does not count: slurm.conf line 7 says DIR/libexec/bookend-prolog", "bookend-own-task-hooks.conf"},
		"the last task hook counts": {both(conf("TaskEpilog=DIR/libexec/bookend-epilog", "TaskEpilog=DIR/libexec/bookend-epilog\nTaskEpilog=DIR/own"), file("own", "#!/bin/sh\n", 0o755)), "slurm-taskepilog", Warning, "TaskEpilog=DIR/own does not name bookend-epilog", ""},
		"one of two task hooks":     {both(conf("SlurmUser", "TaskProlog=DIR/own\nSlurmUser"), file("own", "#!/bin/sh\nbookend-prolog\n", 0o755)), "slurm-taskprolog", OK, "bookend-prolog itself", ""},
		"NHC lost":                  {conf("SlurmUser", "HealthCheckProgram=DIR/nhc\nSlurmUser"), "slurm-twice", Wrong, "HealthCheckProgram=DIR/nhc", "bookend-own-health.conf"},
		"flags lost":                {conf("PrologFlags=Alloc,Contain", "PrologFlags=X11,Contain,DeferBatch\nPrologFlags=Alloc"), "slurm-twice", Wrong, "PrologFlags=X11,Contain,DeferBatch in slurm.conf line 10 does not count: slurm.conf line 11 says Alloc", "PrologFlags=Alloc,X11,Contain,DeferBatch   # as the only such line: in line 11 of DIR/slurm/slurm.conf; take out line 10"},
		"flags that others bring":   {conf("PrologFlags=Alloc,Contain", "PrologFlags=Alloc,Contain\nPrologFlags=X11"), "slurm-twice", Warning, "does not count", "PrologFlags=X11   #"},
		"flags at odds":             {conf("PrologFlags=Alloc,Contain", "PrologFlags=NoHold\nPrologFlags=Contain"), "slurm-twice", Wrong, "does not count", "PrologFlags=Contain   #"},
		"flags twice":               {conf("PrologFlags=Alloc,Contain", "PrologFlags=alloc\nPrologFlags=Alloc"), "slurm-twice", OK, "", ""},
		"a limit cut":               {conf("SlurmUser", "PrologEpilogTimeout=300\nSlurmUser"), "slurm-twice", Wrong, "PrologEpilogTimeout=300 in slurm.conf line 3 does not count: slurm.conf line 12 says 60", "take line 3 out of DIR/slurm/slurm.conf, or line 12"},
		"a limit raised":            {conf("SlurmUser", "PrologEpilogTimeout=30\nSlurmUser"), "slurm-twice", Warning, "does not count", ""},
		"an interval lost":          {conf("SlurmUser", "HealthCheckInterval=60\nSlurmUser"), "slurm-twice", Warning, "HealthCheckInterval=60", ""},
		"states lost":               {conf("SlurmUser", "HealthCheckNodeState=IDLE\nHealthCheckNodeState=ANY,CYCLE\nSlurmUser"), "slurm-twice", Warning, "HealthCheckNodeState=IDLE", ""},
		"NHC with it":               {both(conf("/libexec/hc", "/nhc"), file("nhc", "#!/bin/bash\n", 0o755), file("root/etc/nhc/nhc.conf", "* || check_cmd_status -r 0 /x/bookend-healthcheck\n", 0o644)), "slurm-healthcheck", OK, "", ""},
	}
}

// Every line about flags, times and tracking fails once.
func TestFlagLines(t *testing.T) {
	for name, tt := range flagLines() {
		t.Run(name, func(t *testing.T) {
			if tt.spoil == nil { // what no file can show
				tt.judged(t)
				return
			}
			tt.try(t)
		})
	}
}

func flagLines() map[string]spoilt {
	return map[string]spoilt{
		"no flags":           {conf("PrologFlags=Alloc,Contain\n", ""), "prolog-flags", Warning, "neither Alloc nor Contain", "PrologFlags=Alloc   #"},
		"serial":             {conf("Alloc,Contain", "Alloc,Serial"), "prolog-flags", Warning, "Serial", "PrologFlags=Alloc   #"},
		"in the job":         {conf("Alloc,Contain", "RunInJob"), "prolog-flags", Warning, "RunInJob", "PrologFlags=Contain"},
		"NoHold and Contain": {conf("Alloc,Contain", "Contain,NoHold"), "prolog-flags", Wrong, "NoHold", "PrologFlags=Contain"},
		"no limit":           {conf("PrologEpilogTimeout=60\n", ""), "hook-timeout", Warning, "no limit for prolog and epilog", "PrologEpilogTimeout=60"},
		"limit unlimited":    {conf("PrologEpilogTimeout=60", "PrologEpilogTimeout=65534"), "hook-timeout", Warning, "no limit", "PrologEpilogTimeout=60"},
		"limit too short":    {conf("PrologEpilogTimeout=60", "PrologEpilogTimeout=10"), "hook-timeout", Wrong, "PrologEpilogTimeout=10, but deadlines.epilog.total is 15s", "PrologEpilogTimeout=60"},
		"limit close":        {conf("PrologEpilogTimeout=60", "PrologEpilogTimeout=16"), "hook-timeout", Warning, "PrologEpilogTimeout=16, and deadlines.epilog.total is 15s", "PrologEpilogTimeout=60"},
		"its own limit":      {both(slurmd("slurm 25.05.1"), conf("SlurmUser", "PrologTimeout=3\nSlurmUser")), "hook-timeout", Wrong, "PrologTimeout=3, but deadlines.prolog.total is 5s", "PrologTimeout=60"},
		"unknown to it":      {conf("SlurmUser", "PrologTimeout=3\nSlurmUser"), "hook-timeout", OK, "prolog 60 s for 5s", ""},
		"messages":           {conf("SlurmUser", "MessageTimeout=6\nSlurmUser"), "message-timeout", Warning, "from 4s on", "MessageTimeout=8"},
		"batch start":        {conf("SlurmUser", "BatchStartTimeout=5\nSlurmUser"), "batch-start", Warning, "BatchStartTimeout=5", "BatchStartTimeout=15"},
		"batch and prolog":   {conf("SlurmUser", "PrologTimeout=30\nSlurmUser"), "batch-start", Warning, "less than PrologTimeout=30", "BatchStartTimeout=40"},
		"unkillable":         {conf("SlurmUser", "UnkillableStepTimeout=20\nSlurmUser"), "unkillable-step", Warning, "UnkillableStepTimeout=20 (KillWait 30 s)", "UnkillableStepTimeout=180"},
		"never checked":      {conf("HealthCheckInterval=300\n", ""), "health-interval", Wrong, "is 0", "HealthCheckInterval=300"},
		"checked too often":  {conf("Interval=300", "Interval=5"), "health-interval", Warning, "=5", "HealthCheckInterval=300"},
		"check cut short":    {conf("SlurmUser", "HealthCheckTimeout=20\nSlurmUser"), "health-interval", Wrong, "HealthCheckTimeout=20, but deadlines.health_check.total is 45s", "HealthCheckTimeout=60"},
		"check too long":     {set(func(c *config.Config) { c.Deadlines.HealthCheck.Total = config.Duration(2 * time.Minute) }), "health-interval", Wrong, "after 60 s, but deadlines.health_check.total is 2m0s", "total: 45s"},
		"checked seldom":     {conf("Interval=300", "Interval=7200"), "health-interval", Warning, "=7200", ""},
		"checked when idle":  {conf("SlurmUser", "HealthCheckNodeState=IDLE\nSlurmUser"), "health-interval", Warning, "IDLE", "HealthCheckNodeState=ANY"},
		"checked once":       {conf("SlurmUser", "HealthCheckNodeState=START_ONLY\nSlurmUser"), "health-interval", Warning, "START_ONLY", "HealthCheckNodeState=ANY"},
		"linuxproc":          {conf("proctrack/cgroup", "proctrack/linuxproc"), "proctrack", Warning, "linuxproc", "ProctrackType=proctrack/cgroup"},
		"pgid":               {conf("proctrack/cgroup", "proctrack/pgid"), "proctrack", Warning, "pgid", "ProctrackType=proctrack/cgroup"},
		"not constrained":    {edit("slurm/cgroup.conf", "yes", "no"), "constrain-devices", Warning, "ConstrainDevices is not yes", "ConstrainDevices=yes   # in DIR/slurm/cgroup.conf"},
		"no cgroup.conf":     {gone("slurm/cgroup.conf"), "constrain-devices", Warning, "there is none", "ConstrainDevices=yes"},
		"no task/cgroup":     {conf(",task/cgroup", ""), "constrain-devices", Warning, "has no task/cgroup", "TaskPlugin=task/cgroup"},
		"v2 on v1":           {edit("slurm/cgroup.conf", "", "CgroupPlugin=cgroup/v2\n"), "cgroup-mode", Wrong, "the node has v1, cgroup.conf says CgroupPlugin=cgroup/v2", "CgroupPlugin=autodetect"},
		"no cgroups":         {gone("sys/fs/cgroup/freezer"), "cgroup-mode", Unknown, "no cgroups", "mount"},
		"no adoption":        {edit("root/etc/pam.d/sshd", "account required pam_slurm_adopt.so\n", ""), "ssh-logins", Warning, "no pam_slurm_adopt", "pam_slurm_adopt.so"},
		"old adoption":       {edit("root/etc/pam.d/sshd", "pam_slurm_adopt", "pam_slurm"), "ssh-logins", Warning, "adopts nothing", "pam_slurm_adopt.so"},
		"taken away again":   {edit("root/etc/pam.d/common", "#session", "session"), "ssh-logins", Warning, "pam_systemd beside", "pam_systemd.so"},
		"adopted nowhere":    {conf("Alloc,Contain", "Alloc"), "ssh-logins", Wrong, "PrologFlags=Alloc", "PrologFlags=Contain"},
		"no logins":          {gone("root/etc/pam.d/sshd"), "ssh-logins", OK, "no logins", ""},
		"lingerer":           {file("root/var/lib/systemd/linger/ann", "", 0o644), "linger", Warning, "1 user stay", "disable-linger ann"},
		"hook on a network":  {nil, "slurm-prolog", Warning, "on a network file system (nfs)", "install -D"},
		"hybrid":             {nil, "cgroup-mode", Wrong, "hybrid", "unified_cgroup_hierarchy=1"},
		"clock":              {nil, "clock", Warning, "nobody keeps it", "chronyd"},
	}
}

// judged tries what a test cannot make real.
func (tt spoilt) judged(t *testing.T) {
	n := newNode(t)
	s := *n.site
	s.Survey = survey(s, maxPatience)
	s.Survey.System.Cgroup, s.Survey.System.Unsynced = "hybrid", true
	for i, l := range s.Survey.Slurm.Cgroup.Lines {
		s.Survey.Slurm.Cgroup.Lines[i].Pairs = append(l.Pairs, [2]string{"CgroupPlugin", "cgroup/v2"})
	}
	path := filepath.Join(n.dir, "hooks/prolog")
	seen := Seen{Files: []File{{Path: path, Kind: Regular, Mode: 0o755, Content: &Content{Shell: true, Names: []string{"bookend-prolog"}}, System: &FileSystem{Network: networks[0x6969]}}}}
	for _, c := range Checks() {
		if c.Name != tt.check {
			continue
		}
		got := c.Judge(s, seen)
		if len(got) != 1 || got[0].Level != tt.level || !strings.Contains(got[0].Seen, tt.seen) || !strings.Contains(got[0].Fix, tt.fix) {
			t.Errorf("%+v", got)
		}
		return
	}
	t.Error("no such check")
}

// Of each check beyond owners and modes some test shows that it can fail, and TestHealthy that it can pass.
func TestEveryLineFailsOnce(t *testing.T) {
	failed := map[string]bool{}
	for _, table := range []map[string]spoilt{slurmLines(), flagLines(), numberingLines(), cardLines(), nodeLines()} {
		for _, tt := range table {
			failed[tt.check] = failed[tt.check] || tt.level != OK
		}
	}
	for _, c := range beyond() {
		if !failed[c.Name] {
			t.Errorf("no test shows %q failing", c.Name)
		}
		if c.Area == "" || c.Holds == "" {
			t.Errorf("%q has nothing for the documentation", c.Name)
		}
		delete(failed, c.Name)
	}
	if len(failed) > 0 {
		t.Errorf("no such checks: %v", failed)
	}
}
