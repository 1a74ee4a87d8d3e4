package holders

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"bookend/internal/attrib"
	"bookend/test/must"
)

func TestNodes(t *testing.T) {
	for target, want := range map[string]struct{ host, inside attrib.Holding }{
		"/dev/nvidia0":                            {attrib.Holding{Minors: []int{0}}, attrib.Holding{Minors: []int{0}}},
		"/dev/nvidia12 (deleted)":                 {attrib.Holding{Minors: []int{12}}, attrib.Holding{Minors: []int{12}}},
		"/dev/nvidiactl":                          {attrib.Holding{Control: true}, attrib.Holding{Control: true}},
		"/dev/nvidia-uvm":                         {attrib.Holding{UVM: true}, attrib.Holding{UVM: true}},
		"/dev/nvidia-uvm-tools":                   {attrib.Holding{UVM: true}, attrib.Holding{UVM: true}},
		"/dev/nvidia-caps/nvidia-cap1":            {attrib.Holding{Caps: true}, attrib.Holding{Caps: true}},
		"/nvidia3":                                {attrib.Holding{Minors: []int{3}}, attrib.Holding{Minors: []int{3}}},
		"/nvidia-caps/nvidia-cap1":                {attrib.Holding{Caps: true}, attrib.Holding{Caps: true}},
		"/srv/chroot/dev/nvidia0":                 {attrib.Holding{}, attrib.Holding{Minors: []int{0}}},
		"/host/dev/nvidia-caps/nvidia-cap9":       {attrib.Holding{}, attrib.Holding{Caps: true}},
		"/home/u/nvidia0":                         {},
		"/dev/shm/nvidia0":                        {},
		"/dev/nvidia-modeset":                     {},
		"/dev/nvidia01":                           {},
		"/dev/nvidia-1":                           {},
		"/dev/nvidia":                             {},
		"/dev/nvidia0/x":                          {},
		"/dev/nvidia99999999999":                  {},
		"/memfd:a/dev/nvidia0 (deleted)":          {},
		"/dmabuf:/dev/nvidia0":                    {},
		"dev/nvidia0":                             {},
		"pipe:[1]":                                {},
		"nvidia0":                                 {},
		"":                                        {},
		"/usr/lib/python3/nvidia/lib/libcudnn.so": {},
	} {
		for foreign, want := range map[bool]attrib.Holding{false: want.host, true: want.inside} {
			var got held
			got.add([]byte(target), place{"/dev/", func() bool { return foreign }})
			if !reflect.DeepEqual(got.Holding, want) {
				t.Errorf("%q, foreign %v: %+v, want %+v", target, foreign, got, want)
			}
		}
	}
}

func TestParseMap(t *testing.T) {
	for line, want := range map[string]string{
		strings.TrimSuffix(mapLine("/dev/nvidia0"), "\n"):                    "/dev/nvidia0",
		strings.TrimSuffix(mapLine("/a b/ c\\012d (deleted)"), "\n"):         "/a b/ c\\012d (deleted)",
		"560e7e04e000-560e7e06f000 rw-p 00000000 00:00 0 ":                   "",
		"560e7e04e000-560e7e06f000 rw-p 00000000 00:00 0":                    "",
		"560e7e04e000-560e7e06f000 rw-p 00000000 00:00 0   [heap]":           "",
		"560e7e04e000-560e7e06f000 rw-p 00000000 00:00 0   [anon: /dev/x]":   "",
		"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]": "",
		"/dev/nvidia0": "",
		"":             "",
	} {
		if got := string(parseMap([]byte(line))); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

// statTail is what a kernel writes behind state and name, up to and with a start time of 1234.56 s.
const statTail = " 1 2 3 0 -1 4194560 100 0 0 0 5 6 0 0 20 0 1 0 123456 1000 200 18446744073709551615 1 1 0\n"

func TestParseStat(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		want stat
	}{
		"plain":         {"42 (python3) S" + statTail, stat{"python3", "S", 1234560 * time.Millisecond}},
		"brackets":      {"4259 (a) R (b) S" + statTail, stat{"a) R (b", "S", 1234560 * time.Millisecond}},
		"newline":       {"42 (a\n1 (b) Z" + statTail, stat{"a\n1 (b", "Z", 1234560 * time.Millisecond}},
		"forged line":   {"42 (x) R 1 1 1) T" + statTail, stat{"x) R 1 1 1", "T", 1234560 * time.Millisecond}},
		"empty name":    {"42 () D" + statTail, stat{"", "D", 1234560 * time.Millisecond}},
		"not valid utf": {"42 (\xff\xfe) S" + statTail, stat{"\xff\xfe", "S", 1234560 * time.Millisecond}},
	} {
		got, err := parseStat(tc.text)
		if err != nil || got != tc.want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, tc.want)
		}
	}
	for _, bad := range []string{"", "42", "42 (x", "42 x) S", ")(", "42 (x) S 1 2", "42 (x) SS" + statTail,
		strings.Replace("42 (x) S"+statTail, "123456", "-1", 1),
		strings.Replace("42 (x) S"+statTail, "123456", "18446744073709551615", 1)} {
		if got, err := parseStat(bad); err == nil {
			t.Errorf("%q was accepted: %+v", bad, got)
		}
	}
}

const hex64 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

var units = map[string]struct{ text, service, container string }{
	"service":            {"0::/system.slice/dcgm.service\n", "dcgm.service", ""},
	"service of a slice": {"0::/system.slice/system-gpu.slice/gpu@1.service\n", "gpu@1.service", ""},
	"service, v1":        {"12:pids:/system.slice/nvidia-persistenced.service\n1:name=systemd:/system.slice/nvidia-persistenced.service\n", "nvidia-persistenced.service", ""},
	"service, deleted":   {"0::/system.slice/dcgm.service (deleted)\n", "dcgm.service", ""},
	"slurmd":             {"0::/system.slice/slurmd.service\n", "", ""},
	"slurmstepd's scope": {"0::/system.slice/n1_slurmstepd.scope/slurmd\n", "", ""},
	"ssh":                {"0::/system.slice/sshd.service\n", "", ""},
	"cron":               {"0::/system.slice/cron.service\n", "", ""},
	"user's session":     {"0::/user.slice/user-1000.slice/session-4.scope\n", "", ""},
	"user's tree":        {"0::/user.slice/user-1000.slice/user@1000.service/system.slice/dcgm.service\n", "", ""},
	"user's podman": {"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" + hex64 +
		".scope\n", "", ""},
	"user beside a service": {"5:cpu:/system.slice/dcgm.service\n1:name=systemd:/user.slice/user-1000.slice/session-4.scope\n", "", ""},
	"scope of the system":   {"0::/system.slice/run-1.scope/dcgm.service\n", "", ""},
	"no system slice":       {"0::/a/system.slice/dcgm.service\n", "", ""},
	"above its namespace":   {"0::/../../system.slice/dcgm.service\n", "", ""},
	"empty":                 {"", "", ""},
	"docker, systemd":       {"0::/system.slice/docker-" + hex64 + ".scope\n", "", "container:0123456789ab"},
	"docker, cgroupfs":      {"0::/docker/" + hex64 + "\n", "", "container:0123456789ab"},
	"docker, v1": {"6:freezer:/docker/" + hex64 + "\n0::/system.slice/containerd.service\n", "",
		"container:0123456789ab"},
	"docker's own service": {"0::/system.slice/docker.service\n", "docker.service", ""},
	"service in docker": {"0::/system.slice/docker-" + hex64 + ".scope/system.slice/dcgm.service\n", "",
		"container:0123456789ab"},
	"podman":                 {"0::/machine.slice/libpod-" + hex64 + ".scope/container\n", "", "container:0123456789ab"},
	"podman's monitor":       {"0::/machine.slice/libpod-conmon-" + hex64 + ".scope\n", "", ""},
	"kubernetes, containerd": {"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice/cri-containerd-" + hex64 + ".scope\n", "", "container:0123456789ab"},
	"kubernetes, colons": {"0::/system.slice/containerd.service/kubepods-besteffort-pod1.slice:cri-containerd:" +
		hex64 + "\n", "", "container:0123456789ab"},
	"lxc":           {"0::/lxc.payload.web/system.slice/dcgm.service\n", "", "lxc:web"},
	"lxc's monitor": {"0::/lxc.monitor.web\n", "", ""},
	"nspawn":        {"0::/machine.slice/systemd-nspawn@web.service/payload\n", "", "machine:web"},
	"virtual machine": {"0::/machine.slice/machine-qemu\\x2d1\\x2dweb.scope/libvirt\n", "",
		"machine:qemu\\x2d1\\x2dweb"},
	"apptainer":    {"0::/system.slice/apptainer-4711.scope\n", "", "apptainer:4711"},
	"outermost":    {"0::/docker/" + hex64 + "/lxc.payload.web\n", "", "container:0123456789ab"},
	"id too short": {"0::/docker/" + hex64[:63] + "\n", "", ""},
	"long name": {"0::/lxc.payload." + strings.Repeat("w", 250) + "\n", "",
		"lxc:" + strings.Repeat("w", 121) + "..."},
}

func TestParseUnit(t *testing.T) {
	for name, tc := range units {
		if service, container := parseUnit(tc.text); service != tc.service || container != tc.container {
			t.Errorf("%s: %q, %q; want %q, %q", name, service, container, tc.service, tc.container)
		}
	}
}

func TestLongExe(t *testing.T) {
	proc := t.TempDir()
	link(t, filepath.Join(fixture(t, proc, "10", jobCgroup, ""), "exe"),
		strings.Repeat("/deep", 100)+"/nvidia-cuda-mps-server")
	if p := one(t, proc, 10); len(p.Exe) != maxExe+len("...") || !strings.HasPrefix(p.Exe, "...") || !p.OfMPS() {
		t.Errorf("%d bytes: %q", len(p.Exe), p.Exe)
	}
	if p := one(t, "/proc", start(t, "idle", nil)); p.Exe != must.Have(os.Executable())(t) {
		t.Errorf("%q", p.Exe)
	}
}
