package health

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"bookend/internal/code"
	"bookend/internal/config"
	"bookend/test/must"
)

var update = flag.Bool("update", false, "rewrite docs/health.md")

const doc = "../../docs/health.md"

func TestTableIsSound(t *testing.T) {
	seen := map[string]bool{}
	once := func(key string) {
		if seen[key] {
			t.Errorf("%s stands twice in the table", key)
		}
		seen[key] = true
	}
	for _, r := range table() {
		key := fmt.Sprint(r.Fact, r.Value, r.Xids)
		if (r.Fact == "") == (len(r.Xids) == 0) || (r.Fact == "") != (r.Value == "") {
			t.Errorf("%s is neither a fact nor an Xid", key)
		}
		once(string(r.Fact) + r.Value + fmt.Sprint(r.Xids))
		for _, n := range r.Xids {
			once(fmt.Sprintf("Xid %d", n))
		}
		if r.Meaning == "" || r.Asks == "" || expected[r.Code] == "" {
			t.Errorf("%s lacks words: %+v", key, r)
		}
		for _, c := range r.Value + r.Meaning + r.Asks + r.Doubt + expected[r.Code] {
			if c < ' ' || c > '~' || c == '|' {
				t.Errorf("%s: %q is not plain ASCII", key, c)
			}
		}
		if entry, ok := code.Lookup(r.Code); !ok || entry.Scope != code.Card {
			t.Errorf("%s: %s is no finding on a GPU", key, r.Code)
		}
	}
}

func TestHealthDoc(t *testing.T) {
	want := healthDoc()
	if *update {
		must.Do(t, os.WriteFile(doc, []byte(want), 0o644))
	}
	got := must.Have(os.ReadFile(doc))(t)
	if string(got) != want {
		t.Errorf("%s differs from the table: run go test ./internal/health -update", doc)
	}
}

// shipped is what the shipped policy of an end does with a row's finding in enforce mode: the policy itself is asked.
func shipped(r Row) string {
	a := action(r.finding(answer{observed: "x"}))
	if a == config.Drain {
		return "**drain**"
	}
	return string(a)
}

const intro = `# The GPU's condition
What Bookend asks the driver about each of a job's GPUs, what it looks for in the kernel's log, and what follows. This
page is generated from the table that judges, by ` + "`go test ./internal/health -update`" + `; the last column is the shipped policy
at a job's end.

## What is read, and when
* **At a job's end**: the facts of the first table, from
  the driver, and the kernel's log since the job began. At its start nothing but the number of the newest entry of that
  log is noted.
* **Compared** are ECC errors, with the last look at the same GPU on record: of the same boot, driver and kernel
  module, as they start again with these. Without such a look ECC errors are *unknown*, as no one can say whether this job
  met them.
* What the driver does not tell of a GPU is left out. What could not be read is unknown and never a finding:
  ` + "`bookend show JOBID`" + ` has it with the reason.
* **The kernel's log** is /dev/kmsg below paths.dev. Only the kernel's own lines count: what programs write there has
  another facility, and they cannot choose the kernel's. Entries that were
  overwritten before they were read are noted (BKD-UNTRACED): an Xid may be missing.

## When a node is drained
Only in enforce mode, only for what NVIDIA's own guidance calls a fault of the GPU, and only without a doubt. These are
doubts, each of which makes a drain a warning:
* The driver was asked whether the GPU needs recovery, and said none: it outweighs an Xid.
* The GPU is a MIG instance, or the hook sees only a part of the node (PrologFlags=RunInJob).
* The driver was reloaded between the Xid and the job's end: that may have cured the GPU.
* What the tables below call a doubt.

Other actions are set by finding and partition: see [the configuration](config.md).
`

const xidIntro = `
## Xids
An Xid is an error that the driver writes to the kernel's log:

    NVRM: Xid (PCI:0000:1b:00): 31, pid=4711, name=python3, Ch 00000008, intr 00000000. MMU Fault: ...
    NVRM: Xid (PCI:0000:1b:00 GPU-I:01 GPU-CI:00): 94, pid=4711, name=python3, Contained: ...

The second is of a MIG instance: GPU-I is its GPU instance and GPU-CI its compute instance. Which instance a job had is not
known by these numbers, so on a MIG instance such a line is *unknown*; a line without them is of the whole GPU.

All lines of one number on one GPU of the job are one finding, with how often, when (as dmesg shows it), the processes,
and the Xid that caused it where the line says so. A process that a hook saw in a job's cgroup since the job began is said
to be of this job, or of another. Few of many lines are kept: the first and the newest of each process, and how many they were.

The job's GPUs are those that the driver lists now and those that the record of its start has: an Xid counts though the
driver is stuck, the GPU is gone from its list or nothing could be looked at. Within one boot the log is read from where
the job began.

Numbers that are not in the table are BKD-XID. A fatal error of the
GPU is often followed by 45, the clean-up of each program on it.
`

const outro = `
## Errors of CUDA
What the test allocation's CUDA errors mean, with remedies: [CUDA errors](cuda-errors.md).

## NVIDIA's documents
* [GPU Memory Error Management](https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/): recovery actions, remapping, ECC
* [Dynamic Page Retirement](https://docs.nvidia.com/deploy/dynamic-page-retirement/)
* [Xid Errors](https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html)
* [NVML API Reference Guide](https://docs.nvidia.com/deploy/nvml-api/)
* [Fabric Manager User Guide](https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/)
* [Driver Persistence](https://docs.nvidia.com/deploy/driver-persistence/)
`

func healthDoc() string {
	var b strings.Builder
	b.WriteString(intro)
	b.WriteString("\n## What the driver says\n| fact | value | finding | what it means | what NVIDIA calls for | at a job's end |\n" + strings.Repeat("| --- ", 6) + "|\n")
	for _, r := range factRows {
		fmt.Fprintf(&b, "| %s | %s %s\n", r.Fact, r.Value, columns(r))
	}
	b.WriteString(xidIntro + "\n| Xid | finding | what it means | what NVIDIA calls for | at a job's end |\n" +
		strings.Repeat("| --- ", 5) + "|\n")
	for _, r := range slices.SortedFunc(slices.Values(table()[len(factRows):]),
		func(a, b Row) int { return cmp.Compare(a.Xids[0], b.Xids[0]) }) {
		fmt.Fprintf(&b, "| %s %s\n", ranges(r.Xids), columns(r))
	}
	b.WriteString(outro)
	return b.String()
}

func columns(r Row) string {
	meaning := strings.TrimRight(r.Meaning, ": ")
	if r.Doubt != "" {
		meaning += ". Doubt: " + r.Doubt
	}
	return fmt.Sprintf("| [%s](findings.md#%s) | %s | %s | %s |", r.Code, strings.ToLower(string(r.Code)), meaning,
		r.Asks, shipped(r))
}

// ranges writes numbers in order, runs of three and more as "126-135".
func ranges(numbers []int) string {
	var out []string
	for i := 0; i < len(numbers); {
		j := i
		for j+1 < len(numbers) && numbers[j+1] == numbers[j]+1 {
			j++
		}
		if j-i < 2 {
			j = i
			out = append(out, fmt.Sprint(numbers[i]))
		} else {
			out = append(out, fmt.Sprintf("%d-%d", numbers[i], numbers[j]))
		}
		i = j + 1
	}
	return strings.Join(out, ", ")
}
