package cluster

import (
	"os"
	"reflect"
	"slices"
	"testing"
	"time"

	"bookend/test/must"
)

// shown is what Slurm 22.05, or since 25.11, was seen to write.
func shown(t *testing.T, file string) string {
	t.Helper()
	return string(must.Have(os.ReadFile("testdata/" + file))(t))
}

func TestParseShow(t *testing.T) {
	have := parseShow(shown(t, "job.txt"))
	want := []map[string]string{{
		"JobId": "7", "ArrayJobId": "6", "ArrayTaskId": "2", "JobName": "two words",
		"JobState": "PENDING", "Reason": "launch_failed_requeued_held", "Dependency": "(null)",
		"Requeue": "1", "Restarts": "1", "BatchFlag": "1", "Reboot": "0", "ExitCode": "3:0", "NodeList": "",
		"CPUs/Task": "1", "ReqB:S:C:T": "0:0:*:*", "Command": "(null)",
		"WorkDir": "/a b/c=d e", "StdOut": "/a b/out State=1.txt", "Power": "",
	}, {"JobId": "8", "JobName": "x", "JobState": "RUNNING", "Reason": "None", "Dependency": "(null)"}}
	if !reflect.DeepEqual(have, want) {
		t.Errorf("have %q\nwant %q", have, want)
	}
}

func TestParseHookRuns(t *testing.T) {
	have := parseHookRuns(shown(t, "hooks.log"))
	want := []HookRun{
		{Hook: "prolog", Output: "hello\n\n[not a time] of the output"},
		{Hook: "epilog", Job: "4", Exit: 3, Output: "bye\ntwo"},
		{Hook: "epilog", Job: "5", Signal: 9},
		{Hook: "epilog", Job: "6", Exit: 12},
	}
	if !reflect.DeepEqual(have, want) {
		t.Errorf("have %+v\nwant %+v", have, want)
	}
}

func TestJoinSettings(t *testing.T) {
	have := joinSettings([][2]string{{"KillWait", "2"}, {"PrologFlags", "Alloc"}},
		[]string{"killwait=9", "Include /a.conf", "PartitionName=a Nodes=n1", "PartitionName=b Nodes=n2"})
	want := "PrologFlags=Alloc\nkillwait=9\nPartitionName=a Nodes=n1\nPartitionName=b Nodes=n2\nInclude /a.conf\n"
	if have != want {
		t.Errorf("have %q, want %q", have, want)
	}
}

func TestLoopback(t *testing.T) {
	for name, tc := range map[string]struct {
		hosts, address string
		bound          bool
	}{
		"as most installers write it": {"127.0.0.1 localhost\n127.0.1.1\tvm.example.org vm # this one\n", "127.0.1.1",
			true},
		"one line for all":    {"127.0.0.1 localhost vm\n", "127.0.0.1", true},
		"IPv6 first":          {"::1 vm\n127.0.0.1 vm\n", "127.0.0.1", true},
		"on the network":      {"127.0.0.1 localhost\n192.0.2.7 vm\n127.0.1.1 vm\n", "127.0.0.1", false},
		"only part of a name": {"127.0.0.1 vm2 myvm\n", "127.0.0.1", false},
		"commented out":       {"#127.0.0.1 vm\n", "127.0.0.1", false},
		"no file":             {"", "127.0.0.1", false},
	} {
		if address, bound := loopback(tc.hosts, "vm"); address != tc.address || bound != tc.bound {
			t.Errorf("%s: %q, %v, want %q, %v", name, address, bound, tc.address, tc.bound)
		}
	}
}

func TestParseHookTimes(t *testing.T) {
	want := []HookTime{
		{"prolog", "2", 226 * time.Millisecond}, {"prolog", "1", 145 * time.Millisecond},
		{"epilog", "1", 50 * time.Millisecond}, {"epilog", "2", 101 * time.Millisecond},
		{"prolog", "3", 100 * time.Millisecond}, {"epilog", "3", 20 * time.Millisecond},
		{"prolog", "4", 101 * time.Millisecond}, {"epilog", "4", 30 * time.Millisecond},
	}
	if got := parseHookTimes(shown(t, "times.log")); !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestParseVersion(t *testing.T) {
	for text, want := range map[string]Version{
		"slurm-wlm 22.05.8\n":   {22, 5, 8},
		"slurm 24.11.5\n":       {24, 11, 5},
		"slurm-wlm 26.05.5-1\n": {26, 5, 5},
		"slurm 26.05.0-0rc1\n":  {26, 5, 0},
	} {
		if v, err := parseVersion(text); err != nil || v != want {
			t.Errorf("%q: %v, %v", text, v, err)
		}
	}
	for _, text := range []string{"", "munge 0.5.15", "slurm 26", "slurm-wlm"} {
		if v, err := parseVersion(text); err == nil {
			t.Errorf("%q is version %v", text, v)
		}
	}
	if v := (Version{22, 5, 8}).String(); v != "22.05.8" {
		t.Error(v)
	}
	for _, tt := range []struct {
		v            Version
		major, minor int
		want         bool
	}{
		{Version{24, 5, 0}, 24, 5, true}, {Version{24, 11, 5}, 24, 5, true}, {Version{26, 5, 5}, 24, 11, true},
		{Version{23, 11, 9}, 24, 5, false}, {Version{24, 5, 8}, 24, 11, false},
	} {
		if have := tt.v.Since(tt.major, tt.minor); have != tt.want {
			t.Errorf("%v since %d.%d: %v", tt.v, tt.major, tt.minor, have)
		}
	}
}
