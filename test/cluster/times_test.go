package cluster

import (
	"slices"
	"testing"
	"time"
)

func TestParseHookTimes(t *testing.T) {
	const log = `[2026-11-21T19:08:51.255] debug2: Start processing RPC: REQUEST_LAUNCH_PROLOG
[2026-11-21T19:08:51.255] debug2: Processing RPC: REQUEST_LAUNCH_PROLOG
[2026-11-21T19:08:51.256] debug:  Waiting for job 1's prolog to complete
[2026-11-21T19:08:51.355] debug2: Processing RPC: REQUEST_LAUNCH_PROLOG
[2026-11-21T19:08:51.481] debug:  Finished wait for job 2's prolog to complete
[2026-11-21T19:08:51.500] debug:  Finished wait for job 1's prolog to complete
[2026-11-21T19:08:51.600] [1.batch] debug:  completed epilog for jobid 1
[2026-11-21T19:08:53.322] debug:  Finished wait for job 1's prolog to complete
[2026-11-21T19:08:53.370] debug2: prep/script: _run_subpath_command: epilog success rc:0 output:
[2026-11-21T19:08:53.372] debug:  completed epilog for jobid 1
[2026-11-21T19:08:54.000] debug:  Finished wait for job 2's prolog to complete
[2026-11-21T19:08:54.100] error: epilog failed: rc:10 output:
[2026-11-21T19:08:54.101] error: [job 2] epilog failed status=10:0
[2026-11-21T19:08:55.000] debug:  Waiting for JobId=3 SLUID=s4ZHM806T9MQ00 prolog launch request
[2026-11-21T19:08:55.001] debug2: Processing RPC: REQUEST_LAUNCH_PROLOG
[2026-11-21T19:08:55.002] debug:  Finished wait for JobId=3 SLUID=s4ZHM806T9MQ00 prolog launch request
[2026-11-21T19:08:55.101] debug:  Finished wait for JobId=3 SLUID=s4ZHM806T9MQ00 prolog to complete
[2026-11-21T19:08:56.000] debug:  Finished wait for JobId=3 SLUID=s4ZHM806T9MQ00 prolog to complete
[2026-11-21T19:08:56.020] debug:  completed epilog for JobId=3 SLUID=s4ZHM806T9MQ00
[2026-11-21T19:08:57.000] debug2: Processing RPC: REQUEST_LAUNCH_PROLOG
[2026-11-21T19:08:57.101] debug:  Finished wait for JobId=4 SLUID=s4ZHM806T9MS01 prolog to complete
[2026-11-21T19:08:58.000] debug:  Finished wait for JobId=4 SLUID=s4ZHM806T9MS01 prolog to complete
[2026-11-21T19:08:58.030] error: JobId=4 SLUID=s4ZHM806T9MS01 epilog failed status=12:0
`
	at := func(ms int) time.Time { return time.Date(2026, 11, 21, 19, 8, 51, ms*1e6, time.UTC) }
	want := []HookTime{
		{"prolog", "2", at(255), 226 * time.Millisecond}, {"prolog", "1", at(355), 145 * time.Millisecond},
		{"epilog", "1", at(2322), 50 * time.Millisecond}, {"epilog", "2", at(3000), 101 * time.Millisecond},
		{"prolog", "3", at(4001), 100 * time.Millisecond}, {"epilog", "3", at(5000), 20 * time.Millisecond},
		{"prolog", "4", at(6000), 101 * time.Millisecond}, {"epilog", "4", at(7000), 30 * time.Millisecond},
	}
	if got := parseHookTimes(log); !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}
