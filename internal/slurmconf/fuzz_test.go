package slurmconf

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// What is read is in the text, nothing is read twice, and no chain of files goes on for ever.
func FuzzParse(f *testing.F) {
	f.Add("ClusterName=Lab\nInclude %c.conf\nProlog=/a\nProlog=/b\n", "Include slurm.conf\nNodeName=n1 Gres=gpu:2\n", "n1")
	f.Add("include\tx*.conf\nNodeName=DEFAULT Gres=gpu \\\n CPUs=2\n", "include /etc/slurm.conf", "n[1-2]")
	f.Add("Include \"a b\"\nA=\"x y\" B+=3#c", "=\x00", "")
	f.Fuzz(func(t *testing.T, text, other, node string) {
		const name = "/etc/slurm.conf"
		alone := Parse(name, []byte(text), nil)
		included := map[string][]File{}
		for _, w := range alone.Wanted {
			if !strings.HasPrefix(w, "/") {
				t.Fatalf("wants %q", w)
			}
			included[w] = []File{{Path: w, Text: []byte(other)}, {Path: w + "2", Unread: "refused"}}
		}
		whole := Parse(name, []byte(text), included)
		for range MaxDepth + 2 { // each file may include others, never without end
			for _, w := range whole.Wanted {
				included[w] = nil
			}
			whole = Parse(name, []byte(text), included)
		}
		if len(whole.Wanted) != 0 {
			t.Fatalf("still wants %q", whole.Wanted)
		}
		for _, l := range whole.Lines {
			from := text
			if l.File != name {
				from = other
			}
			if l.Number < 1 || l.Number > strings.Count(from, "\n")+1 {
				t.Fatalf("%+v", l)
			}
			for _, p := range l.Pairs {
				if p[0] == "" || !strings.Contains(from, p[0]) {
					t.Fatalf("%+v", l)
				}
				if v, ok := l.Get(strings.ToUpper(p[0])); !ok || v == "" && p[1] != "" {
					t.Fatalf("%+v has no %q", l, p[0])
				}
			}
		}
		if n := whole.Node(node); n.Found && n.Line.Number == 0 {
			t.Fatalf("%+v", n)
		}
		if before := Parse(name, []byte("#x\n\n"+text), included); len(before.Lines) != len(whole.Lines) {
			t.Fatalf("a comment makes %d lines of %d", len(before.Lines), len(whole.Lines))
		}
	})
}

// A node is in a list when it is among all that the list says, written out.
func FuzzContains(f *testing.F) {
	f.Add("n[001-010,020],m3", "n005")
	f.Add("rack[0-1]n[2-3]", "rack1n2")
	f.Add("n[8-11]", "n09")
	f.Add("a[0-9]b[0-9]c[1-3],[1,1]x", "1x")
	f.Add("n[1-2", "n1")
	f.Add("n1]", "n1")
	f.Add("", "")
	f.Fuzz(func(t *testing.T, list, node string) {
		is, known := Contains(list, node)
		all, ok := writtenOut(list)
		if !ok {
			return
		}
		if !known || is != all[node] {
			t.Errorf("%q in %q: %v, known %v; written out %v", node, list, is, known, all[node])
		}
		for name := range all {
			if is, known := Contains(list, name); !is || !known {
				t.Errorf("%q in %q: %v, known %v", name, list, is, known)
			}
		}
	})
}

// mostNames bounds what is written out of a list.
const mostNames = 2000

// writtenOut is every name of a list; false where it is not well formed, or too long.
func writtenOut(list string) (map[string]bool, bool) {
	all, names := map[string]bool{}, []string{""}
	flush := func() {
		for _, n := range names {
			all[n] = true
		}
		names = []string{""}
	}
	brackets := 0
	for i := 0; i < len(list); i++ {
		switch c := list[i]; c {
		case ']':
			return nil, false
		case ',':
			flush()
			brackets = 0
		case '[':
			end := strings.IndexByte(list[i:], ']')
			if brackets++; end < 0 || brackets > maxBrackets {
				return nil, false
			}
			numbers, ok := ranges(list[i+1 : i+end])
			if !ok || len(numbers)*len(names) > mostNames {
				return nil, false
			}
			var longer []string
			for _, n := range names {
				for _, number := range numbers {
					longer = append(longer, n+number)
				}
			}
			names = longer
			i += end
		default:
			for j := range names {
				names[j] += string([]byte{c})
			}
		}
	}
	if list != "" && !strings.HasSuffix(list, ",") {
		flush()
	}
	return all, true
}

func ranges(text string) (out []string, ok bool) {
	for _, part := range strings.Split(text, ",") {
		low, high, isRange := strings.Cut(part, "-")
		if !isRange {
			high = low
		}
		from, err1 := strconv.ParseUint(low, 10, 32)
		to, err2 := strconv.ParseUint(high, 10, 32)
		if err1 != nil || err2 != nil || from > to || to-from > mostNames || len(low) > 18 || len(high) > 18 {
			return nil, false
		}
		for n := from; n <= to; n++ {
			out = append(out, fmt.Sprintf("%0*d", len(low), n))
		}
	}
	return out, true
}
