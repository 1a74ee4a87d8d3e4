package slurmconf

import (
	"fmt"
	"strings"
	"testing"
)

func TestSharedGPUs(t *testing.T) {
	const (
		plain  = "ClusterName=lab\nGresTypes=gpu\nNodeName=n[1-4] Gres=gpu:4 State=UNKNOWN\n"
		sliced = "GresTypes=gpu,shard\nNodeName=n[1-4] Gres=gpu:4,shard:16\nNodeName=m1 Gres=gpu:h100:8(S:0-1)\n"
		split  = "GresTypes=gpu,shard\nInclude nodes.conf\n"
		whole  = "NodeName=n[1-4] Name=gpu File=/dev/nvidia[0-3]\n"
		parts  = whole + "NodeName=n[1-2] Name=shard Count=16\n"
	)
	for name, tt := range map[string]struct {
		slurm, gres string
		node        string
		want        Shared
		why         string
	}{
		"no such type":                   {plain, whole, "n1", No, "slurm.conf has GresTypes=gpu"},
		"no such type, gres.conf unread": {plain, "-", "n1", No, "GresTypes"},
		"no such type, node elsewhere": {"GresTypes = gpu,nic\nInclude nodes.conf\n", whole, "n1", No,
			"GresTypes=gpu,nic"},
		"no such type, and a line": {plain, parts, "n1", Unknown,
			"slurm.conf has GresTypes=gpu, but gres.conf line 2 has Name=shard"},
		"the node has shards":          {sliced, parts, "n1", Yes, "slurm.conf has Gres=gpu:4,shard:16"},
		"shards, gres.conf unread":     {sliced, "-", "n3", Yes, "Gres="},
		"another node has shards":      {sliced, whole, "m1", No, "slurm.conf has Gres=gpu:h100:8(S:0-1)"},
		"a line where nodes are apart": {split, parts, "n1", Yes, "gres.conf line 2 has Name=shard"},
		"no line where nodes are apart": {split, parts, "n3", Unknown,
			`line 2 includes "nodes.conf", which is not read`},
		"a node that is not named": {sliced, whole, "k1", Unknown, "does not say what Gres"},
		"nothing read":             {"-", "-", "n1", Unknown, "slurm.conf could not be read"},
		"only gres.conf read":      {"-", parts, "n1", Yes, "gres.conf"},
		"nothing said":             {"", "", "n1", Unknown, "does not say"},

		"by default": {"GresTypes=gpu,shard\nNodeName=DEFAULT Gres=gpu:4,shard:8\nNodeName=n1\n",
			whole, "n1", Yes, "shard:8"},
		"stated behind an include": {"GresTypes=gpu,shard\nInclude a\nNodeName=n1 Gres=gpu:1\n", whole, "n1", No,
			"Gres=gpu:1"},
		"a list not understood": {"GresTypes=gpu,shard\nNodeName=n[000x111] Gres=gpu:1\n", whole, "n1", Unknown,
			"line 2"},
		"continued": {"GresTypes=gpu,shard\nNodeName=n1 \\\n  CPUs=8 \\  \n  Gres=gpu:1,shard:4\nNodeName=m1\n",
			whole, "n1", Yes, "shard:4"},
		"a comment": {"#GresTypes=gpu\nGresTypes=gpu,shard # MPS\\\nNodeName=n1 Gres=gpu:1#,shard:4\n", whole, "n1",
			No, "Gres=gpu:1"},
		"a line gone wrong": {"GresTypes=gpu,shard\nNodeName=n1 and so on\n", whole, "n1", Unknown, "line 2"},
	} {
		t.Run(name, func(t *testing.T) {
			got := SharedGPUs(file("slurm.conf", tt.slurm), file("gres.conf", tt.gres), tt.node)
			if got.Shared != tt.want || !strings.Contains(got.Why, tt.why) || got.Why == "" {
				t.Errorf("%+v, want %s because of %q", got, tt.want, tt.why)
			}
		})
	}
}

// file is a file as it was read, nil for one that could not be.
func file(name, text string) *Conf {
	if text == "-" {
		return nil
	}
	conf := Parse(name, []byte(text), nil)
	return &conf
}

func TestCounted(t *testing.T) {
	const two = "NodeName=n[1-4] Gres=gpu:2 State=UNKNOWN\n"
	for name, tt := range map[string]struct{ slurm, gres, want string }{
		"one run": {two, "Name=gpu File=/dev/nvidia[0-1]\n", "[[/dev/nvidia0] [/dev/nvidia1]]"},
		"of this node": {two,
			"NodeName=n2 Name=gpu File=/dev/nvidia7\nNodeName=n1 Name=gpu File=/dev/nvidia[1,0]\n",
			"[[/dev/nvidia1] [/dev/nvidia0]]"},
		"beside shards": {"NodeName=n1 Gres=gpu:2,shard:8\n",
			"Name=gpu File=/dev/nvidia[0-1]\nName=shard Count=8\n", "[[/dev/nvidia0] [/dev/nvidia1]]"},
		"found by NVML":        {two, "AutoDetect=NVML\n", ""},
		"not found":            {two, "AutoDetect=off\n", ""},
		"found and named":      {two, "AutoDetect=nvml\nName=gpu File=/dev/nvidia[0-1]\n", ""},
		"two lines":            {two, "Name=gpu File=/dev/nvidia1\nName=gpu File=/dev/nvidia0\n", ""},
		"a type in slurm.conf": {"NodeName=n1 Gres=gpu:a:2\n", "Name=gpu File=/dev/nvidia[0-1]\n", ""},
		"two kinds":            {"NodeName=n1 Gres=gpu:1,gpu:1\n", "Name=gpu File=/dev/nvidia[0-1]\n", ""},
		"a type in gres.conf":  {two, "Name=gpu Type=a File=/dev/nvidia[0-1]\n", ""},
		"fewer files":          {two, "Name=gpu File=/dev/nvidia0\n", ""},
		"an unread file":       {two, "Name=gpu File=/dev/nvidia[0-1]\nInclude more\n", ""},
		"no node":              {"NodeName=m1 Gres=gpu:2\n", "Name=gpu File=/dev/nvidia[0-1]\n", ""},
		"no gres.conf":         {two, "-", ""},
	} {
		got := Counted(file("slurm.conf", tt.slurm), file("gres.conf", tt.gres), "n1")
		if got.Known() != (tt.want != "") || got.Known() && fmt.Sprint(got.GPUs) != tt.want {
			t.Errorf("%s: %+v, want %q", name, got, tt.want)
		}
	}
}

func TestDeviceFiles(t *testing.T) {
	for list, want := range map[string]string{
		"/dev/nvidia0":              "[/dev/nvidia0]",
		"/dev/nvidia[0-2,5],/dev/x": "[/dev/nvidia0 /dev/nvidia1 /dev/nvidia2 /dev/nvidia5 /dev/x]",
		"/dev/n[08-10]b":            "[/dev/n08b /dev/n09b /dev/n10b]", "/dev/n[2-1]": "[/dev/n[2-1]]", "": "[]",
	} {
		if got := fmt.Sprint(DeviceFiles(list)); got != want {
			t.Errorf("%q: %s, want %s", list, got, want)
		}
	}
}

func TestCount(t *testing.T) {
	for list, want := range map[string]string{
		"gpu:4": "4 1 false", "gpu:h100:4(S:0-1),shard:8": "4 1 true", "gpu:a:2,gpu:b:1(S:0,1)": "3 2 true",
		"gpu": "1 1 false", "gpu:a": "1 1 true",
		"": "0 0 false", "shard:4": "0 0 false",
	} {
		if n, kinds, typed := Count(list); fmt.Sprint(n, kinds, typed) != want {
			t.Errorf("%q: %d, %d, %v; want %s", list, n, kinds, typed, want)
		}
	}
}
