package slurmconf

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/test/golden"
	"bookend/test/must"
)

// opened gives included files by name: empty texts are none, "!" those that could not be read.
func opened(files map[string]string) func(string) []File {
	return func(name string) []File {
		switch text := files[name]; text {
		case "":
			return nil
		case "!":
			return []File{{Path: name, Unread: "permission denied"}}
		default:
			return []File{{Path: name, Text: []byte(text)}}
		}
	}
}

func doubts(c Conf) (all []string) {
	for _, l := range c.Lines {
		if why := l.Unreadable(); why != "" {
			all = append(all, why)
		}
	}
	return all
}

// Expedited requeue is known to be off only if all of the configuration was read.
func TestExpedites(t *testing.T) {
	for text, want := range map[string]slurm.Answer{
		"": slurm.No, "SlurmctldParameters=enable_configless\n": slurm.No,
		"SlurmctldParameters=enable_expedited_requeue\n":                                   slurm.Yes,
		"slurmctldparameters = \"enable_configless, Enable_Expedited_Requeue\" # for AI\n": slurm.Yes,
		"#SlurmctldParameters=enable_expedited_requeue\n":                                  slurm.No,
		"SchedulerParameters=enable_expedited_requeue\n":                                   slurm.No,
		"SlurmctldParameters=enable_expedited_requeue\nSlurmctldParameters=a\n":            slurm.No,
		"Include more.conf\n": slurm.Yes,
		"Include bad\n":       slurm.Unknown, "Include bad\nSlurmctldParameters=enable_expedited_requeue\n": slurm.Yes,
		"SlurmctldParameters=a enable_expedited_requeue\n": slurm.Unknown,
	} {
		c := Parse("/etc/slurm/slurm.conf", []byte(text), opened(map[string]string{
			"/etc/slurm/more.conf": "SlurmctldParameters=enable_expedited_requeue", "/etc/slurm/bad": "!"}))
		must.Be(t, text, c.Expedites(), want)
	}
}

// All of a tree of files is read in the order in which Slurm reads it.
func TestIncludes(t *testing.T) {
	const root = "ClusterName=Lab\nProlog=/a\nInclude lab/hooks.conf\n" +
		"INCLUDE\t\"nodes.conf\" # all\nInclude bad\nProlog=/z\n"
	c := Parse("/etc/slurm/slurm.conf", []byte(root), opened(map[string]string{
		"/etc/slurm/lab/hooks.conf": "Prolog=/b\nInclude more.conf\nProlog=/d\n",
		"/etc/slurm/lab/more.conf":  "Prolog=/c\nInclude gone.conf\nInclude %c.conf\n",
		"/etc/slurm/lab.conf":       "Prolog=/c2\n",
		"/etc/slurm/lab/lab.conf":   "Prolog=/no\n",
		"/etc/slurm/nodes.conf":     "NodeName=n1 Gres=gpu:2\n",
		"/etc/slurm/bad":            "!",
	}))
	var prologs []string
	for _, v := range c.All("PROLOG") {
		prologs = append(prologs, v.Text)
	}
	must.Be(t, "prologs", strings.Join(prologs, " "), "/a /b /c /c2 /d /z")
	if last, ok := c.Get("prolog"); !ok || last.Text != "/z" || last.Line.Where() != "slurm.conf line 6" {
		t.Errorf("last prolog %+v", last)
	}
	must.Be(t, "gres", c.Node("n1").Gres, "gpu:2")
	want := []string{
		`more.conf line 2 includes "gone.conf", which is not read: no such file`,
		`slurm.conf line 5 includes "bad", which is not read: permission denied`,
	}
	must.Be(t, "doubts", doubts(c), want)
	must.Be(t, "doubt", c.Doubt(), want[0])
}

func TestIncludesThatLeadNowhere(t *testing.T) {
	files := map[string]string{"/s/self": "A=1\nInclude self\n"}
	for root, want := range map[string]string{
		"Include %c.conf\n": "no such file", "Include self\n": "more than 64 files",
	} {
		c := Parse("/s/slurm.conf", []byte(root), opened(files))
		if got := doubts(c); len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("%q: %q, want %q", root, got, want)
		}
	}
}

// What stands behind a backslash is meant as it is.
func TestKeys(t *testing.T) {
	c := Parse("/s/slurm.conf", []byte("prologflags = Alloc , X11\nKillWait=5 MessageTimeout=20\nEpilog=\"/a b\"\n"+
		"A=/x\\#y # z\nB=/a\\z\nC=/a\\\\w\nD=\"/b \\#c\\\\d\"\n"), nil)
	for key, want := range map[string]string{"PrologFlags": "Alloc", "KillWait": "5", "messagetimeout": "20",
		"Epilog": "/a b", "Prolog": "", "A": "/x#y", "B": "/az", "C": `/a\w`, "D": `/b #c\d`} {
		if v, ok := c.Get(key); ok != (want != "") || v.Text != want {
			t.Errorf("%s: %+v, %v, want %q", key, v, ok, want)
		}
	}
}

// Where the files are that slurm.gres_conf and SLURM_CONF lead to; "-" is empty.
func TestFind(t *testing.T) {
	golden.Lines(t, *update, "testdata/find.txt", func(given string) string {
		gres, env, _ := strings.Cut(given, " ")
		return fmt.Sprint(Find(strings.TrimPrefix(gres, "-"), strings.TrimPrefix(env, "-")))
	})
}

// Whether a node's GPUs are given out in parts, by its slurm.conf.
func TestSharedGPUs(t *testing.T) {
	golden.Archive(t, *update, "testdata/shared.txtar", func(given string) string {
		node, conf, _ := strings.Cut(given, "\n")
		shared := SharedGPUs(Parse("slurm.conf", []byte(conf), nil), node)
		return fmt.Sprintf("%s: %s\n", shared.Shared, shared.Why)
	})
}

var update = flag.Bool("update", false, "rewrite the files of testdata that say what follows")

// What a site has, and what it needs: each line, each script that is not a shipped one under its own name, and what is
// left to do.
func TestMakePlan(t *testing.T) {
	golden.Archive(t, *update, "testdata/setup.txtar", func(site string) string {
		about, conf, _ := strings.Cut(site, "\n")
		is := func(word string) bool { return slices.Contains(strings.Fields(about), word) }
		said := func(key string) string {
			_, rest, _ := strings.Cut(about, key)
			value, _, _ := strings.Cut(rest, " ")
			return value
		}
		version, _ := slurm.ParseVersion("slurm " + about)
		return tell(MakePlan(Site{Version: version, Pyxis: is("pyxis"), Sure: !is("unsure"),
			Configless: said("configless="), Own: Earlier(func(name string) []byte {
				if name == Written && !is("orphaned") {
					return []byte(about)
				}
				return []byte("own='" + said(name+"=") + "'\n")
			}), Conf: Parse(cmp.Or(said("at="), "/s")+"/slurm.conf", []byte(conf), func(name string) []File {
				plain, err := MakePlan(Site{Version: version, Conf: Conf{Path: "/s/slurm.conf"}, Sure: true})
				must.Do(t, err)
				return []File{{Path: name, Text: []byte(plain.Text)}}
			})}))
	})
}

func tell(p Plan, err error) string {
	if err != nil {
		return err.Error() + "\n"
	}
	text := p.Text
	for _, s := range p.Scripts {
		if what := strings.Trim(s.Shipped+"+"+s.Own, "+"); s.Name != "bookend/"+what && s.Name != Written {
			text += fmt.Sprintf("script %s: %s\n", s.Name, what)
		}
	}
	for _, s := range p.Steps {
		text += "step: " + s + "\n"
	}
	return text + fmt.Sprintf("include %s; sent: %v\n", p.Include, p.Sent)
}

// A script runs the site's own by exactly that path.
func TestRender(t *testing.T) {
	shipped := func(name string) (string, error) {
		text, err := os.ReadFile("../../deploy/slurm/hooks/" + name)
		return string(text), err
	}
	for _, s := range []Script{{Own: "/site/a b"}, {Shipped: "task-prolog-beside-own", Own: "/site/a b"}} {
		text, err := s.Render(shipped)
		must.Not(t, err != nil || !strings.Contains(text, "'/site/a b'") || !strings.HasPrefix(text, "#!/bin/sh\n"),
			"%+v: %q, %v", s, text, err)
	}
	for _, s := range []Script{{Own: "/x'; reboot"}, {Own: "/x\nreboot"}, {Shipped: "prolog", Own: "/x"}, {Shipped: "none"}} {
		if text, err := s.Render(shipped); err == nil {
			t.Errorf("%+v: %q", s, text)
		}
	}
}

// second is a moment of the wall clock, in the seconds of these tables.
func second(n int) time.Time { return time.Unix(int64(1000+n), 0) }

func keyOf(changed int) Key {
	at := second(changed).UnixNano()
	return Key{
		Boot: "b", Node: "n1", Conf: "/etc/slurm/slurm.conf", Daemon: Daemon{PID: 7, Ticks: 70},
		Slurmd: FileID{Path: "/usr/sbin/slurmd", Inode: 1, Changed: second(-900).UnixNano()},
		Files: []FileID{
			{Path: "/etc/slurm/slurm.conf", Inode: 2, Changed: at},
			{Path: "/etc/slurm/gres.conf"},
		},
	}
}

func list(files ...string) List {
	l := List{Source: record.BySlurmd}
	for _, f := range files {
		l.GPUs = append(l.GPUs, GPU{f})
	}
	return l
}

const unknown = -1

// asking is an answer about files that changed at one moment, for a slurmd that began at another.
func asking(changed int, l List, began int) Asked {
	a := Asked{Key: keyOf(changed), List: l, Began: second(began)}
	if began == unknown {
		a.Key.Daemon = Daemon{}
	}
	return a
}

// own is an answer from slurmd's own copies of the files.
func own(a Asked) Asked {
	a.Own = true
	return a
}

func restarted(a Asked) Asked {
	a.Key.Daemon = Daemon{PID: 8, Ticks: 80}
	return a
}

// A difference from what was in force counts only for a slurmd that started after the change.
func TestSettle(t *testing.T) {
	one, other := list("nvidia0", "nvidia1"), list("nvidia1", "nvidia0")
	kept := Kept{Key: keyOf(0), List: one, InForce: &one}
	pending := asking(5, other, 1).Settle(&kept)
	earlier, elsewhere := kept, kept
	earlier.Key.Daemon = Daemon{PID: 6, Ticks: 60}
	elsewhere.Key.Boot = "a"
	upgraded := asking(0, one, 1)
	upgraded.Key.Slurmd.Changed = second(2).UnixNano()
	silent := asking(8, Unclear("no answer"), 1).Settle(&pending)
	// Another slurmd than the one that began 800 ms after boot had its files seen before that, or while this one ran.
	before, during := earlier, earlier
	before.At, during.At = 700*time.Millisecond, 900*time.Millisecond
	const restart = "changed since slurmd started: restart slurmd"
	for name, tt := range map[string]struct {
		kept  *Kept
		asked Asked
		why   string // of an answer that does not hold
	}{
		"the first answer":                                      {nil, asking(0, one, 1), ""},
		"changed since, nothing known before":                   {nil, asking(2, one, 1), restart},
		"changed, the same answer":                              {&kept, asking(5, one, 1), ""},
		"changed, another answer":                               {&kept, asking(5, other, 1), restart},
		"changed, slurmd restarted":                             {&kept, restarted(asking(5, other, 6)), ""},
		"changed, which slurmd is not known":                    {&kept, asking(5, other, unknown), "slurmd is running is not known"},
		"changed, slurmd's own copies":                          {&kept, own(asking(5, other, 1)), ""},
		"older files, another answer":                           {&kept, asking(0, other, 1), restart},
		"not known, then the same":                              {&silent, asking(0, one, 1), restart},
		"changed twice, and restarted in between":               {&earlier, asking(5, one, 1), restart},
		"seen before it started, its clock set back since":      {&before, restarted(asking(0, one, -5)), ""},
		"seen while it ran, not the first time":                 {&during, restarted(asking(0, one, -5)), restart},
		"others seen while it ran, its clock set forward since": {&during, restarted(asking(5, one, 9)), restart},
		"others seen before it started":                         {&before, restarted(asking(5, one, 9)), ""},
		"another boot":                                          {&elsewhere, asking(2, one, 1), restart},
		"slurmd upgraded, still the old one":                    {nil, upgraded, `"/usr/sbin/slurmd" has changed`},
		"not known":                                             {&kept, asking(0, Unclear("no answer"), 1), "no answer"},
	} {
		got, want := tt.asked.Settle(tt.kept), tt.asked.List
		switch {
		case tt.why != "" && (got.List.Source.Settled() || !strings.Contains(got.List.Why, tt.why)):
			t.Errorf("%s: %+v, want %q", name, got.List, tt.why)
		case tt.why == "" && (got.List.Source != want.Source || !got.List.equal(want)):
			t.Errorf("%s: %+v, want %+v", name, got.List, want)
		case tt.why == "" && (got.InForce == nil || !got.InForce.equal(want)):
			t.Errorf("%s: in force is %+v, want %+v", name, got.InForce, want)
		case name == "not known" && !got.InForce.equal(one):
			t.Errorf("%s: nothing is in force: %+v", name, got)
		}
	}
}

func TestSameAndDue(t *testing.T) {
	made, restarted, booted := keyOf(0), keyOf(0), keyOf(0)
	made.Files[1].Inode++
	restarted.Daemon.Ticks++
	booted.Boot = "c"
	must.Be(t, "the same", keyOf(0).ValidFor(keyOf(0)), true)
	for _, k := range []Key{made, restarted, booted, {}} {
		must.Not(t, k.ValidFor(keyOf(0)) || (Key{}).ValidFor(k), "%+v is the same", k)
	}
	for name, tt := range map[string]struct {
		tried, now  time.Duration
		check, want bool
	}{
		"never failed":        {now: 2 * time.Minute, check: true},
		"failed a while ago":  {tried: time.Minute, now: time.Minute + retry, want: true},
		"failed, for a check": {tried: time.Minute, now: time.Minute + 1, check: true, want: true},
		"of another boot":     {tried: time.Hour, now: time.Minute, want: true},
	} {
		must.Be(t, name, (Kept{Tried: tt.tried}).Due(tt.now, tt.check), tt.want)
	}
}

// What slurmd of three versions printed for several configurations, and what testdata/listed.txt says of each text: of
// 22.05 the parts do not agree with the count in slurm.conf; 24.11 was made without the library that it was built with.
func TestParseListed(t *testing.T) {
	said := ""
	for _, file := range must.Have(filepath.Glob("testdata/slurmd/*"))(t) {
		list, err := ParseListed(must.Read(t, file))
		said += fmt.Sprintf("%s: %v %q %v\n", filepath.Base(file), list.GPUs, list.Types, err)
	}
	golden.File(t, *update, "testdata/listed.txt", said)
}

// One record or message after the other, with " | " between lines. A slurmd that could not ask the driver lists the
// order of gres.conf, which is not the running daemon's; one that was built without the library counts as the daemon
// does. Behind "count" a node's Gres: how many GPUs.
func TestParseListedOneByOne(t *testing.T) {
	golden.Lines(t, *update, "testdata/records.txt", func(given string) string {
		if list, is := strings.CutPrefix(given, "count "); is {
			return fmt.Sprint(Count(list))
		}
		list, err := ParseListed(strings.ReplaceAll(given, " | ", "\n"))
		if err != nil && list.GPUs == nil {
			return "error"
		}
		return fmt.Sprint(list.GPUs)
	})
}

// spoil makes a card of another kind: AMD's, excluded, excluded without a minor, its id not cached, unread.
var spoil = map[byte]func(*gpu.Physical){
	'a': func(c *gpu.Physical) { c.Device.Vendor = "amd" },
	'x': func(c *gpu.Physical) { c.Excluded = true },
	'X': func(c *gpu.Physical) { c.Excluded, c.Device.Minor = true, nil },
	'u': func(c *gpu.Physical) { c.Device.ID = "" },
	'r': func(c *gpu.Physical) {
		*c = gpu.Physical{Device: gpu.Device{BusID: c.Device.BusID}, Unknown: "input/output error"}
	},
}

// cardsOf reads cards in PCI order, each by its minor and what spoils it: "0 1x 2"; "-" is a place that is empty.
func cardsOf(t *testing.T, text string) (all []gpu.Physical) {
	for n, word := range strings.Fields(text) {
		if word == "-" {
			continue
		}
		minor := must.Have(strconv.Atoi(strings.TrimRight(word, "axXur")))(t)
		c := gpu.Physical{Device: gpu.Device{ID: gpu.ID(fmt.Sprintf("GPU-00000000-0000-0000-0000-%012d", n)),
			BusID: gpu.BusID(fmt.Sprintf("0000:%02x:00.0", n)), Minor: &minor, Vendor: "nvidia"}}
		if edit := spoil[word[len(word)-1]]; edit != nil {
			edit(&c)
		}
		all = append(all, c)
	}
	return all
}

// The devices of a job, and again those of its start among the same cards.
func TestDevices(t *testing.T) {
	golden.Archive(t, *update, "testdata/devices.txtar", func(given string) string {
		var g struct {
			Indexes        []int
			Visible        []string
			Problem, Cards string
			Map            map[int]string
			List           List
		}
		must.Do(t, json.Unmarshal([]byte(given), &g))
		cards := cardsOf(t, g.Cards)
		r := Devices(slurm.Job{GPUIndexes: g.Indexes, Visible: g.Visible, GPUProblem: g.Problem}, cards,
			g.Map, g.List)
		said := "source: " + string(r.Source) + "\n"
		for _, a := range r.Devices {
			said += fmt.Sprintf("%d: %s %s\n", a.Index, a.Device.BusID, a.Device.ID)
		}
		if len(r.Missing) > 0 {
			said += fmt.Sprintf("missing: %v\n", r.Missing)
		}
		if again := again(r.Devices, r.Source, cards); fmt.Sprint(again.Devices) != fmt.Sprint(r.Devices) {
			t.Errorf("%s: again %+v, want %+v", given, again, r)
		}
		return said + r.Unknown
	})
}

// What is read is in the text, comments change nothing, and no chain of files goes on for ever.
func FuzzParse(f *testing.F) {
	f.Add("ClusterName=Lab\nInclude lab.conf\nProlog=/a\nProlog=/b\n", "Include slurm.conf\nNodeName=n1 Gres=gpu:2\n",
		"n1")
	f.Add("include\tx*.conf\nNodeName=DEFAULT Gres=gpu \\\n CPUs=2\n", "include /etc/slurm.conf", "n[1-2]")
	f.Add("Include \"a b\"\nA=\"x y\" B+=3#c", "=\x00", "")
	f.Fuzz(func(t *testing.T, text, other, node string) {
		const name = "/etc/slurm.conf"
		open := func(name string) []File {
			must.Not(t, !strings.HasPrefix(name, "/"), "wants %q", name)
			return []File{{Path: name, Text: []byte(other)}, {Path: name + "2", Unread: "refused"}}
		}
		whole := Parse(name, []byte(text), open)
		for _, l := range whole.Lines {
			from := text
			if l.File != name {
				from = other
			}
			must.Not(t, l.Number < 1 || l.Number > strings.Count(from, "\n")+1, "line %+v", l)
			for _, p := range l.Pairs {
				if v, ok := l.Get(strings.ToUpper(p[0])); p[0] == "" || !ok || v == "" && p[1] != "" {
					t.Fatalf("%+v has no %q", l, p[0])
				}
			}
		}
		whole.Node(node)
		if before := Parse(name, []byte("#x\n\n"+text), open); len(before.Lines) != len(whole.Lines) {
			t.Fatalf("a comment makes %d lines of %d", len(before.Lines), len(whole.Lines))
		}
	})
}

// What is listed has files, as many GPUs as its counts say, and the same meaning behind every prefix.
func FuzzParseListed(f *testing.F) {
	texts, err := filepath.Glob("testdata/slurmd/*")
	if err != nil || len(texts) == 0 {
		f.Fatal(texts, err)
	}
	for _, name := range texts {
		f.Add(must.Read(f, name))
	}
	f.Add("Gres Name=gpu Count=2 File=/dev/nvidia[0-1\nGres Name=gpu Type= Count=1 File=,")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ParseListed(text)
		if err != nil {
			must.Not(t, got.GPUs != nil, "%v and %v", got, err)
			return
		}
		must.Not(t, len(got.Types) != len(got.GPUs) || slices.ContainsFunc(got.GPUs, func(g GPU) bool { return len(g) == 0 }), "%v", got)
		if again, err := ParseListed("Gres Name=shard Count=4 x\n" + text); err != nil ||
			!reflect.DeepEqual(again, got) {
			t.Errorf("behind a line of shards: %v, %v; want %v", again, err, got)
		}
	})
}

// A job whose GPUs are all of one type may have others of other types: Slurm tells a hook those of one type alone. A
// job that was told of several types has no others, nor has any on a node of one type.
func TestPerhaps(t *testing.T) {
	at := func(indexes ...int) (all []record.Assigned) {
		for _, i := range indexes {
			all = append(all, record.Assigned{Index: i, Device: gpu.Device{ID: gpu.ID(fmt.Sprint("GPU-", i))}})
		}
		return all
	}
	for name, tt := range map[string]struct {
		types []string
		own   []record.Assigned
		want  []gpu.ID
	}{
		"one type":              {[]string{"a", "a", "a"}, at(0), nil},
		"without types":         {[]string{"", "", ""}, at(0, 1), nil},
		"an older state":        {nil, at(0), nil},
		"of the first type":     {[]string{"b", "b", "a"}, at(1), []gpu.ID{"GPU-2"}},
		"of the last type":      {[]string{"b", "b", "a"}, at(2), []gpu.ID{"GPU-0", "GPU-1"}},
		"of both":               {[]string{"b", "b", "a"}, at(0, 2), nil},
		"of two of three types": {[]string{"b", "a", "c"}, at(0, 1), nil},
		"without a GPU":         {[]string{"b", "b", "a"}, nil, nil},
		"a number not certain":  {[]string{"b", "b", "a"}, at(-1), []gpu.ID{"GPU-0", "GPU-1", "GPU-2"}},
	} {
		must.Be(t, name, List{Types: tt.types}.Perhaps(tt.own, at(0, 1, 2)), tt.want)
	}
}

// What an older program stored has no types, so slurmd is asked again.
func TestHolds(t *testing.T) {
	for want, types := range map[bool][]string{true: {""}, false: nil} {
		k := Kept{Key: Key{Boot: "b"}, List: List{GPUs: []GPU{{"/dev/nvidia0"}}, Types: types}}
		must.Be(t, fmt.Sprintf("types %q", types), k.Holds(k.Key), want)
	}
}

// Two numbers that lead to one GPU are not certain, also where only its bus id is known, as before the first reading.
func TestDevicesAreDistinct(t *testing.T) {
	minor := 0
	cards := []gpu.Physical{{Device: gpu.Device{BusID: "0000:1b:00.0", Minor: &minor}}}
	one := GPU{"/dev/nvidia0"}
	list := List{Source: record.BySlurmd, GPUs: []GPU{one, one}}
	for name, r := range map[string]Result{
		"at a start": Devices(slurm.Job{GPUIndexes: []int{0, 1}}, cards, nil, list),
		"at an end": again([]record.Assigned{{Index: 0, Device: cards[0].Device}, {Index: 1, Device: cards[0].Device}}, record.BySlurmd,
			cards),
	} {
		must.Not(t, r.Source != record.Ambiguous || !strings.Contains(r.Unknown, "0000:1b:00.0") || len(r.Devices) > 0, "%s: %+v", name, r)
	}
}
