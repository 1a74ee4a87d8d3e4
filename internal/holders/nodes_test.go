package holders

import (
	"reflect"
	"strings"
	"testing"
)

func TestNodes(t *testing.T) {
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
		for foreign, want := range map[bool]nodes{false: want.host, true: want.inside} {
			var got nodes
			got.add([]byte(target), place{"/dev/", func() bool { return foreign }})
			if !reflect.DeepEqual(got, want) {
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
