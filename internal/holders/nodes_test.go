package holders

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"bookend/internal/gpu"
	"bookend/internal/slurm"
	"bookend/test/golden"
	"bookend/test/must"
)

var update = flag.Bool("update", false, "rewrite the files of testdata that say what follows")

func TestNodes(t *testing.T) {
	golden.Lines(t, *update, "testdata/nodes.txt", func(target string) (said string) {
		for _, foreign := range []bool{false, true} {
			var got held
			got.add([]byte(target), place{"/dev/", func() bool { return foreign }})
			said += fmt.Sprint(got.Open())
		}
		return said
	})
}

// statTail is what a kernel writes behind state and name, up to and with a start time of 1234.56 s.
const statTail = " 1 2 3 0 -1 4194560 100 0 0 0 5 6 0 0 20 0 1 0 123456 1000 200 18446744073709551615 1 1 0\n"

const hex64 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// cgroups is a text of testdata/units.txt as the kernel writes it.
func cgroups(given string) string {
	return strings.NewReplacer(" | ", "\n", "HEX", hex64).Replace(given) + "\n"
}

func TestParseUnit(t *testing.T) {
	golden.Lines(t, *update, "testdata/units.txt", func(given string) string {
		service, container := parseUnit(cgroups(given))
		return strings.TrimSpace(service + " " + container)
	})
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

// A user, and a PID namespace, is what the kernel's own lines say, whatever lines a name makes up.
func FuzzStatus(f *testing.F) {
	for _, seed := range []string{"sleep", "x\nUid:\t0\t0\t0\t0", "\nUid:\t1\t1\t1\t1\nUid:", "x\nNSpid:\t1\t2"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if uid, err := parseUID(text); err == nil && !strings.Contains(text, strconv.FormatUint(uint64(uid), 10)) ||
			err != nil && uid != 0 {
			t.Errorf("%q: %d, %v", text, uid, err)
		}
		rest := "\nUid:\t1000\t0\t0\t0\nGid:\t0\t0\t0\t0\nNSpid:\t7"
		must.Be(t, fmt.Sprintf("name %q", text), must.Have(parseUID("Name:\t"+text+rest+"\n"))(t), 1000)
		for pids, want := range map[string]bool{"\nNSpgid:\t7\t1\n": false, "\t1\nNSpgid:\t7\t1\n": true} {
			must.Be(t, fmt.Sprintf("name %q", text), parseOtherPIDs("Name:\t"+text+rest+pids), want)
		}
	})
}

// The job is that of the first entry of its name, and one that was cut off is none.
func FuzzEnviron(f *testing.F) {
	f.Add("A=1\x00SLURM_JOB_ID=77\x00B=2\x00", 9)
	f.Add("SLURM_JOB_ID=4294967295", 3)
	for _, text := range []string{
		"XSLURM_JOB_ID=1\x00SLURM_JOB_ID=\x00SLURM_JOB_ID=5\x00", "SLURM_JOB_ID=7\x00SLURM_JOB_ID=8\x00", "SLURM_JOB_ID=77",
		"A=SLURM_JOB_ID=77\x00", "SLURM_JOB_ID=7x\x00SLURM_JOB_ID=8\x00", "SLURM_JOB_ID=4294967296\x00",
		"A=1\x00SLURM_JOB_ID=77", "SLURM_JOB_ID=77\x00A=", "",
	} {
		f.Add(text, max(0, len(text)-1))
		f.Add(text, len(text))
	}
	f.Fuzz(func(t *testing.T, text string, at int) {
		whole, plain := parseEnviron(text, false), slurm.JobID(0)
		for _, entry := range strings.Split(text, "\x00") {
			if name, value, _ := strings.Cut(entry, "="); name == "SLURM_JOB_ID" && strings.Contains(entry, "=") {
				if id, ok := slurm.ParseJobID(value); ok {
					plain = id
				}
				break
			}
		}
		must.Not(t, whole != plain, "%q: %d, not %d", text, whole, plain)
		if at < 0 || at > len(text) {
			return
		}
		part := parseEnviron(text[:at], true)
		must.Not(t, part != 0 && part != whole, "cut at %d, %q reads %d for %d", at, text, part, whole)
	})
}

// Nobody is excused as a service or a container by folders that a user, or a job, has made.
func FuzzUnit(f *testing.F) {
	for line := range strings.Lines(string(must.Have(os.ReadFile("testdata/units.txt"))(f))) {
		given, _, _ := strings.Cut(line, " => ")
		f.Add(cgroups(given))
	}
	f.Add("1:name=systemd:/system.slice/slurmd.service\n0::/machine.slice/machine-x.scope\n")
	f.Fuzz(func(t *testing.T, text string) {
		service, container := parseUnit(text)
		if service != "" && container != "" || len(service) > maxUnit || len(container) > maxUnit ||
			strings.Contains(service, "slurmd") {
			t.Errorf("%q: %q, %q", text, service, container)
		}
		if name := strings.TrimSuffix(service, "..."); service != "" && !strings.Contains(text, "/"+name) {
			t.Errorf("%q has no service %q", text, service)
		}
		// Whatever a user's own manager calls its folders.
		below := strings.NewReplacer("\n", "", "\x00", "").Replace(text)
		if service, container := parseUnit("0::/user.slice/user-1.slice/user@1.service/" + below +
			"\n"); service != "" || container != "" {
			t.Errorf("below a user's manager %q: %q, %q", below, service, container)
		}
		if service, container := parseUnit("0::/system.slice/slurmd.service/" + strings.ReplaceAll(below, "/", "_") +
			"\n"); service != "" {
			t.Errorf("in Slurm's own unit %q: %q, %q", below, service, container)
		}
	})
}

// nodeForm is what the driver's nodes are called, below any folder.
var nodeForm = regexp.MustCompile(`(?s)^(/.*)?/(nvidiactl|nvidia-uvm|nvidia-uvm-tools|nvidia(0|[1-9][0-9]{0,6})|nvidia-caps/nvidia-cap[^/]*|dri/renderD(0|[1-9][0-9]{0,6}))$`)

func FuzzNode(f *testing.F) {
	for _, seed := range []string{"/dev/nvidia0", "/nvidia-caps/nvidia-cap1", "nvidia-caps/nvidia-cap1 (deleted)",
		"/dev/dri/renderD128", "/dri/renderD0", "/dev/renderD128", "/memfd:/dev/nvidia0", "/dmabuf:/nvidiactl",
		"/dev/nvidia00", "/dev/nvidia1048576", "/home/u/nvidia0", "/c/rootfs/dev/nvidia-uvm", "pipe:[1]",
		"/dev/nvidia0 (deleted)"} {
		f.Add(seed, "/dev")
		f.Add(seed, "")
	}
	f.Fuzz(func(t *testing.T, target, dev string) {
		n, folder, ok := parseNode(target)
		name := strings.TrimSuffix(target, deleted)
		if ok && (!nodeForm.MatchString(name) || n.Kind == 0 || !strings.HasPrefix(target, folder+"/") ||
			!mayBeNode([]byte(target))) {
			t.Errorf("%q: %+v in %q", target, n, folder)
		}
		must.Not(t, ok && n.Kind == gpu.CardNode && !strings.HasSuffix(name, strconv.Itoa(n.Minor)),
			"%q is GPU %d in %q", target, n.Minor, folder)
		must.Not(t, strings.HasPrefix(target, "/memfd:") && ok, "a process made up %q", target)
		var own, foreign held
		own.add([]byte(target), place{dev, func() bool { return false }})
		foreign.add([]byte(target), place{dev, func() bool { return true }})
		must.Not(t, own.Buffers != strings.HasPrefix(target, "/dmabuf:"), "%q: a dma-buf: %v", target, own.Buffers)
		own.Buffers, foreign.Buffers = false, false
		if foreign.any() && !ok || own.any() && !foreign.any() || own.any() && folder != "" &&
			folder != strings.TrimRight(dev, "/") {
			t.Errorf("%q below %q: %+v, elsewhere %+v", target, dev, own, foreign)
		}
	})
}

func FuzzMap(f *testing.F) {
	f.Add("/dev/nvidia0")
	f.Add("[anon: x] /dev/nvidia0")
	f.Add("7f65389df000-7f65389e0000 rw-s 00000000 00:05 1042                       /dev/nvidiactl")
	f.Fuzz(func(t *testing.T, text string) {
		if path := parseMap([]byte(text)); len(path) > 0 && (path[0] != '/' || !strings.HasSuffix(text, string(path))) {
			t.Errorf("%q: %q", text, path)
		}
		if strings.HasPrefix(text, "/") && !strings.Contains(text, "\n") {
			if path := parseMap([]byte(strings.TrimSuffix(mapLine(text), "\n"))); string(path) != text {
				t.Errorf("%q: %q", text, path)
			}
		}
		if anonymous := "[anon:" + text; !strings.Contains(text, "\n") {
			if path := parseMap([]byte(strings.TrimSuffix(mapLine(anonymous), "\n"))); len(path) > 0 {
				t.Errorf("%q is the file %q", anonymous, path)
			}
		}
	})
}
