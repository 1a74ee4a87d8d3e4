package main

import (
	"strings"

	"bookend/internal/answer"
	"bookend/internal/config"
	"bookend/internal/drain"
)

const hookFailed = "ended with something other than 0. Which one, and with which exit code, slurmd's log says " +
	"(bookend explain NUMBER explains Bookend's); bookend status and bookend history show " +
	"what Bookend's found, if it was that."

// slurmReasons are the fixed texts with which slurmd drains a node.
var slurmReasons = []struct{ text, means string }{
	{drain.PrologError, "Slurm's own text: a Prolog " + hookFailed},
	{drain.EpilogError, "Slurm's own text: an Epilog " + hookFailed},
	{"Kill task failed", "Slurm's own text, and not Bookend's doing: processes of a job could not be killed " +
		"within UnkillableStepTimeout. On a GPU node that is often a driver that hangs: bookend status, and the " +
		"kernel's log."},
	{"Duplicate jobid", "Slurm's own text: slurmd was told of a job that it already has."},
	{"Not responding", "Slurm's own text: slurmctld does not hear from slurmd on the node."},
	{"batch job complete failure", "Slurm's own text: slurmd could not launch a batch job."},
}

// explainReason reads a node's drain reason; without an answer where it is none that is known.
func explainReason(e answer.Explain, what string, cfg config.Config) answer.Explain {
	for _, r := range slurmReasons {
		if strings.HasPrefix(strings.ToLower(strings.TrimSpace(what)), strings.ToLower(r.text)) {
			return e.WithReason("slurm", r.means)
		}
	}
	if r, ours := drain.Parse(strings.TrimSpace(what)); ours {
		return explainDrain(e, r, cfg)
	}
	codes := answer.CodesIn(what)
	if len(codes) == 0 {
		return e
	}
	for _, c := range codes {
		e.Codes = append(e.Codes, answer.NewExplanation(c, cfg))
	}
	return e.WithReason("bookend", "it names a Bookend finding, and is not as Bookend writes it: someone "+
		"changed it, or it was cut off")
}
