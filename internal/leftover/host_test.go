package leftover

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"bookend/test/must"
)

const gib = 1 << 30

// recorded is the text of a node of 251.4 GiB with Linux 4.18, shortened.
const recorded = `MemTotal:       263616512 kB
MemFree:        198213120 kB
MemAvailable:   210763776 kB
Buffers:            5468 kB
Cached:         19931248 kB
SwapTotal:             0 kB
Shmem:           1048576 kB
KReclaimable:    2210344 kB
Slab:            4210344 kB
SReclaimable:    2210344 kB
SUnreclaim:      2000000 kB
HugePages_Total:       4
HugePages_Free:        4
Hugepagesize:       2048 kB
Hugetlb:            8192 kB
DirectMap1G:    260046848 kB
`

const arcstats = `13 1 0x01 123 33456 7788 99
name                            type data
hits                            4    84317
c_min                           4    1073741824
size                            4    5368709120
`

func TestParseHost(t *testing.T) {
	want := Host{Total: 263616512 << 10, Available: 210763776 << 10, In: [kinds]uint64{Shared: gib, HugePages: 8 << 20, Kernel: 2000000 << 10}}
	must.Be(t, "the node's memory", must.Have(ParseHost(recorded, ""))(t), want)
	want.Cache = 4 * gib
	must.Be(t, "with ZFS", must.Have(ParseHost(recorded, arcstats))(t), want)
	want.Cache = 0
	must.Be(t, "with less than ZFS keeps", must.Have(ParseHost(recorded, strings.Replace(arcstats, "5368709120", "5", 1)))(t), want)
	want.In[HugePages] = 0
	must.Be(t, "before Linux 4.16", must.Have(ParseHost(strings.Replace(recorded, "Hugetlb:            8192 kB\n", "", 1), ""))(t), want)
	for _, name := range []string{"MemTotal", "MemAvailable", "Shmem", "SUnreclaim"} {
		for _, bad := range []string{strings.Replace(recorded, name+":", name+"x:", 1), strings.Replace(recorded, name+":   ", name+": -", 1)} {
			if h, err := ParseHost(bad, ""); err == nil {
				t.Errorf("without %s: %+v", name, h)
			}
		}
	}
}

func TestParseProcess(t *testing.T) {
	const status = "Name:\t%s\nUmask:\t0022\nState:\tS (sleeping)\nUid:\t%d\t0\t0\t0\nVmRSS:\t    3072 kB\nRssAnon:\t    1024 kB\nRssFile:\t 2048 kB\n"
	for _, tt := range []struct {
		uid    uint32
		bytes  uint64
		system bool
	}{{0, 3 << 20, true}, {999, 3 << 20, true}, {1000, 1 << 20, false}, {61183, 1 << 20, false}, {61184, 3 << 20, true}, {65534, 3 << 20, true}, {65535, 1 << 20, false}} {
		got := ParseProcess(7, fmt.Sprintf(status, "Uid: 0", tt.uid), "0::/system.slice/cron.service\n")
		must.Be(t, fmt.Sprint(tt.uid), got, HostProcess{PID: 7, UID: tt.uid, Bytes: tt.bytes, Name: "Uid: 0"})
		must.Be(t, fmt.Sprint(tt.uid, " is the system's"), got.OfSystem(), tt.system)
	}
	const hub = "jupyterhub.service"
	must.Be(t, "a service that runs as a user", ParseProcess(7, fmt.Sprintf(status, hub, 1000), "0::/system.slice/"+hub+"\n"),
		HostProcess{PID: 7, UID: 1000, Bytes: 3 << 20, Name: hub, Service: hub})
	must.Be(t, "a kernel thread", ParseProcess(2, "Name:\tkthreadd\nUid:\t0\t0\t0\t0\n", ""), HostProcess{PID: 2, Name: "kthreadd"})
}

// host is a node of 256 GiB, so that 12.8 GiB matter, after an edit.
func host(edit func(*HostUse)) HostUse {
	u := HostUse{Host: Host{Total: 256 * gib, Available: 250 * gib, In: [kinds]uint64{Shared: gib, Kernel: gib, System: gib}}}
	edit(&u)
	return u
}

// takes is a look at which so much of a kind is taken.
func takes(bytes uint64, kind int) func(*HostUse) {
	return func(u *HostUse) { u.Available, u.In[kind] = u.Available-bytes, u.In[kind]+bytes }
}

func same(*HostUse) {}

// A node is compared with what it had twice in this boot: less than that by much is a shortage, and what took it is named.
func TestShortage(t *testing.T) {
	both := func(edits ...func(*HostUse)) func(*HostUse) {
		return func(u *HostUse) {
			for _, edit := range edits {
				edit(u)
			}
		}
	}
	for name, tt := range map[string]struct {
		looks []func(*HostUse)
		brief string // ends so; empty for no shortage
		state string
	}{
		"the first look":                    {[]func(*HostUse){takes(200*gib, Shared)}, "", ""},
		"one look before it":                {[]func(*HostUse){same, takes(200*gib, Shared)}, "", ""},
		"less than matters":                 {[]func(*HostUse){same, same, takes(12*gib, Shared)}, "", ""},
		"two looks before it":               {[]func(*HostUse){same, same, takes(13*gib, Shared)}, "shared memory 13.0 GiB", ""},
		"the better of them counts once":    {[]func(*HostUse){takes(20*gib, Users), same, takes(30*gib, Shared)}, "", ""},
		"and twice":                         {[]func(*HostUse){takes(20*gib, Users), same, same, takes(13*gib, Shared)}, "shared memory 13.0 GiB", ""},
		"a baseline stays the best":         {[]func(*HostUse){same, same, takes(8*gib, Shared), takes(13*gib, Shared)}, "shared memory 13.0 GiB", ""},
		"a shortage does not become normal": {[]func(*HostUse){same, same, takes(20*gib, Shared), takes(20*gib, Shared)}, "shared memory 20.0 GiB", ""},
		"it is over":                        {[]func(*HostUse){same, same, takes(20*gib, Shared), same}, "", ""},
		"ZFS has it": {[]func(*HostUse){same, same, func(u *HostUse) { u.Available, u.Cache = u.Available-60*gib, 59*gib }},
			"", ""},
		"ZFS had it and gave it back": {[]func(*HostUse){func(u *HostUse) { u.Cache = 60 * gib }, func(u *HostUse) { u.Cache = 60 * gib },
			func(u *HostUse) { u.Available += 60 * gib }}, "", ""},
		"memory was added": {[]func(*HostUse){same, same, both(takes(20*gib, Shared), func(u *HostUse) { u.Total += gib })}, "", ""},
		"each kind": {[]func(*HostUse){same, same, both(takes(9*gib, Shared), takes(8*gib, HugePages), takes(7*gib, Kernel), takes(6*gib, Users))},
			"shared memory 9.0 GiB, huge pages 8.0 GiB, unreclaimable kernel memory 7.0 GiB, processes of users 6.0 GiB", ""},
		"a little of one kind is not worth a word": {[]func(*HostUse){same, same, both(takes(19*gib, Shared), takes(gib, Kernel))},
			"shared memory 19.0 GiB", ""},
		"GPFS mounted its file system": {[]func(*HostUse){same, same, takes(64*gib, System)}, "system services 64.0 GiB", "system"},
		"root reserves huge pages":     {[]func(*HostUse){same, same, takes(64*gib, HugePages)}, "huge pages 64.0 GiB", "system"},
		"that, and what a job left":    {[]func(*HostUse){same, same, both(takes(64*gib, System), takes(13*gib, Shared))}, "shared memory 13.0 GiB, system services 64.0 GiB", ""},
		"a service that only maps files": {[]func(*HostUse){same, same, both(takes(20*gib, Shared), func(u *HostUse) { u.In[System] += 99 * gib })},
			"shared memory 20.0 GiB, system services 99.0 GiB", ""},
		"what cannot be seen": {[]func(*HostUse){same, same, both(takes(5*gib, Kernel), func(u *HostUse) { u.Available -= 15 * gib })},
			"unreclaimable kernel memory 5.0 GiB, most of it in nothing that Bookend can see", "unexplained"},
	} {
		t.Run(name, func(t *testing.T) {
			var looks HostLooks
			for _, edit := range tt.looks {
				looks = looks.After("boot", host(edit))
			}
			s := looks.Short
			if s == nil || tt.brief == "" {
				must.Not(t, s != nil || tt.brief != "", "%+v", s)
				return
			}
			_, brief, _ := strings.Cut(s.Brief, "was on it: ")
			must.Be(t, "what takes it", brief, tt.brief)
			must.Be(t, "system services alone", s.System, tt.state == "system")
			must.Be(t, "unexplained", s.Unexplained, tt.state == "unexplained")
			must.Be(t, "another boot", looks.After("next", host(tt.looks[len(tt.looks)-1])).Short == nil, true)
		})
	}
	big := func(free uint64) HostUse { return HostUse{Host: Host{Total: 2048 * gib, Available: free * gib}} }
	looks := HostLooks{}.After("b", big(2000)).After("b", big(2000))
	must.Be(t, "15 GiB of 2 TiB", looks.After("b", big(1985)).Short == nil, true)
	must.Be(t, "16 GiB of 2 TiB", looks.After("b", big(1984)).Short == nil, false)
	must.Be(t, "no memory at all", HostLooks{}.After("", HostUse{}).After("", HostUse{}).After("", HostUse{}).Short == nil, true)
}

// The start of a job reports only what is still there, whatever other jobs have by then; also after a round trip as JSON.
func TestStands(t *testing.T) {
	best := HostLooks{}.After("b", host(same)).After("b", host(same))
	must.Be(t, "no shortage", best.Stands("b", host(same).Host, true), false)
	for name, tt := range map[string]struct {
		found, now        func(*HostUse)
		exclusive, shared bool // whether it stands for a job that has the node to itself, and for another
	}{
		"as it was":                      {takes(40*gib, Shared), takes(40*gib, Shared), true, true},
		"more":                           {takes(40*gib, Shared), takes(100*gib, Shared), true, true},
		"a quarter of it is back":        {takes(40*gib, Shared), takes(30*gib, Shared), true, true},
		"more of it is back":             {takes(40*gib, Shared), takes(29*gib, Shared), false, false},
		"removed, and a job has as much": {takes(40*gib, Shared), takes(100*gib, Users), false, false},
		"a process":                      {takes(40*gib, Users), takes(40*gib, Users), true, false},
		"of services":                    {takes(40*gib, System), takes(40*gib, System), false, false},
		"reserved huge pages":            {takes(40*gib, HugePages), takes(40*gib, HugePages), false, false},
		"other memory":                   {takes(40*gib, Shared), func(u *HostUse) { takes(40*gib, Shared)(u); u.Total-- }, false, false},
	} {
		var kept HostLooks
		must.Do(t, json.Unmarshal(must.Have(json.Marshal(best.After("b", host(tt.found))))(t), &kept))
		must.Be(t, name+", exclusive", kept.Stands("b", host(tt.now).Host, true), tt.exclusive)
		must.Be(t, name+", shared", kept.Stands("b", host(tt.now).Host, false), tt.shared)
		must.Be(t, name+", another boot", kept.Stands("c", host(tt.now).Host, true), false)
	}
	damaged := HostLooks{Boot: "b", Short: &Shortage{}}
	must.Be(t, "damaged", damaged.Stands("b", Host{}, true), false)
}

// Admins read who has it. No byte that a user chose ends a text or passes for another part of it.
func TestShortageText(t *testing.T) {
	looks := HostLooks{}.After("b", host(same)).After("b", host(same))
	u := host(takes(40*gib, Shared))
	takes(10*gib, Users)(&u)
	takes(10*gib, System)(&u)
	u.Files = []OwnedFiles{
		Sum(1000, []Item{{Name: "vllm_b", Bytes: 15 * gib}, {Name: "x", Bytes: gib}, {Name: "vllm_a", Bytes: 14 * gib}}),
		Sum(1001, []Item{{Name: "\n; rm -rf /", Bytes: 2 * gib}}),
		Sum(1002, []Item{{Name: "little", Bytes: 1 << 20}}),
	}
	u.Mounts = []Mount{{"/tmp", 3 * gib}, {"/a b", 2 * gib}, {"/run", 1 << 20}}
	u.Earlier = []string{"7", "12_3"}
	u.Processes = []HostProcess{{4711, 1000, 9 * gib, "pyth\non", ""}, {812, 0, 8 * gib, "mmfsd", ""}, {5, 1001, 70 << 20, "sh", ""}, {6, 1001, 66 << 20, "third", ""}}
	s := looks.After("b", u).Short
	must.Be(t, "for admins", s.Text, "60.0 GiB less host memory is available than earlier in this boot (190.0 GiB of 256.0 GiB), without a job: "+
		"shared memory 40.0 GiB (uid 1000 has 30.0 GiB in 3 files in /dev/shm, most in vllm_*; uid 1001 has 2.0 GiB in 1 file in /dev/shm, most in one; "+
		"reported there at the end of job 7 and 12_3; 3.0 GiB in /tmp; 4.0 GiB in no file there: mapped, System V, or deleted and open), "+
		"processes of users 10.0 GiB (9.0 GiB in PID 4711 pyth* of uid 1000; 70 MiB in PID 5 sh of uid 1001), "+
		"system services 10.0 GiB (8.0 GiB in PID 812 mmfsd of uid 0)")
	must.Be(t, "for users", s.Brief, "60.0 GiB of the node's 256.0 GiB of memory were taken while no job was on it: "+
		"shared memory 40.0 GiB, processes of users 10.0 GiB, system services 10.0 GiB")
}

// The numbers of what a job left come back from the command that its end recorded.
func TestInodes(t *testing.T) {
	left := Remains{Files: []Item{{Name: "a", ID: 41}, {Name: "b", ID: 1<<64 - 1}}, Segments: []Item{{ID: 5}}}
	for text, want := range map[string][]uint64{
		left.Text(nil, "") + left.Command(1000, "/dev/shm", time.Unix(1, 0)):           {41, 1<<64 - 1},
		left.Text(nil, "") + left.Command(1000, "/tmp/world/dev/shm", time.Unix(1, 0)): {41, 1<<64 - 1},
		left.Text(nil, "") + left.Command(1000, "/dev/mqueue", time.Unix(1, 0)):        nil,
		Remains{Segments: []Item{{ID: 5}}}.Command(1000, "/dev/shm", time.Unix(1, 0)):  nil,
		"this job left 1 file -inum 9":                                                 nil, "": nil,
	} {
		if got := Inodes(text); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func FuzzHost(f *testing.F) {
	f.Add(recorded, arcstats, "Name:\ta\nUid:\t1000\n")
	f.Fuzz(func(t *testing.T, meminfo, arc, status string) {
		h, err := ParseHost(meminfo, arc)
		u := HostUse{Host: h, Processes: []HostProcess{ParseProcess(1, status, "")}}
		if err != nil && h != (Host{}) {
			t.Errorf("%+v", h)
		}
		looks := HostLooks{Best: []Host{{Total: h.Total, Available: 1 << 62}, {Total: h.Total, Available: 1 << 62}}}.After("", u)
		if looks.Short != nil && strings.ContainsAny(looks.Short.Text, "\n\x1b") {
			t.Errorf("%q", looks.Short.Text)
		}
	})
}
