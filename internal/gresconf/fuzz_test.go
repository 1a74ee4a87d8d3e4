package gresconf

import (
	"fmt"
	"path"
	"strconv"
	"strings"
	"testing"
)

// An answer has its reason, and comments and empty lines change nothing. Without slurm.conf it is never no.
func FuzzParse(f *testing.F) {
	f.Add("GresTypes=gpu,shard\nNodeName=n[1-2]-a Gres=gpu:1,shard:4\n", "NodeName=n1 Name=mps Count=3\n", "n1")
	f.Add("NodeName=DEFAULT Gres=\"x\" \\\nInclude y#\n", "Name=shard\\\\\n", "rack0n1")
	f.Add("NodeName=[0-9][0-9][0-9][0-9] Gres=a", "\\#\x00=\xff", "0000000000000000000")
	f.Add("ClusterName=lab\nGresTypes=gpu\nNodeName=n[1-4] Gres=gpu:4 State=UNKNOWN\n", "AutoDetect=nvml\nNodeName=n[1-4] Name=gpu File=/dev/nvidia[0-3]\n", "n3")
	f.Fuzz(func(t *testing.T, slurmConf, gresConf, node string) {
		got := Parse([]byte(slurmConf), []byte(gresConf), node)
		if got.Why == "" || got.Shared != Yes && got.Shared != No && got.Shared != Unknown {
			t.Fatalf("%+v", got)
		}
		if alone := Parse(nil, []byte(gresConf), node); alone.Shared == No {
			t.Fatalf("without slurm.conf: %+v", alone)
		}
		if again := Parse([]byte("# GresTypes=shard\n\n"+slurmConf), []byte("\n#Name=shard\n"+gresConf), node); again.Shared != got.Shared {
			t.Fatalf("%+v, then %+v", got, again)
		}
		// A line for all nodes, before the rest, is heard: nobody says no beside it.
		if listed := Parse([]byte(slurmConf), []byte("Name=shard Count=4\n"+gresConf), node); listed.Shared == No {
			t.Fatalf("beside a line of shards: %+v", listed)
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
		is, known := contains(list, node)
		all, ok := writtenOut(list)
		if !ok {
			return
		}
		if !known || is != all[node] {
			t.Errorf("%q in %q: %v, known %v; written out %v", node, list, is, known, all[node])
		}
		for name := range all {
			if is, known := contains(list, name); !is || !known {
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

// Nothing but the two files of one folder is ever looked at, and no relative path that Slurm did not give.
func FuzzFind(f *testing.F) {
	f.Add("", "/etc/slurm/slurm.conf")
	f.Add("/opt/slurm/etc/gres.conf", "")
	f.Add("", "../slurm.conf")
	f.Add("/a/../b/gres.conf", "x")
	f.Fuzz(func(t *testing.T, gresConf, slurmConf string) {
		all := Find(gresConf, slurmConf)
		if len(all) == 0 {
			t.Fatal("nowhere to look")
		}
		for _, files := range all {
			given := files.Slurm == slurmConf || files.Gres == gresConf
			if !given && (!path.IsAbs(files.Slurm) || path.Base(files.Slurm) != slurmFile) || !given && path.Base(files.Gres) != gresFile {
				t.Errorf("%q, %q: %+v", gresConf, slurmConf, files)
			}
			if path.Dir(files.Slurm) != path.Dir(files.Gres) {
				t.Errorf("%+v are not in one folder", files)
			}
		}
	})
}
