package slurmcmd

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bookend/test/must"
)

// accounting makes a fake sacct and sacctmgr, in the words of Slurm 22.05. What sacctmgr is asked for is in the file.
func accounting(t *testing.T, records, manager string) (c Commenter, asked string, said *strings.Builder) {
	t.Helper()
	dir := t.TempDir()
	asked, said = filepath.Join(dir, "asked"), &strings.Builder{}
	must.Do(t, os.WriteFile(filepath.Join(dir, "records"), []byte(records), 0o600))
	for name, text := range map[string]string{
		"sacct":    "[ \"$1 $2\" = '-XDPn -oJobIDRaw,JobID,UID,NodeList,Submit,Start,End,SystemComment' ] && cat " + dir + "/records",
		"sacctmgr": "echo \"$*\" >>" + asked + "\n" + manager,
	} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o700))
	}
	return Commenter{Slurm: Scontrol{Path: filepath.Join(dir, "scontrol"), Time: func() time.Duration { return 10 * time.Second }},
		Most: 2, Say: func(format string, args ...any) { fmt.Fprintf(said, format+"\n", args...) }}, asked, said
}

func TestComment(t *testing.T) {
	const (
		at    = "2026-11-21T09:"
		times = at + "00:00|" + at + "00:05|" + at + "59:00|"
		mine  = "42|42|1001|n[1-3]|" + times
		first = "jobid=42 set SystemComment=bookend n2: BKD-ORPHAN gpu 0 20.0 GiB"
	)
	long := strings.Repeat("x", 160)
	for name, tt := range map[string]struct{ records, want, said string }{
		"an empty comment": {records: mine + "\n", want: first},
		"ours of another node": {records: mine + "bookend n1: bkd-gap gpu 1\n",
			want: "SystemComment=bookend n1: bkd-gap gpu 1; n2: BKD-ORPHAN gpu 0 20.0 GiB"},
		"ours of a node with a longer name": {records: mine + "bookend cn2: BKD-ORPHAN gpu 0 20.0 GiB\n",
			want: "SystemComment=bookend cn2: BKD-ORPHAN gpu 0 20.0 GiB; n2: BKD-ORPHAN gpu 0 20.0 GiB"},
		"ours, in Slurm 22.05": {records: mine + "bookend n1: bkd-gap; n2: bkd-orphan gpu 0 20.0 gib; n3: bkd-gap\n", said: "there already: 1"},
		"no room":              {records: mine + "bookend n1: " + long + "\n", said: "there already: 1"},
		"another's":            {records: mine + "JS1:abc\n", said: "with another's comment: 1"},
		"another's with a bar": {records: mine + "|bookend n2: x\n", said: "with another's comment: 1"},
		"a task of an array":   {records: strings.Replace(mine, "42|42", "42|40_3", 1) + "\n", want: "jobid=40_3 set"},
		"the task with the array's own number": {records: "41|42_1|1001|n2|" + times + "\n" +
			strings.Replace(mine, "42|42", "42|42_3", 1) + "\n", want: "jobid=42_3 set"},
		"a component":     {records: strings.Replace(mine, "42|42", "42|41+1", 1) + "\n", want: "jobid=41+1 set"},
		"another user's":  {records: strings.Replace(mine, "1001", "1002", 1) + "\n", said: "not certainly the job's last run: 1"},
		"another node":    {records: strings.Replace(mine, "n[1-3]", "n1,n[3-9]", 1) + "\n", said: "not certainly"},
		"an earlier time": {records: "42|42|1001|n2|" + strings.ReplaceAll(times, at, "2025-11-21T09:") + "\n", said: "not certainly"},
		"a later time":    {records: "42|42|1001|n2|" + strings.ReplaceAll(times, at, "2026-11-21T10:") + "\n", said: "not certainly"},
		"still running":   {records: strings.Replace(mine, at+"59:00", "Unknown", 1) + "\n", said: "not certainly"},
		"requeued since, and waits": {records: mine + "\n42|42|1001|None assigned|" + at + "59:10|Unknown|Unknown|\n",
			said: "not certainly"},
		"requeued since, and runs": {records: mine + "\n42|42|1001|n2|" + at + "59:10|" + at + "59:30|Unknown|\n", said: "not certainly"},
		"requeued since, at once": {records: strings.Replace(mine, at+"59:00", at+"00:11", 1) + "\n42|42|1001|n2|" + at + "00:12|" +
			at + "00:13|" + at + "40:00|\n", said: "not certainly"},
		"requeued before": {records: "42|42|1001|n2|" + at + "00:00|2026-11-21T08:00:00|2026-11-21T08:30:00|\n" + mine + "\n", want: first},
		"the number of an older job": {records: "42|42|7|n2|2025-01-01T00:00:00|2025-01-01T00:00:00|2025-01-01T00:00:09|JS1:\n" + mine + "\n",
			want: first},
		"a later run there": {records: "42|42|1001|n2|2026-11-21T07:00:00|2026-11-21T07:00:00|Unknown|\n42|42|1001|n2|" + at + "00:00|2026-11-21T08:00:00|2026-11-21T08:59:00|\n",
			said: "not certainly"},
		"no record":    {said: "not certainly"},
		"not a record": {records: "sacct: error\n|||\n", said: "not certainly"},
	} {
		c, asked, said := accounting(t, tt.records, `echo " Modified jobs..."`)
		began := must.Have(time.Parse(timeForm, at+"00:10"))(t)
		must.Do(t, c.Write([]Remark{{42, 1001, "n2", began, "n2: BKD-ORPHAN gpu 0 20.0 GiB"}}))
		text, _ := os.ReadFile(asked)
		must.Not(t, !strings.Contains(string(text), tt.want) || (len(text) == 0) != (tt.want == "") || !strings.Contains(said.String(), tt.said),
			"%s: asked %q, said %q, want %q, %q", name, text, said, tt.want, tt.said)
	}
}

// What several nodes found is one comment. Writing is bounded, tried again if slurmdbd does not know the job yet, and
// ends at an error.
func TestCommentsOfSeveral(t *testing.T) {
	var records, text string
	var remarks []Remark
	began := must.Have(time.Parse(timeForm, "2026-11-21T09:00:10"))(t)
	for job := range uint32(4) {
		records += fmt.Sprintf("%d|%[1]d|7|n[1-2]|2026-11-21T09:00:00|2026-11-21T09:00:05|2026-11-21T09:59:00|\n", job+1)
		for _, node := range []string{"n1", "n2"} {
			remarks = append(remarks, Remark{job + 1, 7, node, began, node + ": BKD-GAP"})
		}
	}
	remarks = append(remarks, Remark{1, 7, "n1; n9", began, "n9"})
	for manager, want := range map[string]string{
		"exit 0": "written: 2\n", "echo ' Nothing modified'; exit 1": "not yet in the accounting: 4\n",
		"echo denied >&2; exit 1": "left for the next run: 4\n", "dry": "not written (--dry-run): 4\n",
	} {
		c, asked, said := accounting(t, records, manager)
		c.Dry = manager == "dry"
		err := c.Write(remarks)
		must.Not(t, !strings.Contains(said.String(), want) || (err != nil) != strings.Contains(manager, "denied"), "%s: %v\n%s", manager, err, said)
		data, _ := os.ReadFile(asked)
		text = string(data)
		wrote := strings.Contains(said.String(), "job 1: bookend n1: BKD-GAP; n2: BKD-GAP\n")
		must.Not(t, c.Dry != (text == "") || wrote != (c.Dry || manager == "exit 0"),
			"%s: asked %q, said\n%s", manager, text, said)
	}
	c, _, said := accounting(t, "", "")
	must.Do(t, c.Write(nil))
	must.Be(t, "without findings", said.String(), "")
	for job := range uint32(20_000) { // more than one argument of a program can name
		remarks = append(remarks, Remark{Job: 1<<24 + job})
	}
	must.Do(t, c.Write(remarks))
}
