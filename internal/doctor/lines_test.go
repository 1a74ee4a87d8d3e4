package doctor

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bookend/internal/config"
)

// line is a node on which one thing is not as it must be, and what is said of it.
type line struct {
	spoil func(node)
	check string
	level string
	seen  string // a part of it; DIR is the node's folder, here and below
	fix   string // a part of it; "run": it is a command that makes all well again
}

func (l line) try(t *testing.T) {
	n := newNode(t)
	l.spoil(n)
	said := n.said(l.check)
	dir := strings.NewReplacer("DIR", n.dir)
	i := slices.IndexFunc(said, func(r Result) bool {
		return r.Level == l.level && strings.Contains(r.Seen,
			dir.Replace(l.seen))
	})
	if i < 0 {
		t.Fatalf("said %+v", said)
	}
	switch r := said[i]; {
	case l.level == OK:
	case r.Fix == "" || r.Why == "":
		t.Errorf("said %+v", r)
	case l.fix != "run" && !strings.Contains(r.Fix, dir.Replace(l.fix)):
		t.Errorf("said %+v, want fix %q", r, l.fix)
	case l.fix == "run":
		for _, r := range said {
			n.do(r.Fix)
		}
		for _, r := range notWell(n.examine()) {
			t.Errorf("after %q: %+v", said[0].Fix, r)
		}
	}
}

// Every check fails at least once.
func TestLines(t *testing.T) {
	failed := map[string]bool{}
	for _, table := range []map[string]line{ruleLines(), slurmLines(), hookLines(), gpuLines(),
		driverLines()} {
		for name, l := range table {
			t.Run(name, l.try)
			failed[l.check] = failed[l.check] || l.level != OK
		}
	}
	for _, c := range Checks() {
		if !failed[c.Name] {
			t.Errorf("no line shows %q failing", c.Name)
		}
		delete(failed, c.Name)
	}
	if len(failed) > 0 {
		t.Errorf("no such checks: %v", failed)
	}
}

func ruleLines() map[string]line {
	site := func(change func(*Site)) func(node) { return func(n node) { change(n.site) } }
	undropped := func(n node) { must(n.T, unix.Unmount(n.in("run/drop"), unix.MNT_DETACH)) }
	return map[string]line{
		"program a user's": {given("libexec/bookend-epilog"), "programs", Wrong,
			"libexec/bookend-epilog belongs to user 65534", "run"},
		"program a directory": {both(gone("libexec/bookend-epilog"), file("libexec/bookend-epilog/x", "", 0o644)),
			"programs", Wrong, "directory, where a file belongs", "take it out"},
		"program gone": {gone("libexec/bookend-gpu"), "programs", Wrong, "missing", "package again"},
		"program in a user's": {moved("libexec/bookend-gpu"), "programs", Wrong,
			"DIR/home belongs to user 65534", "let backend say so"},
		"cuda leads nowhere": {gone("lib/libcuda.so.580.1"), "programs", Unknown, "which does not exist", "stat"},
		"no library":         {gone("lib"), "programs", Warning, "missing", "let nvidia.nvml_library or"},

		"config closed": {mode("etc/bookend.yaml", 0o600), "config", Wrong, "too little", "run"},
		"config in a user's": {moved("etc/bookend.yaml"), "config", Wrong, "DIR/home belongs to user 65534",
			"move it"},
		"config lost": {gone("etc/bookend.yaml"), "config", Warning, "missing", "package again"},
		"mistakes": {site(func(s *Site) { s.Mistake = "not valid: line 7: bad" }), "config", Wrong, "line 7: bad",
			"config check"},

		"drop not a tmpfs": {undropped, "drop-filesystem", Warning, "not a tmpfs of its own", "run"},
	}
}

func slurmLines() map[string]line {
	pyxis := both(file("slurm/plugstack.conf", "include plugstack.conf.d/*\n", 0o644),
		file("slurm/plugstack.conf.d/p.conf", "required /usr/lib/slurm/spank_pyxis.so\n", 0o644))
	fifo := func(n node) { must(n.T, unix.Mkfifo(n.in("slurm/slurm.conf"), 0o600)) }
	folder := func(n node) { must(n.T, os.Mkdir(n.in("slurm/gres.conf"), 0o755)) }
	untasked := conf("TaskProlog=DIR/libexec/bookend-prolog\nTaskEpilog=DIR/libexec/bookend-epilog\n", "")
	return map[string]line{
		"no slurm.conf": {gone("slurm/slurm.conf"), "slurm-conf", Unknown, "in none of: ",
			"bookend setup --write"},
		"a pipe": {both(gone("slurm/slurm.conf"), fifo), "slurm-conf", Unknown, "could not be read", ""},
		"an include unread": {gone("slurm/nodes.conf"), "slurm-conf", Unknown,
			`slurm.conf line 16 includes "nodes.conf", which is not read`, ""},
		"gres.conf unread": {both(gone("slurm/gres.conf"), folder), "slurm-conf", Unknown, "gres.conf\": not a file", "make it readable"},
		"another node": {edit("slurm/nodes.conf", "n[1-4]", "m[1-4]"), "slurm-conf", Warning,
			`it has no node "n1"`, ""},
		"Slurm 21.08": {slurmdSays("slurm 21.08.8-2"), "slurm-version", Wrong, "21.08.8: not supported", "upgrade"},
		"Slurm 27.05": {slurmdSays("slurm 27.05.1"), "slurm-version", Warning, "27.05.1: not known, the newest", "observe"},
		"slurmd silent": {file("sbin/slurmd", "#!/bin/sh\nexit 3\n", 0o755), "slurm-version", Unknown,
			"exit 3", "slurmd -V"},
		"slurmd untrusted": {mode("sbin/slurmd", 0o777), "slurm-version", Unknown, "not started", "slurmd -V"},
		"no limit": {conf("PrologEpilogTimeout=60\n", ""), "hook-timeout", Warning,
			"no limit for the prolog", "PrologEpilogTimeout=60"},
		"limit too short": {conf("PrologEpilogTimeout=60", "PrologEpilogTimeout=10"), "hook-timeout", Wrong,
			"PrologEpilogTimeout=10, and deadlines.epilog.total is 15s", "PrologEpilogTimeout=60"},
		"its own limit": {both(slurmdSays("slurm 25.05.1"), conf("SlurmUser", "PrologTimeout=3\nSlurmUser")),
			"hook-timeout", Wrong, "PrologTimeout=3, and deadlines.prolog.total is 5s", "PrologTimeout=60"},
		"unknown to it": {conf("SlurmUser", "PrologTimeout=3\nSlurmUser"), "hook-timeout", OK,
			"prolog 60 s for 5s", ""},
		"linuxproc": {conf("proctrack/cgroup", "proctrack/linuxproc"), "cgroups", Warning, "linuxproc",
			"ProctrackType=proctrack/cgroup"},
		"not constrained": {edit("slurm/cgroup.conf", "yes", "no"), "cgroups", Warning,
			"ConstrainDevices is not yes", "ConstrainDevices=yes   # in DIR/slurm/cgroup.conf"},
		"pyxis": {pyxis, "pyxis", Wrong, "TaskProlog= and TaskEpilog=",
			"bookend setup --pyxis yes --write"},
		"pyxis alone": {both(pyxis, untasked), "pyxis", OK, "no pyxis with a task hook", ""},
	}
}

func hookLines() map[string]line {
	own := func(text string) func(node) { return file("own", "#!/bin/sh\n"+text+"\n", 0o755) }
	prolog := func(path string) func(node) {
		return conf("Prolog=DIR/hooks/prolog\nEpilog",
			"Prolog="+path+"\nEpilog")
	}
	nhc := both(conf("/libexec/hc", "/nhc"), file("nhc", "#!/bin/bash\n", 0o755))
	timer := file("root/"+timerLink, "", 0o644)
	unchecked := conf("HealthCheckProgram=DIR/libexec/hc\n", "")
	order := both(prolog("DIR/p.d/*"), file("p.d/10-a", "#!/bin/sh\n", 0o755),
		file("p.d/20-b", "#!/bin/sh\nbookend-prolog\n", 0o755), file("p.d/.30-c", "#!/bin/sh\nbookend-prolog\n",
			0o755))
	return map[string]line{
		"no prolog": {conf("Prolog=DIR/hooks/prolog\nEpilog", "Epilog"), "slurm-prolog", Wrong,
			"no Prolog=", "bookend setup --write   # where slurm.conf is maintained; then what it prints"},
		"no epilog": {conf("\nEpilog=DIR/hooks/epilog", ""), "slurm-epilog", Wrong, "no Epilog=",
			"bookend setup --write"},
		"prolog elsewhere": {prolog("DIR/none"), "slurm-prolog", Wrong, "does not exist",
			"install it on this node"},
		"not ours": {both(prolog("DIR/own"), own("# bookend-prolog one day")), "slurm-prolog", Unknown,
			"none is bookend-prolog", "bookend setup --write"},
		"twice": {both(conf("SlurmUser", "Prolog=DIR/own\nSlurmUser"), own("bookend-prolog")),
			"slurm-prolog", Wrong, "own, prolog: bookend-prolog 2 times", "once"},
		"two lines too early": {both(slurmdSays("slurm 23.11.4"), conf("SlurmUser", "Prolog=DIR/own\nSlurmUser"),
			own("")), "slurm-prolog", Wrong, "2 lines Prolog=, but slurmd is slurm 23.11.4", "it makes one line"},
		"in reverse order": {order, "slurm-prolog", OK, "runs 20-b, 10-a", ""},
		"hook of a user": {given("hooks"), "slurm-epilog", Wrong, "hooks belongs to user 65534",
			"move it"},
		"a program itself": {prolog("DIR/libexec/bookend-prolog"), "slurm-prolog", Warning,
			"the program itself", "bookend setup --write"},
		"by way of our script": {file("hooks/epilog",
			"#!/bin/sh\n/etc/bookend/slurm/hooks/epilog || exit\nexec own\n", 0o755), "slurm-epilog", OK, "runs " +
			"epilog", ""},
		"task hook for root": {mode("libexec/bookend-prolog", 0o700), "slurm-taskprolog", Wrong, "mode 0700",
			"chmod 0755"},
		"another task hook": {both(conf("TaskEpilog=DIR/libexec/bookend-epilog", "TaskEpilog=DIR/own"),
			own("")), "slurm-taskepilog", Warning, "none names bookend-epilog", "bookend setup --write"},
		"no health check": {unchecked, "slurm-healthcheck", Warning, "no HealthCheckProgram=",
			"bookend setup --write"},
		"NHC without it": {nhc, "slurm-healthcheck", Unknown, "none is bookend-healthcheck", "check_bookend in nhc.conf"},
		"NHC by our check": {both(nhc, file("root/etc/nhc/nhc.conf", "* || check_bookend\n", 0o644)),
			"slurm-healthcheck", OK, "runs nhc", ""},
		"a timer": {both(unchecked, timer), "slurm-healthcheck", OK, "by bookend-healthcheck.timer",
			""},
		"never checked": {conf("HealthCheckInterval=300\n", ""), "slurm-healthcheck", Wrong, "is 0",
			"HealthCheckInterval=300"},
		"check too long": {set(func(c *config.Config) { c.Deadlines.HealthCheck.Total = config.Duration(2 * time.Minute) }), "slurm-healthcheck", Wrong, "after 60 s, but deadlines.health_check.total is 2m0s", "total: 45s"},
		"no flags": {conf("PrologFlags=Alloc,Contain\n", ""), "prolog-flags", Warning,
			"neither Alloc nor Contain", "PrologFlags=Alloc   #"},
		"serial": {conf("Alloc,Contain", "Alloc,Serial"), "prolog-flags", Warning, "Serial",
			"take Serial out"},
		"a task hook lost": {both(conf("SlurmUser", "TaskProlog=DIR/own\nSlurmUser"), own("")), "slurm-twice",
			Wrong, "TaskProlog=DIR/own in slurm.conf line 3 does not count: slurm.conf line 8 says " +
				"DIR/libexec/bookend-prolog", "deploy/slurm.md"},
		"flags lost": {conf("PrologFlags=Alloc,Contain", "PrologFlags=X11,Contain\nPrologFlags=Alloc"),
			"slurm-twice", Wrong, "PrologFlags=X11,Contain in slurm.conf line 11 does not count: slurm.conf " +
				"line 12 says Alloc", "deploy/slurm.md"},
	}
}

func gpuLines() map[string]line {
	noCards := both(gone("proc/driver"), gone("sys/module"))
	crossed := both(card("1b", "Minor: \t 0", "Minor: \t 1"), card("3d", "Minor: \t 1", "Minor: \t 0"))
	shards := both(conf("GresTypes=gpu", "GresTypes=gpu,shard"), edit("slurm/nodes.conf", "gpu:2", "gpu:2,shard:8"))
	byBackend := both(gone("proc/driver"), set(func(c *config.Config) { c.NVIDIA.DriverProc = "" }))
	mig := saying(`"mig_mode":false`, `"mig_mode":true`)
	said := func(answer config.Shards) func(node) { return set(func(c *config.Config) { c.Slurm.Shards = answer }) }
	return map[string]line{
		"too many": {edit("slurm/nodes.conf", "gpu:2", "gpu:h200:3(S:0-1)"), "gpu-order", Wrong,
			"slurm.conf gives out 3, the driver has 2", "nvidia-smi"},
		"none": {edit("slurm/nodes.conf", "Gres=gpu:2 ", ""), "gpu-order", Warning,
			"slurm.conf gives out none, the driver has 2", "Gres=gpu:2"},
		"by the backend": {byBackend, "gpu-order", OK, "0 is 0000:1b:00.0, 1 is 0000:3d:00.0", ""},
		"excluded": {card("3d", "GPU Excluded:\t No", "GPU Excluded:\t Yes"), "gpu-order", Wrong,
			"the driver has 1", ""},
		"minors cross": {crossed, "gpu-order", OK, "slurmd -G: 0 is 0000:3d:00.0, 1 is 0000:1b:00.0", ""},
		"a GPU that is gone": {file("sbin/listed", listed(0, 2), 0o644), "gpu-order", Wrong,
			"Slurm's GPU 1 is none that the driver has", "take it out of gres.conf"},
		"slurmd counts": {gone("sbin/listed"), "gpu-order", OK, "counted, as slurmd does not tell: 0 is 0000:1b:00.0", ""},
		"a map too short": {gpuMap(map[int]string{0: "0000:1b:00.0"}), "gpu-order", Wrong,
			"nvidia.gpu_map has no GPU index 1", ""},
		"a map that differs": {gpuMap(map[int]string{0: "0000:3d:00.0", 1: "0000:1b:00.0"}), "gpu-order", Wrong,
			"nvidia.gpu_map takes number 0 for 0000:3d:00.0, slurmd for 0000:1b:00.0", "gpu_map: {}"},
		"no GPU of the driver's": {noCards, "gpu-order", Unknown, "the driver shows 0 GPUs", "nvidia-smi -L"},
		"MIG":                    {mig, "gpu-order", Warning, "MIG is on", "map"},
		"shards denied": {both(shards, said(config.ShardsNo)), "gpu-shards", Wrong,
			"but slurm.shards is no", "shards: auto"},
		"shards claimed": {said(config.ShardsYes), "gpu-shards", Warning, "but slurm.shards is yes",
			"shards: auto"},
		"shards": {shards, "gpu-shards", OK, "nothing found on a GPU drains", ""},
		"shards unsure": {both(conf("GresTypes=gpu", "GresTypes=gpu,shard"),
			edit("slurm/nodes.conf", "n[1-4]", "m[1-4]")), "gpu-shards", Warning, "is not known", "shards: no"},
	}
}

func driverLines() map[string]line {
	noCards := both(gone("proc/driver"), gone("sys/module"))
	backend := func(text string) func(node) { return file("libexec/bookend-gpu", text, 0o755) }
	limit := func(d time.Duration) func(node) {
		return set(func(c *config.Config) { c.Deadlines.Prolog.Driver = config.Duration(d) })
	}
	slow := backend(strings.Replace(backendSaying("test", nil), "read request", "read request; sleep 2.2", 1))
	fault := saying(`"kind":"snapshot","snapshot":{"at":1`,
		`"kind":"fault","fault":{"code":"version_mismatch","detail":"rc 18"}}
{"bookend":1,"kind":"snapshot","snapshot":{"at":1`)
	exporter := holds(50, "dcgm-exporter", "/user.slice", "nvidiactl")
	return map[string]line{
		"no driver": {noCards, "driver", Wrong, "slurm.conf gives out 2 GPUs here", "modprobe nvidia"},
		"none needed": {both(noCards, edit("slurm/nodes.conf", "Gres=gpu:2 ", "")), "driver", OK,
			"gives out no GPU here", ""},
		"backend crashes": {backend("#!/bin/sh\nkill -SEGV $$\n"), "driver", Wrong, "BKD-BK-CRASH",
			"bookend snapshot"},
		"backend of another": {backend(backendSaying("older", nil)), "driver", Wrong,
			"version older, bookend of test", "same package"},
		"backend slow": {both(limit(4*time.Second), slow), "driver", Warning,
			"of the 4s that a prolog has for it", "persistenced"},
		"backend hangs": {both(limit(time.Second), backend("#!/bin/sh\nexec sleep 1000\n")), "driver",
			Wrong, "BKD-HANG", "bookend snapshot"},
		"driver says no": {fault, "driver", Wrong, "version_mismatch: rc 18", "nvidia-smi"},
		"an exporter": {exporter, "driver-open", Warning,
			"PID 50 (dcgm-exporter), which belongs to no job and is not a systemd service, keeps the GPU driver " +
				"open (nvidiactl)", "systemctl status 50"},
		"a service": {holds(50, "nv-hostengine", "/system.slice/nvidia-dcgm.service", "nvidiactl"),
			"driver-open", OK, "only jobs", ""},
		"not to be read": {gone("proc/101/fd"), "driver-open", Unknown, "not every process", "fuser"},
	}
}
