package cluster

import (
	"reflect"
	"strings"
	"testing"
)

const shownJob = `JobId=7 ArrayJobId=6 ArrayTaskId=2 JobName=two words
   JobState=PENDING Reason=launch_failed_requeued_held Dependency=(null)
   Requeue=1 Restarts=1 BatchFlag=1 Reboot=0 ExitCode=3:0
   NodeList=
   CPUs/Task=1 ReqB:S:C:T=0:0:*:*
   Command=(null)
   WorkDir=/a b/c=d e
   StdOut=/a b/out State=1.txt
   Power=

JobId=8 JobName=x
   JobState=RUNNING Reason=None Dependency=(null)
`

func TestParseShow(t *testing.T) {
	have := parseShow(shownJob)
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

const shownLog = `[2026-11-21T07:02:27.957] debug2: prep/script: _run_subpath_command: prolog success rc:0 output:hello

[not a time] of the output
[2026-11-21T07:02:28.971] error: epilog failed: rc:3 output:bye
two

[2026-11-21T07:02:28.972] error: epilog killed by signal 9 output:
[2026-11-21T07:02:28.973] error: [job 5] epilog failed status=0:9
[2026-11-21T07:02:28.974] error: [job 4] epilog failed status=3:0
[2026-11-21T07:02:28.975] read exited
[2026-11-21T07:02:28.980] error: epilog failed: rc:12 output:
[2026-11-21T07:02:28.981] error: JobId=6 SLUID=s62DM806JGR800 epilog failed status=12:0
`

func TestParseHookRuns(t *testing.T) {
	have := parseHookRuns(shownLog)
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

func FuzzParseShow(f *testing.F) {
	f.Add(shownJob)
	f.Add("NodeName=n1\n Reason=a b [root@now]\n=\n")
	f.Fuzz(func(t *testing.T, text string) {
		if n := strings.Count(text, "JobId=") + strings.Count(text, "NodeName="); len(parseShow(text)) > n {
			t.Errorf("more entries than heads in %q", text)
		}
	})
}

func FuzzParseHookRuns(f *testing.F) {
	f.Add(shownLog)
	f.Fuzz(func(t *testing.T, text string) {
		for _, r := range parseHookRuns(text) {
			if r.Exit != 0 && r.Signal != 0 || r.Job != "" && !r.Failed() {
				t.Errorf("impossible record %+v", r)
			}
		}
	})
}

func TestJoinSettings(t *testing.T) {
	have := joinSettings([][2]string{{"KillWait", "2"}, {"PrologFlags", "Alloc"}},
		[]string{"killwait=9", "Include /a.conf", "PartitionName=a Nodes=n1", "PartitionName=b Nodes=n2"})
	want := "PrologFlags=Alloc\nkillwait=9\nPartitionName=a Nodes=n1\nPartitionName=b Nodes=n2\nInclude /a.conf\n"
	if have != want {
		t.Errorf("have %q, want %q", have, want)
	}
}
