package catalog

import (
	_ "embed"
)

const scriptsExit0 = "The scripts in /etc/bookend/slurm/hooks exit 0 instead; " +
	"a node drains only if slurm.conf names the program itself. "

// exitMeanings are exit codes of a hook that are not those of one finding.
var exitMeanings = []struct {
	first, last int
	meaning     string
}{
	{0, 0, "nothing to drain for"},
	{2, 2, "a crash of Go's runtime, which Bookend did not catch: no process or thread was available, for example. " +
		scriptsExit0 + "Raise the limit (pids cgroup, kernel.threads-max) or see syslog"},
	{ExitOther, ExitOther, "a finding without a number of its own that the policy drains for"},
	{126, 255, "not a verdict: the hook could not be started, or a signal ended it (128 and its number). " +
		scriptsExit0 + "See syslog and bookend doctor"},
}

// ExitMeaning returns what an exit code of a hook means, empty if no hook exits with it.
func ExitMeaning(exit int) string {
	for _, e := range exitMeanings {
		if exit >= e.first && exit <= e.last {
			return e.meaning
		}
	}
	if c, ok := OfExit(exit); ok {
		e, _ := Lookup(c)
		return "the node was drained: " + e.Title
	}
	return ""
}

// requeueFile says what an epilog's exit code decides about a job that is to be requeued at once.
//
//go:embed requeue.txt
var requeueFile string
