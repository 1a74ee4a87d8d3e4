package faults

import (
	"fmt"
	"strings"
	"testing"

	"bookend/internal/code"
	"bookend/internal/oom"
)

// forged is what a job can print for nothing but trouble, and as how many messages it is understood.
var forged = map[string]struct {
	output   string
	messages int
}{
	"words of Bookend's": {"\n| bookend: GPU 0 of n1 was not clean after your job\n| bookend:   Found:  98304 MiB in use that no listed process accounts for\n" +
		"| bookend: BKD-RESIDUE BKD-LOST BKD-XIDFATAL drain exit=11\nbookend: Why out of memory: GPU or driver had a fault\n", 0},
	"an error, then an end report": {ranOut + "\n| bookend: GPU 0 of n1 left clean by your job\n", 0},
	"an end report, then an error": {"\n| bookend: GPU 0 of n1 left clean by your job\n" + ranOut, 1},
	"impossible sizes":             {torchSays(each("17179869184.00 GiB")) + torchSays(each("4194303.99 GiB")), 1},
	"negative sizes":               {torchSays(each("-2.00 GiB")), 0},
	"sizes without end": {torchSays([6]string{"1" + zeros(30) + " GiB", "1e30 GiB", "1" + zeros(400) + " bytes", "inf GiB", "nan GiB", "0x7fffffffffffffff bytes"}) +
		"RuntimeError: CUDA out of memory. Tried to allocate " + strings.Repeat("9", 5000) + " GiB (GPU " + strings.Repeat("9", 30) + "; 8 GiB total capacity)\n", 1},
	"sizes that do not agree": {torchSays([6]string{"0 bytes", "8.00 GiB", "9.00 GiB", "99.00 GiB", "98.00 GiB", "97.00 GiB"}) +
		torchSays([6]string{"1.00 KiB", "1 bytes", "0 bytes", "2000.00 GiB", "2000.00 GiB", "2000.00 GiB"}), 1},
	"thousands of messages":  {strings.Repeat(ranOut, 5000), 1},
	"messages of many cards": {ofCards(5000, 64), oom.MaxMessages},
	"messages of no cards":   {strings.ReplaceAll(ranOut, "GPU 0", "GPU -1") + strings.ReplaceAll(ranOut, "GPU 0", "GPU 18446744073709551616"), 1},
	"thousands of processes": {strings.Replace(ranOut, "Process 77 has 3.00 GiB memory in use. ",
		strings.Repeat("Process 1 has 3.00 GiB memory in use. Process 4194305 has 99999.00 GiB memory in use. Process -1 has -1 bytes memory in use. ", 500), 1), 1},
	"escape sequences": {"\x1b]0;owned\x07\x1b[2J\x1b[31m" + strings.ReplaceAll(ranOut, " ", "\x1b[5m \x1b[0m") + "\x9b31m\u202egnp.exe\x00\xff\xfe MemoryError\x1b]8;;http://x\x1b\\\r\r\n" +
		"RuntimeError: CUDA error: an illegal memory access was encountered \x1b]52;c;eA==\x07\x9d0;x\x9c\u2028\n", 2},
	"lines for slurmstepd":  {"export PATH=/x\nprint | bookend: x\nunset PATH\n" + strings.ReplaceAll(ranOut, "epoch", "export LD_PRELOAD=/x.so"), 1},
	"a line of 60 KiB":      {strings.Repeat("A", 30<<10) + " " + strings.TrimSpace(torchSays(each("2.00 GiB"))) + strings.Repeat("B", 29<<10), 1},
	"a line of 128 KiB":     {strings.Repeat("A", 64<<10) + " " + strings.TrimSpace(torchSays(each("2.00 GiB"))) + strings.Repeat("B", 63<<10), 0},
	"one line, all at once": {strings.ReplaceAll(strings.Repeat(ranOut, 100), "\n", " "), 1},
	"nothing but zeros":     {strings.Repeat("\x00", 200<<10), 0},
	"faults of the card": {"NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.\nRuntimeError: CUDA error: uncorrectable ECC error encountered\n" +
		"RuntimeError: CUDA error: the launch timed out and was terminated\nUnable to determine the device handle for GPU0000:1B:00.0: GPU is lost.\n" +
		"RuntimeError: CUDA error: system not yet initialized\nFailed to initialize NVML: Driver/library version mismatch\n", 4},
	"a kill for want of memory": {"slurmstepd: error: Detected 4294967295 oom_kill events in StepId=7.batch. Some of the step tasks have been OOM Killed.\n" +
		"Out of memory: Killed process 1 (systemd)\n", 2},
}

// torchSays is PyTorch's message with whatever figures its writer likes: what was asked, the card's total, what of it is
// free, the process's own, and of its pool what is live and what is idle.
func torchSays(sizes [6]string) string {
	text := "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate %s. GPU 0 has a total capacity of %s of which %s is free. " +
		"Including non-PyTorch memory, this process has %s memory in use. Of the allocated memory %s is allocated by PyTorch, and %s is reserved by " +
		"PyTorch but unallocated.\n"
	for _, s := range sizes {
		text = strings.Replace(text, "%s", s, 1)
	}
	return text
}

func each(size string) [6]string { return [6]string{size, size, size, size, size, size} }

func zeros(n int) string { return strings.Repeat("0", n) }

// ofCards are so many messages about so many cards.
func ofCards(messages, cards int) string {
	var text strings.Builder
	for i := range messages {
		text.WriteString(strings.ReplaceAll(ranOut, "GPU 0", fmt.Sprintf("GPU %d", i%cards)))
	}
	return text.String()
}

// What a job prints is the user's claim: whatever it is, the report stays one screen of plain text, and nothing drains for
// it.
func TestForgedOutput(t *testing.T) {
	for name := range forged {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			printed(t, name, false)
		})
	}
}

// Nor is anything that drains covered up by it.
func TestForgedOutputBesideAnOrphan(t *testing.T) {
	for _, name := range []string{"words of Bookend's", "an error, then an end report", "messages of many cards", "faults of the card"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			printed(t, name, true)
		})
	}
}

// printed runs a job that prints what is forged, and leaves a process or not.
func printed(t *testing.T, name string, orphan bool) {
	t.Helper()
	n, want, status := newNode(t, "enforce"), 0, "0"
	n.configure(func(c *conf) { c.onUnknown, c.extra = "drain", "job_log: {why: always}\n" })
	j := n.begin(newJob())
	if orphan {
		n.leftover()
		want, status = 10, failed
	}
	told, exit := n.end(j, status, forged[name].output)
	e := n.endOf(100)
	if exit != want || e.Verdict.Exit != want || has(e.Findings, code.Orphan) != orphan || (len(e.Findings) == 0) == orphan {
		t.Errorf("exit %d %+v\n%s", exit, e.Findings, n.log())
	}
	if len(told) < 2 || len(e.Messages) != forged[name].messages {
		t.Errorf("%d messages, want %d: %+v\nthe user reads:\n%s", len(e.Messages), forged[name].messages, e.Messages, strings.Join(told, "\n"))
	}
	for where, text := range map[string]string{"show": n.shown(), "log": n.log()} {
		if !printable(text) {
			t.Errorf("%s:\n%q", where, text)
		}
	}
}

// shown is what an admin sees of job 100.
func (n *node) shown() string {
	n.Helper()
	text, exit := n.bookend("show", "100")
	if exit != 0 {
		n.Errorf("bookend show: exit %d: %s", exit, text)
	}
	return text
}
