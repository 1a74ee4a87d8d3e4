package main

import (
	"fmt"
	"slices"
	"strings"

	"bookend/test/gpu/record"
)

// checked are the codes that the run's health checks found, each once; "clean" where they found none, empty where
// there was no check.
func (r run) checked() string {
	var codes []string
	for _, c := range r.HealthChecks {
		for _, f := range c.Findings {
			codes = append(codes, f.Code)
		}
	}
	slices.Sort(codes)
	codes = slices.Compact(codes)
	if len(codes) == 0 && len(r.HealthChecks) > 0 {
		return "clean"
	}
	return strings.Join(codes, ", ")
}

// healthChecks renders what each check of a scenario's runs made of the node.
func (s *scenario) healthChecks() string {
	var b strings.Builder
	for _, r := range s.runs {
		for _, c := range r.HealthChecks {
			fmt.Fprintf(&b, "| %s%d | %s | %.0f ms | %s | %s | %s |\n", r.from, r.Number, c.When, 1000*c.Seconds,
				seenBy(c), foundBy(c), orDash(oneLine(c.Drain)))
		}
	}
	if b.Len() == 0 {
		return ""
	}
	return "\n| run | health check | took | saw | found | of the drain |\n| --- | --- | --- | --- | --- | --- |\n" +
		b.String()
}

func seenBy(c record.NodeCheck) string {
	var all []string
	for _, o := range c.Seen {
		all = append(all, fmt.Sprintf("process %d with %s", o.PID, mib(o.Bytes)))
	}
	return orDash(strings.Join(all, ", "))
}

func foundBy(c record.NodeCheck) string {
	if c.Exit != 0 {
		return fmt.Sprintf("exit %d", c.Exit)
	}
	e := record.End{Findings: c.Findings}
	return said(&e)
}
