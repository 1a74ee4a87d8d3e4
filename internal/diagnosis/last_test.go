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

// What a process survived is no cause.
func TestLastWord(t *testing.T) {
	python, segment := says(oom.Host, oom.Other), says(oom.Host, oom.Other)
	segment.Line = "ImportError: /tmp/x/_ext.so: " + oom.Segment
	for _, tt := range []struct {
		name     string
		said     []oom.Message
		yes      []Name
		headline string
	}{
		{"the last of one process", []oom.Message{pooled, itself}, []Name{Own}, "Why out of memory: your job needed more than the GPU has"},
		{"no figures before", []oom.Message{jax(500), pooled}, []Name{Pool}, "Why out of memory: fragmentation inside PyTorch"},
		{"no figures at the end", []oom.Message{itself, jax(20)}, nil, "Why out of memory: nothing seen on n1 explains it: most likely your job itself"},
		{"an echo", []oom.Message{pooled, itself, says(oom.Device, oom.CUDA)}, []Name{Own}, "Why out of memory: your job needed more than the GPU has"},
		{"a GPU before host memory", []oom.Message{itself, python}, []Name{Own}, "Why out of memory: your job needed more than the GPU has"},
		{"what need not be memory", []oom.Message{itself, segment}, []Name{Own}, "Why out of memory: your job needed more than the GPU has"},
		{"Slurm's line has no place", []oom.Message{itself, says(oom.Host, oom.Slurm)}, []Name{Own}, "Why out of memory: your job needed more than the GPU has"},
		{"an error of a kernel after it", []oom.Message{itself, says(oom.Fault, oom.CUDA)}, []Name{Own}, "Why out of memory: your job needed more than the GPU has"},
		{"of two files", []oom.Message{pooled, by(0, 1, itself)}, []Name{Pool, Own}, "Why out of memory: fragmentation inside PyTorch; your job needed more than the GPU has"},
		{"what one of two processes survived", []oom.Message{by(902, 0, pooled), by(901, 0, itself), by(902, 0, itself)}, []Name{Own},
			"Why out of memory: your job needed more than the GPU has"},
		{"of two ranks", []oom.Message{ofRank(0, itself), ofRank(3, pooled), ofRank(0, pooled)}, []Name{Pool},
			"Why out of memory: fragmentation inside PyTorch"},
		{"each of two", []oom.Message{by(901, 0, itself), by(902, 0, pooled)}, []Name{Pool, Own},
			"Why out of memory: fragmentation inside PyTorch; your job needed more than the GPU has"},
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
