package cluster

import (
	"regexp"
	"strings"
	"time"
)

// HookTime is how long slurmd waited for one hook, by the marks of its own log, which has milliseconds. It is never
// less than what the hook took.
type HookTime struct {
	Hook string // "prolog" or "epilog"
	Job  JobID
	Took time.Duration
}

// HookTimes returns the hooks of batch jobs that a node's log tells of, in the order of their ends.
func (c *Cluster) HookTimes(node string) ([]HookTime, error) {
	text, err := c.SlurmdLog(node)
	if err != nil {
		return nil, err
	}
	return parseHookTimes(text), nil
}

// The marks, in the order in which slurmd sets them for a batch job:
//
//	Processing RPC: REQUEST_LAUNCH_PROLOG
//	Finished wait for job 7's prolog to complete     its prolog has ended
//	Finished wait for job 7's prolog to complete     again, before its epilog
//	completed epilog for jobid 7                     or: [job 7] epilog failed
//
// The first names no job: of several prologs at once the earliest start is taken for the one that ends first.
//
// Since 25.11 a job is "JobId=7 SLUID=s4ZHM806T9MS01" in each of them.
var hookMark = regexp.MustCompile(`^\[(\S+)\] (?:debug2?|error):  ?(?:(Processing RPC: REQUEST_LAUNCH_PROLOG)|` +
	`Finished wait for ` + jobNamed + ` prolog to complete|completed epilog for ` + jobNamed + `|` + jobNamed +
	` epilog failed )`)

// jobNamed is how slurmd's log names a job; its one group is the id.
const jobNamed = `\[?(?:job |jobid |JobId=)(\d+)(?:'s|\]| SLUID=\w+)?`

const stamp = "2006-01-02T15:04:05.000"

func parseHookTimes(log string) (found []HookTime) {
	var prologs []time.Time
	ready := map[JobID]time.Time{} // when nothing was in the way of the job's next hook
	for line := range strings.Lines(log) {
		m := hookMark.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		at, err := time.Parse(stamp, m[1])
		if err != nil {
			continue
		}
		prolog, epilog := JobID(m[3]), JobID(m[4]+m[5])
		switch {
		case m[2] != "":
			prologs = append(prologs, at)
		case epilog != "":
			found = append(found, HookTime{"epilog", epilog, at.Sub(ready[epilog])})
		case ready[prolog].IsZero() && len(prologs) > 0:
			found = append(found, HookTime{"prolog", prolog, at.Sub(prologs[0])})
			prologs = prologs[1:]
			fallthrough
		default:
			ready[prolog] = at
		}
	}
	return found
}
