package doctor

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"bookend/internal/config"
)

const maxPatience = time.Minute

// card lets the driver's /proc say something else of a card.
func card(bus, old, now string) func(node) {
	return edit("proc/driver/nvidia/gpus/0000:"+bus+":00.0/information", old, now)
}

// crossed lets minors run against PCI addresses.
func crossed() func(node) {
	return both(card("1b", "Minor: \t 0", "Minor: \t 1"), card("3d", "Minor: \t 1", "Minor: \t 0"))
}

func gpuMap(m map[int]string) func(node) {
	return set(func(c *config.Config) { c.NVIDIA.GPUOrder, c.NVIDIA.GPUMap = config.OrderMap, m })
}

// Every line about which card is which fails once.
func TestNumberingLines(t *testing.T) {
	for name, tt := range numberingLines() {
		t.Run(name, tt.try)
	}
}

func numberingLines() map[string]spoilt {
	const gres = "Name=gpu File=DIR/dev/nvidia[0-1]"
	noCards := both(gone("proc/driver"), gone("sys/module"))
	return map[string]spoilt{
		"too many":                {edit("slurm/nodes.conf", "gpu:2", "gpu:h200:3(S:0-1)"), "gpu-count", Wrong, "slurm.conf gives out 3, the driver has 2", "Gres=gpu:2"},
		"too few":                 {edit("slurm/nodes.conf", "gpu:2", "gpu:1"), "gpu-count", OK, "1 of the 2 that the driver has", ""},
		"none":                    {edit("slurm/nodes.conf", "Gres=gpu:2 ", ""), "gpu-count", Warning, "slurm.conf gives out none, the driver has 2", "Gres=gpu:2"},
		"excluded":                {card("3d", "GPU Excluded:\t No", "GPU Excluded:\t Yes"), "gpu-count", Wrong, "the driver has 1", ""},
		"no gres.conf":            {gone("slurm/gres.conf"), "gpu-files", Wrong, "no File= and no AutoDetect=", "AutoDetect=nvml   # in DIR/slurm/gres.conf"},
		"count alone":             {edit("slurm/gres.conf", gres, "Name=gpu Count=2"), "gpu-files", Wrong, "no File=", ""},
		"detected":                {edit("slurm/gres.conf", gres, "Name=gpu AutoDetect=nvml"), "gpu-files", OK, "AutoDetect=nvml", ""},
		"no device":               {gone("dev/nvidia1"), "gpu-devices", Wrong, "no device: nvidia1", "nvidia-modprobe"},
		"minors cross":            {crossed(), "gpu-order", OK, "slurmd -G: 0 is 0000:3d:00.0, 1 is 0000:1b:00.0", ""},
		"lines turned round":      {file("sbin/listed", listed(1, 0), 0o644), "gpu-order", OK, "slurmd -G: 0 is 0000:3d:00.0, 1 is 0000:1b:00.0", ""},
		"typed, and one left out": {both(edit("slurm/nodes.conf", "gpu:2", "gpu:a:1"), file("sbin/listed", listed(1), 0o644)), "gpu-order", OK, "slurmd -G: 0 is 0000:3d:00.0", ""},
		"a count that differs":    {edit("slurm/nodes.conf", "gpu:2", "gpu:3"), "gpu-order", Wrong, "slurmd -G lists 2 GPUs, slurm.conf gives out 3", "slurmd -N n1 -v -G   #"},
		"a GPU that is gone":      {file("sbin/listed", listed(0, 2), 0o644), "gpu-order", Wrong, "Slurm's GPU 1 is none that the driver has", "take it out of gres.conf"},
		"no device of a GPU":      {file("sbin/listed", strings.ReplaceAll(listed(0, 1), "nvidia1", "tty1"), 0o644), "gpu-order", Wrong, "not the device file of a whole GPU", "gpu_map"},
		"slurmd silent":           {gone("sbin/listed"), "gpu-order", Warning, "GPUs are counted", "slurmd: /usr/sbin/slurmd"},
		"silent, and typed":       {both(gone("sbin/listed"), edit("slurm/nodes.conf", "gpu:2", "gpu:a:2")), "gpu-order", Wrong, "not one untyped run of GPUs", "slurmd -N n1 -v -G   #"},
		"a map too short":         {gpuMap(map[int]string{0: "0000:1b:00.0"}), "gpu-order", Wrong, "nvidia.gpu_map has no GPU index 1", ""},
		"a map that differs":      {gpuMap(map[int]string{0: "0000:3d:00.0", 1: "0000:1b:00.0"}), "gpu-order", Wrong, "nvidia.gpu_map takes number 0 for 0000:3d:00.0, slurmd for 0000:1b:00.0", "gpu_order: auto"},
		"a map that agrees":       {gpuMap(map[int]string{0: "0000:1b:00.0", 1: "0000:3d:00.0"}), "gpu-order", OK, "nvidia.gpu_map: 0 is 0000:1b:00.0", ""},
		"no GPU of the driver's":  {noCards, "gpu-order", Unknown, "the driver shows 0 GPUs", "nvidia-smi -L"},
		"no GPU of Slurm's":       {edit("slurm/nodes.conf", "Gres=gpu:2 ", ""), "gpu-order", OK, "not applicable: slurm.conf has no GPUs of this node", ""},
		"no GPU at all":           {both(noCards, edit("slurm/nodes.conf", "n[1-4]", "m[1-4]")), "gpu-order", OK, "not applicable: slurm.conf has no GPUs of this node", ""},
		"MIG":                     {saying(`"mig_mode":false`, `"mig_mode":true`), "gpu-order", Warning, "MIG is on", "map"},
		"no ids for MIG":          {both(saying(`"mig_mode":false`, `"mig_mode":true`), edit("slurm/gres.conf", "Name=gpu", "Name=gpu Flags=no_gpu_env")), "gpu-env", Warning, "no_gpu_env", "take no_gpu_env out"},
		"no ids":                  {edit("slurm/gres.conf", "Name=gpu", "Name=gpu Flags=no_gpu_env"), "gpu-env", OK, "SLURM_JOB_GPUS", ""},
		"shards denied": {both(conf("GresTypes=gpu", "GresTypes=gpu,shard"), edit("slurm/nodes.conf", "gpu:2", "gpu:2,shard:8"), set(func(c *config.Config) { c.Slurm.Shards = config.ShardsNo })),
			"gpu-shards", Wrong, "but slurm.shards is no", "shards: auto"},
		"shards claimed": {set(func(c *config.Config) { c.Slurm.Shards = config.ShardsYes }), "gpu-shards", Warning, "but slurm.shards is yes", "shards: auto"},
		"shards":         {both(conf("GresTypes=gpu", "GresTypes=gpu,shard"), edit("slurm/nodes.conf", "gpu:2", "gpu:2,shard:8")), "gpu-shards", OK, "nothing found on a card drains", ""},
		"shards unsure":  {both(conf("GresTypes=gpu", "GresTypes=gpu,shard"), edit("slurm/nodes.conf", "n[1-4]", "m[1-4]")), "gpu-shards", Warning, "is not known", "shards: no"},
	}
}

// Every line about driver and cards fails once.
func TestCardLines(t *testing.T) {
	for name, tt := range cardLines() {
		t.Run(name, tt.try)
	}
}

func cardLines() map[string]spoilt {
	noCards := both(gone("proc/driver"), gone("sys/module"))
	return map[string]spoilt{
		"an exporter":      {holds(50, "dcgm-exporter", "/user.slice", "nvidiactl"), "driver-open", Warning, "PID 50 (dcgm-exporter), which belongs to no job and is not a systemd service, keeps the GPU driver open (nvidiactl)", "systemctl status 50"},
		"a service":        {holds(50, "nv-hostengine", "/system.slice/nvidia-dcgm.service", "nvidiactl"), "driver-open", OK, "only jobs and systemd services keep it open", ""},
		"a job":            {holds(50, "train", "/system.slice/slurmstepd.scope/job_7/step_0/user/task_0", "nvidia0"), "driver-open", OK, "only jobs and systemd services keep it open", ""},
		"not searched":     {both(holds(50, "dcgm-exporter", "/user.slice", "nvidiactl"), set(func(c *config.Config) { c.Look.Holders = false })), "driver-open", OK, "look.holders: false", ""},
		"not to be read":   {gone("proc/101/fd"), "driver-open", Unknown, "no process could be looked into", "fuser"},
		"no driver":        {noCards, "driver", Wrong, "slurm.conf gives out 2 GPUs here", "modprobe nvidia"},
		"none needed":      {both(noCards, edit("slurm/nodes.conf", "Gres=gpu:2 ", "")), "driver", OK, "gives out no GPU here", ""},
		"none, no Slurm":   {both(noCards, gone("slurm/slurm.conf")), "driver", Warning, "not loaded", "modprobe nvidia"},
		"a file for cards": {both(gone("proc/driver/nvidia/gpus"), file("proc/driver/nvidia/gpus", "", 0o644)), "driver", Wrong, "list cards", "nvidia-smi"},
		"old":              {file("sys/module/nvidia/version", "470.161.03\n", 0o644), "driver", Warning, "470.161.03", "install a driver"},
		"broken lists":     {file("sys/module/nvidia/version", "535.54.03\n", 0o644), "driver", Warning, "535.54.03", "535.98"},
		"no version":       {gone("sys/module"), "driver", Unknown, "does not tell", ""},
		"other library":    {file("sys/module/nvidia/version", "580.2\n", 0o644), "driver-library", Wrong, "580.1, the loaded module is 580.2", "reboot"},
		"unreadable card":  {card("3d", "0000:3d:00.0", "0000:ff:00.0"), "cards", Wrong, "cannot be read", "nvidia-smi"},
		"a card has gone":  {both(card("3d", "Minor: \t 1", "Minor: \t 3")), "cards", Wrong, "2 of 4 cards have gone", "dmesg"},
		"a stranger": {both(file("sys/bus/pci/devices/0000:9d:00.0/vendor", "0x10de\n", 0o644), file("sys/bus/pci/devices/0000:9d:00.0/class", "0x030200\n", 0o644)),
			"cards", Warning, "0000:9d:00.0 has no driver", "lspci -k -s 0000:9d:00.0"},
		"backend crashes":    {file("libexec/bookend-gpu", "#!/bin/sh\nkill -SEGV $$\n", 0o755), "backend-answer", Wrong, "BKD-BK-CRASH", "bookend snapshot"},
		"backend untrusted":  {func(n node) { must(n.T, os.Chmod(n.in("libexec/bookend-gpu"), 0o777)) }, "backend-answer", Wrong, "BKD-BK-REFUSED", "bookend snapshot"},
		"backend of another": {file("libexec/bookend-gpu", backendSaying("older", nil), 0o755), "backend-answer", Wrong, "version older, bookend is test", "install -m 0755 bin/bookend-* DIR/libexec/"},
		"other protocol":     {file("libexec/bookend-gpu", backendSaying("test", map[string]string{`"bookend":1`: `"bookend":2`}), 0o755), "backend-answer", Wrong, "BKD-BK-VERSION", ""},
		"backend slow": {both(set(func(c *config.Config) { c.Deadlines.Prolog.Driver = config.Duration(4 * time.Second) }), func(n node) {
			put(n.T, n.in("libexec/bookend-gpu"), strings.Replace(backendSaying("test", nil), "read request", "read request; sleep 2.2", 1), 0o755)
		}), "backend-answer", Warning, "of the 4s that a prolog has for it", "persistenced"},
		"backend hangs": {both(set(func(c *config.Config) { c.Deadlines.Prolog.Driver = config.Duration(time.Second) }), file("libexec/bookend-gpu", "#!/bin/sh\nexec sleep 1000\n", 0o755)),
			"backend-answer", Wrong, "BKD-HANG", "bookend snapshot"},
		"driver says no": {saying(`"kind":"snapshot","snapshot":{"at":1`, `"kind":"fault","fault":{"code":"version_mismatch","detail":"rc 18"}}
{"bookend":1,"kind":"snapshot","snapshot":{"at":1`), "backend-answer", Wrong, "version_mismatch: rc 18", "nvidia-smi"},
		"a card lost":        {saying(`"readings":[`, `"faults":[{"code":"gpu_lost","bus_id":"0000:1b:00.0","detail":"rc 15"}],"readings":[`), "backend-answer", Wrong, "gpu_lost", ""},
		"persistence off":    {saying(`"code":"persistence","value":"on"`, `"code":"persistence","value":"off"`), "persistence", Warning, "off on 2 of 2 cards", "nvidia-persistenced"},
		"health silent":      {saying(`"kind":"health"`, `"kind":"unheard"`), "persistence", Unknown, "did not tell", "nvidia-smi"},
		"prohibited":         {saying(`"value":"default"`, `"value":"prohibited"`), "compute-mode", Wrong, "PROHIBITED on 2 of 2", "-c DEFAULT"},
		"exclusive":          {saying(`"value":"default"`, `"value":"exclusive_process"`), "compute-mode", Warning, "EXCLUSIVE_PROCESS", "probe.exclusive: true"},
		"exclusive, meant":   {both(set(func(c *config.Config) { c.Probe.Exclusive = true }), saying(`"value":"default"`, `"value":"exclusive_process"`)), "compute-mode", OK, "exclusive_process", ""},
		"MIG":                {saying(`"mig_mode":false`, `"mig_mode":true`), "mig", Warning, "MIG is on", "nvidia-smi -mig 0"},
		"no accounts on MIG": {both(set(func(c *config.Config) { c.NVIDIA.Accounting = true }), saying(`"mig_mode":false`, `"mig_mode":true`)), "accounting", Warning, "MIG is on", "accounting: false"},
		"accounts forgotten": {both(set(func(c *config.Config) { c.NVIDIA.Accounting = true }), saying(`"code":"persistence","value":"on"`, `"code":"persistence","value":"off"`)), "accounting", Warning, "persistence mode is off", "nvidia-persistenced"},
		"accounts to come":   {set(func(c *config.Config) { c.NVIDIA.Accounting = true }), "accounting", OK, "the next prolog switches it on", ""},
	}
}

// Every line about the rest of the node fails once.
func TestNodeLines(t *testing.T) {
	for name, tt := range nodeLines() {
		t.Run(name, tt.try)
	}
}

func nodeLines() map[string]spoilt {
	pyxis := file("slurm/plugstack.conf", "include plugstack.conf.d/*\n", 0o644)
	exporter := func(args ...string) func(node) {
		return func(n node) {
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "DIR", n.dir)
			}
			n.runs(202, "node_exporter", "/usr/bin/node_exporter", args...)
		}
	}
	return map[string]spoilt{
		"another release":   {file("libexec/bookend-epilog", "#!/bin/sh\necho bookend-epilog 0.1\n", 0o755), "versions", Wrong, "version 0.1, bookend is test", "install -m 0755 bin/bookend-*"},
		"says no version":   {file("libexec/bookend-epilog", "#!/bin/sh\nexit 1\n", 0o755), "versions", Unknown, "does not tell its version", "install"},
		"pyxis":             {both(pyxis, file("slurm/plugstack.conf.d/p.conf", "required /usr/lib/slurm/spank_pyxis.so\n", 0o644)), "pyxis", Wrong, "TaskProlog= and TaskEpilog=", "Include /etc/bookend/slurm/bookend-pyxis.conf   # in DIR/slurm/slurm.conf"},
		"pyxis, 24.05":      {both(slurmd("slurm 24.05.3"), pyxis, file("slurm/plugstack.conf.d/p.conf", "required /usr/lib/slurm/spank_pyxis.so\n", 0o644)), "pyxis", Warning, "TaskProlog= and TaskEpilog=", "bookend-pyxis.conf"},
		"pyxis alone":       {both(file("slurm/plugstack.conf", "optional spank_pyxis.so\n", 0o644), conf("TaskProlog=DIR/libexec/bookend-prolog\nTaskEpilog=DIR/libexec/bookend-epilog\n", "")), "pyxis", OK, "no task hook", ""},
		"private /run":      {both(conf("SlurmUser", "JobContainerType=job_container/tmpfs\nSlurmUser"), file("slurm/job_container.conf", "AutoBasePath=true\nBasePath=/x\nDirs=/tmp,DIR\n", 0o644)), "job-container", Warning, "jobs have a private ", "out of Dirs="},
		"private /tmp":      {conf("SlurmUser", "JobContainerType=job_container/tmpfs\nSlurmUser"), "job-container", OK, "gets no end report", ""},
		"collected nowhere": {exporter(), "collector", Warning, "without --collector.textfile.directory", "--collector.textfile.directory=DIR/collector"},
		"another collected": {exporter("--collector.textfile.directory=DIR/other"), "collector", Warning, "node_exporter collects ", "ln -s DIR/collector/bookend.prom DIR/other/bookend.prom"},
		"collected":         {exporter("--collector.textfile.directory", "DIR/collector"), "collector", OK, "node_exporter collects ", ""},
		"collected by a link": {both(exporter("--collector.textfile.directory=DIR/other"), func(n node) {
			must(n.T, os.Mkdir(n.in("other"), 0o755))
			must(n.T, os.Symlink(n.in("collector/bookend.prom"), n.in("other/bookend.prom")))
		}), "collector", OK, "where a link leads to it", ""},
		"no syslog":      {gone("dev/log"), "syslog", Warning, "there is none", "syslog: false"},
		"no log at all":  {both(gone("dev/log"), set(func(c *config.Config) { c.Log.File = false })), "syslog", Wrong, "there is none", "file: true"},
		"a file for log": {both(gone("dev/log"), file("dev/log", "", 0o644)), "syslog", Warning, "a file, where syslog listens", ""},
	}
}

// One that calls itself slurmd, and is not root's, leads nobody anywhere.
func TestFalseSlurmd(t *testing.T) {
	n := newNode(t)
	n.site.SlurmConf = ""
	put(t, n.in("evil.conf"), "NodeName=n1\n", 0o644)
	must(t, os.Rename(n.in("proc/101"), n.in("proc/999")))
	n.runs(50, "slurmd", n.in("sbin/slurmd"), "-f", n.in("evil.conf"))
	must(t, os.Chown(n.in("proc/50"), user, user))
	if said := n.said("slurm-conf"); len(said) != 1 || said[0].Level != OK || said[0].Path != n.in("slurm/slurm.conf") {
		t.Errorf("%+v", said)
	}
}

// While a child of Bookend's is stuck in the driver, nobody asks it.
func TestStuckDriver(t *testing.T) {
	n := newNode(t)
	put(t, n.in("run/state/n1/stuck.json"), `{"pid":77,"start_ticks":5,"since_ns":3000000000,"op":"backend"}`, 0o600)
	put(t, n.in("proc/77/stat"), "77 (bookend-gpu) D 1"+strings.Repeat(" 0", 15)+" 1 0 5 0\n", 0o644)
	put(t, n.in("libexec/bookend-gpu"), "#!/bin/sh\ntouch "+n.in("asked")+"\n", 0o755)
	if said := n.said("backend-answer"); len(said) != 1 || said[0].Level != Unknown || !strings.Contains(said[0].Seen, "PID 77") {
		t.Errorf("%+v", said)
	}
	if _, err := os.Stat(n.in("asked")); err == nil {
		t.Error("the driver was asked")
	}
}

// Each part of the node may hang, and costs no more than patience: what depends on it is unknown.
func TestPartsThatHang(t *testing.T) {
	for folder, check := range map[string]string{"slurm": "slurm-conf", "proc/driver/nvidia/gpus": "driver", "root/etc/pam.d": "ssh-logins", "hooks": "slurm-prolog", "dev": "gpu-devices"} {
		t.Run(folder, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			hang(t, n.in(folder))
			const patience = 2 * time.Second
			n.site.Config.Deadlines.Prolog.Driver = config.Duration(patience)
			began := time.Now()
			results := Examine(*n.site, patience)
			if took := time.Since(began); took > longest(patience)+5*time.Second {
				t.Errorf("took %v", took)
			}
			for _, r := range results {
				if r.Check == check && r.Level != Unknown {
					t.Errorf("%+v", r)
				}
			}
		})
	}
}

// Without slurm.conf the cause is said once, with the lines to add, and all that depends on it beside.
func TestWithoutSlurm(t *testing.T) {
	n := newNode(t)
	must(t, os.RemoveAll(n.in("slurm")))
	var text, js bytes.Buffer
	results := n.examine()
	Print(&text, results)
	if !Fails(results) || strings.Count(text.String(), notJudged) != 0 || strings.Count(text.String(), "prolog-flags") != 1 || !strings.Contains(text.String(), "fix: Include /etc/bookend/slurm/bookend.conf ") || !strings.Contains(text.String(), "\n              Prolog=/etc/bookend/slurm/hooks/prolog\n              Epilog=") {
		t.Errorf("%s", text.String())
	}
	must(t, PrintJSON(&js, results))
	var read struct{ Results []Result }
	must(t, json.Unmarshal(js.Bytes(), &read))
	if len(read.Results) != len(results) {
		t.Errorf("%d of %d", len(read.Results), len(results))
	}
}

// The worst comes first, and no line but one to paste, or of one long word, is wider than a terminal.
func TestReadable(t *testing.T) {
	n := newNode(t)
	both(conf("Alloc,Contain", "Serial"), gone("dev/log"), conf("\nEpilog=DIR/hooks/epilog", ""))(n)
	must(t, os.Chmod(n.in("run/state"), 0o755))
	var text bytes.Buffer
	Print(&text, n.examine())
	last := Wrong
	rank := map[Level]int{Wrong: 0, Unknown: 1, Warning: 2, OK: 3}
	fixing := false
	for line := range strings.Lines(text.String()) {
		line = strings.TrimRight(line, "\n")
		if at, is := rank[Level(strings.Fields(line)[0])]; is && line[0] != ' ' {
			if at < rank[last] {
				t.Errorf("%q after %s", line, last)
			}
			last = Level(strings.Fields(line)[0])
		}
		switch {
		case strings.HasPrefix(line, "         fix: "):
			fixing = true
		case !strings.HasPrefix(line, strings.Repeat(" ", 14)):
			fixing = false
		}
		if len(line) > lineWidth && !fixing && len(strings.Fields(line)) > 3 {
			t.Errorf("%d wide: %q", len(line), line)
		}
	}
}

// A pure judgement of what an old Slurm says, without a node.
func TestVersions(t *testing.T) {
	for text, want := range map[string]string{
		"slurm 22.05.8": "22.05.8", "slurm-wlm 20.11.7": "20.11.7", "slurm 21.08.8-2": "21.08.8", "slurm 25.11.0-0rc1": "25.11.0", "slurm-wlm 24.11.5": "24.11.5", "slurm 26.05": "26.05.0",
		"": "", "slurm": "", "bash 5.2.1": "", "slurm x.y": "",
	} {
		v, ok := parseVersion(text)
		if got := v.String(); ok != (want != "") || ok && got != want {
			t.Errorf("%q: %s, %v", text, got, ok)
		}
	}
}

// What Slurm calls the node slurmd was told, or a NodeHostname= tells.
func TestNodesName(t *testing.T) {
	for name, spoil := range map[string]func(node){
		"told":  both(gone("proc/101"), func(n node) { n.runs(102, "slurmd", n.in("sbin/slurmd"), "-N", "n3", "-f", n.in("slurm/slurm.conf")) }),
		"on it": edit("slurm/nodes.conf", "", "NodeName=x7 NodeHostname=myhost Gres=gpu:2\n"),
	} {
		n := newNode(t)
		spoil(n)
		n.site.NodeName, n.site.SlurmConf = "myhost", ""
		for check, want := range map[string]string{"slurm-conf": "read, 16 lines", "gpu-count": "2, as the driver"} {
			said := n.said(check)
			if name == "on it" {
				want = strings.Replace(want, "16", "17", 1)
			}
			if len(said) != 1 || said[0].Level != OK || said[0].Seen != want {
				t.Errorf("%s: %+v", name, said)
			}
		}
	}
}

// longest is how long Examine takes at most where everything hangs, but for what the kernel itself needs: four rounds of
// looking, one after another.
func longest(patience time.Duration) time.Duration { return 4 * (patience + time.Second) }
