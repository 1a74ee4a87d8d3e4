package slurmconf

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// What is read is in the text, comments change nothing, and no chain of files goes on for ever.
func FuzzParse(f *testing.F) {
	f.Add("ClusterName=Lab\nInclude lab.conf\nProlog=/a\nProlog=/b\n", "Include slurm.conf\nNodeName=n1 Gres=gpu:2\n",
		"n1")
	f.Add("include\tx*.conf\nNodeName=DEFAULT Gres=gpu \\\n CPUs=2\n", "include /etc/slurm.conf", "n[1-2]")
	f.Add("Include \"a b\"\nA=\"x y\" B+=3#c", "=\x00", "")
	f.Fuzz(func(t *testing.T, text, other, node string) {
		const name = "/etc/slurm.conf"
		open := func(name string) []File {
			if !strings.HasPrefix(name, "/") {
				t.Fatalf("wants %q", name)
			}
			return []File{{Path: name, Text: []byte(other)}, {Path: name + "2", Unread: "refused"}}
		}
		whole := Parse(name, []byte(text), open)
		for _, l := range whole.Lines {
			from := text
			if l.File != name {
				from = other
			}
			if l.Number < 1 || l.Number > strings.Count(from, "\n")+1 {
				t.Fatalf("line %+v", l)
			}
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
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Add("Gres Name=gpu Count=2 File=/dev/nvidia[0-1\nGres Name=gpu Type= Count=1 File=,")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ParseListed(text)
		if err != nil {
			if got != nil {
				t.Errorf("%v and %v", got, err)
			}
			return
		}
		if slices.ContainsFunc(got, func(g GPU) bool { return len(g) == 0 }) {
			t.Errorf("%v", got)
		}
		if again, err := ParseListed("Gres Name=shard Count=4 x\n" + text); err != nil ||
			!reflect.DeepEqual(again, got) {
			t.Errorf("behind a line of shards: %v, %v; want %v", again, err, got)
		}
	})
}
