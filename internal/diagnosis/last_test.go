package diagnosis

import (
	"strings"
	"testing"

	"bookend/internal/oom"
)

// by is a message of a process, in a file.
func by(pid, file int, m oom.Message) oom.Message {
	m.PID, m.File = pid, file
	return m
}

func ofRank(n int, m oom.Message) oom.Message {
	m.Rank = &n
	return m
}

// What the program survived is no cause, nor is what others ran out of as the first one went down.
func TestLastWord(t *testing.T) {
	python, segment := says(oom.Host, oom.Other), says(oom.Host, oom.Other)
	segment.Line = "ImportError: /tmp/x/_ext.so: " + oom.Segment
	for _, tt := range []struct {
		name     string
		said     []oom.Message
		yes      []Name
		headline string
	}{
		{"the last of one process", []oom.Message{pooled, itself}, []Name{Own}, "Why out of memory: your job itself used up the GPU"},
		{"no figures before", []oom.Message{jax(500), pooled}, []Name{Pool}, "Why out of memory: your framework's pool was in pieces"},
		{"no figures at the end", []oom.Message{itself, jax(20)}, nil, "Why out of memory: nothing seen on n1 explains it: most likely your job itself"},
		{"an echo", []oom.Message{pooled, itself, says(oom.Device, oom.CUDA)}, []Name{Own}, "Why out of memory: your job itself used up the GPU"},
		{"a card before host memory", []oom.Message{itself, python}, []Name{Own, Limits}, "Why out of memory: host memory ran out; your job itself used up the GPU"},
		{"what need not be memory", []oom.Message{itself, segment}, []Name{Own}, "Why out of memory: your job itself used up the GPU"},
		{"Slurm's line has no place", []oom.Message{itself, says(oom.Host, oom.Slurm)}, []Name{Own}, "Why out of memory: your job itself used up the GPU"},
		{"an error of a kernel after it", []oom.Message{itself, says(oom.Fault, oom.CUDA)}, []Name{Own}, "Why out of memory: your job itself used up the GPU"},
		{"of two files", []oom.Message{pooled, by(0, 1, itself)}, []Name{Pool, Own}, "Why out of memory: your framework's pool was in pieces; your job itself used up the GPU"},
		{"the first of three processes", []oom.Message{by(901, 0, itself), by(902, 0, pooled), by(903, 0, pooled)}, []Name{Own},
			"Why out of memory (process 901 on n1 GPU 0 first): your job itself used up the GPU"},
		{"what one of them survived", []oom.Message{by(902, 0, pooled), by(901, 0, itself), by(902, 0, pooled)}, []Name{Own},
			"Why out of memory (process 901 on n1 GPU 0 first): your job itself used up the GPU"},
		{"one that is not named", []oom.Message{by(901, 0, itself), pooled, by(903, 0, pooled)}, []Name{Pool}, "Why out of memory: your framework's pool was in pieces"},
		{"two in one file, one in another", []oom.Message{by(901, 0, itself), by(902, 0, itself), by(903, 1, itself)}, []Name{Own},
			"Why out of memory: your job itself used up the GPU"},
		{"the first of two ranks", []oom.Message{ofRank(0, pooled), ofRank(3, itself), ofRank(0, pooled)}, []Name{Own},
			"Why out of memory (rank 3 on n1 GPU 0 first): your job itself used up the GPU"},
		{"in the second file", []oom.Message{by(901, 1, itself), by(902, 1, pooled)}, []Name{Own},
			"Why out of memory (process 901 on n1 GPU 0 first): your job itself used up the GPU"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := well(1)
			in.Messages = tt.said
			d := Why(in)
			var yes []string
			for _, c := range d.Causes {
				if c.Answer == Yes {
					yes = append(yes, string(c.Name))
				}
			}
			var want []string
			for _, n := range tt.yes {
				want = append(want, string(n))
			}
			if strings.Join(yes, " ") != strings.Join(want, " ") || d.Headline != tt.headline {
				t.Errorf("%v, %q, want %v, %q", yes, d.Headline, want, tt.headline)
			}
			whole(t, d)
		})
	}
}

// Where the one that was first is not known to be, nothing is said of it.
func TestFirstOfSeveralNodes(t *testing.T) {
	in := well(2)
	in.Job.NodeList, in.Messages = "n[1-2]", []oom.Message{by(901, 0, itself), by(902, 0, itself)}
	if h := Why(in).Headline; !strings.HasPrefix(h, "Why out of memory (process 901 first): ") {
		t.Errorf("%q", h)
	}
	in.Seen = []Sighting{seen(500, 901, 20, true)}
	if h := Why(in).Headline; !strings.HasPrefix(h, "Why out of memory (process 901 on n1 GPU 0 first): ") {
		t.Errorf("%q", h)
	}
}

// Where a message was said again later nobody knows who said it first.
func TestFirstIsKnown(t *testing.T) {
	ranked := func(rank, count int) oom.Message {
		m := itself
		m.Rank, m.Count = &rank, count
		return m
	}
	for _, tt := range []struct {
		said  []oom.Message
		first bool
	}{
		{[]oom.Message{ranked(3, 1), ranked(0, 1)}, true},
		{[]oom.Message{ranked(0, 1), ranked(3, 2)}, false},
	} {
		if _, first := lastWord(tt.said); (first != nil) != tt.first {
			t.Errorf("%+v: first %v", tt.said, first)
		}
	}
}
