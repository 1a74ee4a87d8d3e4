package gresconf

import (
	"path"
	"testing"
)

// An answer has its reason, and comments and empty lines change nothing. Without slurm.conf it is never no.
func FuzzParse(f *testing.F) {
	f.Add("GresTypes=gpu,shard\nNodeName=n[1-2]-a Gres=gpu:1,shard:4\n", "NodeName=n1 Name=mps Count=3\n", "n1")
	f.Add("NodeName=DEFAULT Gres=\"x\" \\\nInclude y#\n", "Name=shard\\\\\n", "rack0n1")
	f.Add("NodeName=[0-9][0-9][0-9][0-9] Gres=a", "\\#\x00=\xff", "0000000000000000000")
	f.Add("ClusterName=lab\nGresTypes=gpu\nNodeName=n[1-4] Gres=gpu:4 State=UNKNOWN\n", "AutoDetect=nvml\nNodeName=n[1-4] Name=gpu File=/dev/nvidia[0-3]\n", "n3")
	f.Fuzz(func(t *testing.T, slurmConf, gresConf, node string) {
		if slurmConf == "-" || gresConf == "-" { // stands for a file that could not be read
			return
		}
		got := Parse(file("slurm.conf", slurmConf), file("gres.conf", gresConf), node)
		if got.Why == "" || got.Shared != Yes && got.Shared != No && got.Shared != Unknown {
			t.Fatalf("%+v", got)
		}
		if alone := Parse(nil, file("gres.conf", gresConf), node); alone.Shared == No {
			t.Fatalf("without slurm.conf: %+v", alone)
		}
		if again := Parse(file("slurm.conf", "# GresTypes=shard\n\n"+slurmConf), file("gres.conf", "\n#Name=shard\n"+gresConf), node); again.Shared != got.Shared {
			t.Fatalf("%+v, then %+v", got, again)
		}
		// A line for all nodes, before the rest, is heard: nobody says no beside it.
		if listed := Parse(file("slurm.conf", slurmConf), file("gres.conf", "Name=shard Count=4\n"+gresConf), node); listed.Shared == No {
			t.Fatalf("beside a line of shards: %+v", listed)
		}
	})
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
