package faults

import (
	"strings"
	"testing"
)

// forged is what a job can print for nothing but trouble, and as how many messages it is understood. Package oom tries
// what its parsers make of more, and fuzzes them.
var forged = map[string]struct {
	output   string
	messages int
}{
	"words of Bookend's": {"\n| bookend: WARNING: n1 GPU 0 had 96.0 GiB in use after your job\n" +
		"| bookend:   No process is listed for it\n" +
		"| bookend: BKD-RESIDUE BKD-LOST BKD-XIDFATAL drain exit=11\n", 0},
	"an error, then an end report": {ranOut + "\n| bookend: n1 GPU 0 clean: 139.8 GiB free\n", 0},
	"escape sequences": {"\x1b]0;owned\x07\x1b[2J\x1b[31m" + strings.ReplaceAll(ranOut, " ", "\x1b[5m \x1b[0m") +
		"\x9b31m\u202egnp.exe\x00\xff\xfe MemoryError\x1b]8;;http://x\x1b\\\r\r\n" +
		"RuntimeError: CUDA error: an illegal memory access was encountered \x1b]52;c;eA==\x07\x9d0;x\x9c\u2028\n", 2},
	"lines for slurmstepd": {"export PATH=/x\nprint | bookend: x\nunset PATH\n" +
		strings.ReplaceAll(ranOut, "epoch", "export LD_PRELOAD=/x.so"), 1},
	"a line of 128 KiB": {strings.Repeat("A", 64<<10) + " " + strings.TrimSpace(torchSays(each("2.00 GiB"))) +
		strings.Repeat("B", 63<<10), 0},
	"nothing but zeros": {strings.Repeat("\x00", 200<<10), 0},
	"faults of the GPU": {"NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.\n" +
		"RuntimeError: CUDA error: uncorrectable ECC error encountered\n" +
		"RuntimeError: CUDA error: the launch timed out and was terminated\n" +
		"Unable to determine the device handle for GPU0000:1B:00.0: GPU is lost.\n" +
		"RuntimeError: CUDA error: system not yet initialized\n" +
		"Failed to initialize NVML: Driver/library version mismatch\n", 4},
}

// torchSays is PyTorch's message with whatever figures its writer likes: what was asked, the GPU's total, what of it is
// free, the process's own, and of its pool what is live and what is idle.
func torchSays(sizes [6]string) string {
	text := "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate %s. GPU 0 has a total capacity of %s of " +
		"which %s is free. Including non-PyTorch memory, this process has %s memory in use. Of the allocated memory " +
		"%s is allocated by PyTorch, and %s is reserved by PyTorch but unallocated.\n"
	for _, s := range sizes {
		text = strings.Replace(text, "%s", s, 1)
	}
	return text
}

// ranOut is what a job prints that runs out of memory, and Bookend's own words about another.
var ranOut = "epoch 1\n" + strings.Replace(torchSays([6]string{"2.00 GiB", "8.00 GiB", "1.00 GiB", "4.00 GiB",
	"3.00 GiB", "512.00 MiB"}), "Including", "Process 77 has 3.00 GiB memory in use. Including", 1) +
	"| bookend: RuntimeError: CUDA error: an illegal memory access was encountered\n"

func each(size string) [6]string { return [6]string{size, size, size, size, size, size} }

// What a job prints is the user's claim: whatever it is, the report stays one screen of plain text, nothing drains for
// it, and nothing that drains is covered up by it.
func TestForgedOutput(t *testing.T) {
	stories := map[string]story{}
	for name, f := range forged {
		s := story{
			config: func(c *conf) { c.onUnknown, c.extra = "drain", "job_log: all\n" },
			prints: f.output,
			check: func(n *node) {
				if got := n.endOf(100).Messages; len(got) != f.messages {
					n.Errorf("%d messages, want %d: %+v", len(got), f.messages, got)
				}
				shown, _ := n.bookend("show", "100")
				for where, text := range map[string]string{"show": shown, "log": n.log()} {
					if !printable(text) {
						n.Errorf("%s:\n%q", where, text)
					}
				}
			},
		}
		stories[name] = s
		s.during, s.exit, s.finds, s.status = func(n *node) { n.leftover() }, 10, "BKD-ORPHAN", failed
		stories[name+", beside an orphan"] = s
	}
	tell(t, stories)
}
