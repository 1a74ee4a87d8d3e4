package slurmconf

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

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

// All of a tree of files is read in the order in which Slurm reads it.
func TestIncludes(t *testing.T) {
	const root = "ClusterName=Lab\nProlog=/a\nInclude lab/hooks.conf\n" +
		"INCLUDE\t\"nodes.conf\" # all\nInclude bad\nProlog=/z\n"
	c := Parse("/etc/slurm/slurm.conf", []byte(root), opened(map[string]string{
		"/etc/slurm/lab/hooks.conf": "Prolog=/b\nInclude more.conf\nProlog=/d\n",
		"/etc/slurm/lab/more.conf":  "Prolog=/c\nInclude gone.conf\n",
		"/etc/slurm/nodes.conf":     "NodeName=n1 Gres=gpu:2\n",
		"/etc/slurm/bad":            "!",
	}))
	var prologs []string
	for _, v := range c.All("PROLOG") {
		prologs = append(prologs, v.Text)
	}
	if got, want := strings.Join(prologs, " "), "/a /b /c /d /z"; got != want {
		t.Errorf("prologs %s, want %s", got, want)
	}
	if last, ok := c.Get("prolog"); !ok || last.Text != "/z" || last.Line.Where() != "slurm.conf line 6" {
		t.Errorf("last prolog %+v", last)
	}
	if n := c.Node("n1"); !n.Found || n.Gres != "gpu:2" {
		t.Errorf("node %+v", n)
	}
	want := []string{
		`more.conf line 2 includes "gone.conf", which is not read: no such file`,
		`slurm.conf line 5 includes "bad", which is not read: permission denied`,
	}
	if got := doubts(c); !reflect.DeepEqual(got, want) || c.Doubt() != want[0] {
		t.Errorf("doubts %q, want %q", got, want)
	}
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

// A key of a node, a partition or a host is not the cluster's; what stands behind a backslash is meant as it is.
func TestKeys(t *testing.T) {
	c := Parse("/s/slurm.conf", []byte("prologflags = Alloc , X11\nNodeName=n1 Prolog=/no\n"+
		"PartitionName=p PrologFlags=Serial\nKillWait=5 MessageTimeout=20\nEpilog=\"/a b\"\n"+
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
		version, _ := slurm.ParseVersion("slurm " + about)
		return tell(MakePlan(Site{Version: version, Pyxis: is("pyxis"), Sure: !is("unsure"),
			Local: is("local"), Conf: Parse("/s/slurm.conf", []byte(conf), func(name string) []File {
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
		if what := strings.Trim(s.Shipped+"+"+s.Own, "+"); s.Name != "bookend/"+what {
			text += fmt.Sprintf("script %s: %s\n", s.Name, what)
		}
	}
	for _, s := range p.Steps {
		text += "step: " + s + "\n"
	}
	return text + fmt.Sprintf("include %s: %v; sent: %v\n", p.Include, p.Has, p.Sent)
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
