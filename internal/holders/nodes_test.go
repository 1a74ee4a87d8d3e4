package holders

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bookend/test/must"
)

func TestNodes(t *testing.T) {
	host, inside := place{dev: "/dev/"}, place{dev: "/dev", foreign: true}
	for target, want := range map[string]struct{ host, inside nodes }{
		"/dev/nvidia0":                            {nodes{minors: []int{0}}, nodes{minors: []int{0}}},
		"/dev/nvidia12 (deleted)":                 {nodes{minors: []int{12}}, nodes{minors: []int{12}}},
		"/dev/nvidiactl":                          {nodes{control: true}, nodes{control: true}},
		"/dev/nvidia-uvm":                         {nodes{uvm: true}, nodes{uvm: true}},
		"/dev/nvidia-uvm-tools":                   {nodes{uvm: true}, nodes{uvm: true}},
		"/dev/nvidia-caps/nvidia-cap1":            {nodes{caps: true}, nodes{caps: true}},
		"/nvidia3":                                {nodes{minors: []int{3}}, nodes{minors: []int{3}}},
		"/nvidia-caps/nvidia-cap1":                {nodes{caps: true}, nodes{caps: true}},
		"/srv/chroot/dev/nvidia0":                 {nodes{}, nodes{minors: []int{0}}},
		"/host/dev/nvidia-caps/nvidia-cap9":       {nodes{}, nodes{caps: true}},
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
		for _, in := range []place{host, inside} {
			want := map[bool]nodes{false: want.host, true: want.inside}[in.foreign]
			var got nodes
			if got.add([]byte(target), in); !reflect.DeepEqual(got, want) {
				t.Errorf("%q, foreign %v: %+v, want %+v", target, in.foreign, got, want)
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

// A folder's names come whole and once, however many reads that takes.
func TestNamesAndLinks(t *testing.T) {
	dir := t.TempDir()
	want := map[string]bool{}
	for _, name := range []string{"0", "7", "10", "99", "100", "1048575"} {
		link(t, filepath.Join(dir, name), "/target/of/"+name)
		want["/target/of/"+name] = true
	}
	link(t, filepath.Join(dir, "x"), "/x")
	check(os.Remove(filepath.Join(dir, "x")))
	for _, size := range []int{64, 100, 32 << 10} {
		folder := must.Have(os.Open(dir))(t)
		r := &reader{entries: make([]byte, size), target: make([]byte, unix.PathMax)}
		got, read := map[string]bool{}, 0
		more := func() bool { read++; return true }
		err := r.links(int(folder.Fd()), more, func(target []byte) { got[string(target)] = true })
		if err != nil || !reflect.DeepEqual(got, want) || read != len(want) {
			t.Errorf("buffer of %d: %v, %d read, %v", size, got, read, err)
		}
		folder.Close()
	}
}
