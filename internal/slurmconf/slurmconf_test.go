package slurmconf

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func text(path, s string) []File { return []File{{Path: path, Text: []byte(s)}} }

// All of a tree of files is read in the order in which Slurm reads it.
func TestIncludes(t *testing.T) {
	const root = "ClusterName=Lab\nProlog=/a\nInclude %c/hooks.conf\nINCLUDE\tnodes/*.conf # all\nProlog=/z\n"
	first := Parse("/etc/slurm/slurm.conf", []byte(root), nil)
	if want := []string{"/etc/slurm/lab/hooks.conf", "/etc/slurm/nodes/*.conf"}; !reflect.DeepEqual(first.Wanted, want) {
		t.Fatalf("wants %q", first.Wanted)
	}
	included := map[string][]File{
		"/etc/slurm/lab/hooks.conf": text("/etc/slurm/lab/hooks.conf", "Prolog=/b\nInclude more.conf\nProlog=/d\n"),
		"/etc/slurm/nodes/*.conf":   {{Path: "/etc/slurm/nodes/a.conf", Text: []byte("NodeName=n1 Gres=gpu:2\n")}, {Path: "/etc/slurm/nodes/b.conf", Unread: "permission denied"}},
	}
	second := Parse("/etc/slurm/slurm.conf", []byte(root), included)
	if want := []string{"/etc/slurm/lab/more.conf"}; !reflect.DeepEqual(second.Wanted, want) {
		t.Fatalf("wants %q", second.Wanted)
	}
	included["/etc/slurm/lab/more.conf"] = text("/etc/slurm/lab/more.conf", "Prolog=/c\nInclude hooks.conf\n")
	c := Parse("/etc/slurm/slurm.conf", []byte(root), included)
	var prologs []string
	for _, v := range c.All("PROLOG") {
		prologs = append(prologs, v.Text)
	}
	if got := strings.Join(prologs, " "); got != "/a /b /c /d /z" || len(c.Wanted) != 0 {
		t.Errorf("%s, wants %q", got, c.Wanted)
	}
	if last, ok := c.Get("prolog"); !ok || last.Text != "/z" || last.Line.Where() != "slurm.conf line 5" {
		t.Errorf("%+v", last)
	}
	if n := c.Node("n1"); !n.Found || n.Gres != "gpu:2" || n.Line.File != "/etc/slurm/nodes/a.conf" {
		t.Errorf("%+v", n)
	}
	var doubts []string
	for _, l := range c.Lines {
		if why := l.Unreadable(); why != "" {
			doubts = append(doubts, why)
		}
	}
	want := []string{`more.conf line 2 includes "hooks.conf", which is not read: it includes itself`, `slurm.conf line 4 includes "nodes/*.conf", which is not read: permission denied`}
	if !reflect.DeepEqual(doubts, want) || c.Doubt() != want[0] {
		t.Errorf("%q", doubts)
	}
}

func TestIncludesThatLeadNowhere(t *testing.T) {
	for root, why := range map[string]string{
		"Include a.conf\n":                 "no such file",
		"Include %c.conf\nClusterName=x\n": "%c stands before ClusterName",
	} {
		c := Parse("/s/slurm.conf", []byte(root), map[string][]File{"/s/a.conf": {}})
		if !strings.Contains(c.Doubt(), why) || len(c.Wanted) != 0 {
			t.Errorf("%q: %q, wants %q", root, c.Doubt(), c.Wanted)
		}
	}
	included := map[string][]File{}
	for i := range 2 * MaxDepth {
		included[fmt.Sprintf("/s/%d", i)] = text(fmt.Sprintf("/s/%d", i), fmt.Sprintf("A%d=1\nInclude %d\n", i, i+1))
	}
	c := Parse("/s/slurm.conf", []byte("Include 0\n"), included)
	if !strings.Contains(c.Doubt(), "files deep") || len(c.Lines) != MaxDepth+1 {
		t.Errorf("%q after %d lines", c.Doubt(), len(c.Lines))
	}
}

// A key of a node, a partition or a host is not the cluster's.
func TestKeys(t *testing.T) {
	c := Parse("/s/slurm.conf", []byte("prologflags = Alloc , X11\nNodeName=n1 Prolog=/no\nPartitionName=p PrologFlags=Serial\nKillWait=5 MessageTimeout=20\nEpilog=\"/a b\"\n"), nil)
	for key, want := range map[string]string{"PrologFlags": "Alloc", "KillWait": "5", "messagetimeout": "20", "Epilog": "/a b"} {
		if v, ok := c.Get(key); !ok || v.Text != want {
			t.Errorf("%s: %+v, %v", key, v, ok)
		}
	}
	if v, ok := c.Get("Prolog"); ok {
		t.Errorf("%+v", v)
	}
}

// What stands behind a backslash is meant as it is, a backslash too.
func TestEscapes(t *testing.T) {
	c := Parse("/s/slurm.conf", []byte("A=/x\\#y # z\nB=/a\\z\nC=/a\\\\w\nD=\"/b \\#c\\\\d\"\n"), nil)
	for key, want := range map[string]string{"A": "/x#y", "B": "/az", "C": `/a\w`, "D": `/b #c\d`} {
		if v, ok := c.Get(key); !ok || v.Text != want {
			t.Errorf("%s: %q, want %q", key, v.Text, want)
		}
	}
}

func TestWords(t *testing.T) {
	if got := Words("gpu:h100:4(S:0-1), shard:16,,mps"); !reflect.DeepEqual(got, []string{"gpu", "shard", "mps"}) {
		t.Errorf("%q", got)
	}
	if !HasWord("Alloc,contain", "Contain") || HasWord("DeferBatch", "Batch") || HasWord("", "") {
		t.Error("a word is found by its letters, whatever their case, and whole")
	}
}

func TestNodeOn(t *testing.T) {
	c := Parse("/s/slurm.conf", []byte("NodeName=n1 NodeHostname=a\nNodeName=n2 NodeHostname=b\nNodeName=n3 NodeHostname=b\nNodeName=n[4-5] NodeHostname=c\nNodeName=d\n"), nil)
	for host, want := range map[string]string{"a": "n1", "b": "", "c": "", "d": "", "e": ""} {
		if got := c.NodeOn(host); got != want {
			t.Errorf("%s: %q", host, got)
		}
	}
}
