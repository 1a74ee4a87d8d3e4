package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"bookend/internal/catalog"
	"bookend/internal/condition"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/slurm"
)

func TestExplanations(t *testing.T) {
	const may = "in mode enforce, if the policy says drain and the evidence is certain"
	for c, want := range map[catalog.Code]struct{ exit, drains string }{
		catalog.Orphan:   {"10 if it drains", may},
		catalog.BadEnv:   {"31 if it drains", may},
		catalog.Trespass: {"none of its own", "never: it is about a GPU that is not the hook's job's"},
		catalog.Throttle: {"none of its own", "never: it tells of a GPU and says nothing against it"},
		catalog.Reset:    {"none of its own", "never: the node is drained already, and a drain's reason gets this code"},
		catalog.Output:   {"none of its own", "never: it is about a file in its user's hands"},
	} {
		got := condition.Explanation(string(c), config.Default().Explain)
		if !strings.Contains(got, "  drains:  "+want.drains+"\n") || !strings.Contains(got, "  exit:    "+want.exit+"\n") ||
			strings.Contains(got, "(default: ") {
			t.Errorf("%s: got\n%s\nwant %+v", c, got, want)
		}
	}
	for _, entry := range catalog.All() { // one text for each, none left out
		if got := condition.Explanation(string(entry.Code), config.Default().Explain); strings.Count(got, "\n") != 7 ||
			strings.Contains(got, ": \n") {
			t.Errorf("%s:\n%s", entry.Code, got)
		}
	}
}

func TestCodeNames(t *testing.T) {
	for written, want := range map[string]catalog.Code{"BKD-ORPHAN": catalog.Orphan, "orphan": catalog.Orphan,
		" Bkd-Orphan ": catalog.Orphan, "st-write": catalog.StateWrite, "orfan": "", "": "", "BKD-": ""} {
		if got, ok := catalog.Parse(written); got != want || ok != (want != "") {
			t.Errorf("%q: %q", written, got)
		}
	}
	reason := "BKD-XIDFATAL gpu=3 healthcheck; see: bookend status; 7 of 8 good: bookend quarantine --resume 3"
	if got := condition.Explanation(reason, config.Default().Explain); !strings.Contains(got, "keeps the faulty GPU from jobs") {
		t.Errorf("%s: got\n%s", reason, got)
	}
	if got := catalog.Mentioned("BKD-ORPHAN gpu=0 (BKD-GAP) XBKD-ECC BKD-NOPE"); !slices.Equal(got,
		[]catalog.Code{catalog.Orphan, catalog.Gap}) {
		t.Errorf("%v", got)
	}
	for n, want := range map[int]bool{0: true, 2: true, 10: true, 40: true, 137: true, 1: false, 20000: false, 256: false, -1: false} {
		if got := condition.Explanation(fmt.Sprint(n), config.Default().Explain); want != strings.Contains(got, "of Bookend's hooks: ") {
			t.Errorf("exit status %d: %q", n, got)
		}
	}
}

func TestExplainsWhatIsPasted(t *testing.T) {
	for pasted, want := range map[string]string{
		"31":          "exit code 31 of Bookend's hooks|BKD-ENV|Xid 31|BKD-XID",
		"46":          "Xid 46|BKD-XIDFATAL|CUDA_ERROR_DEVICE_UNAVAILABLE (46)",
		"xid 999":     "Xid 999|BKD-XID",
		"NVML 15":     "NVML_ERROR_GPU_IS_LOST (15)",
		"SXid: 20034": "SXid 20034|BKD-KERNELLOG", "xid-79": "Xid 79|BKD-XIDFATAL",
		"cuda 12345": "unknown code (12345)",
		"Nov 29 12:00:00 n1 kernel: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n" +
			"kern  :err : [9.1] NVRM: Xid (PCI:0000:3c:00): 79, pid=7, name=a\x1b[2J, GPU has fallen off the bus.": "" +
			"Xid 79 of GPU 0000:3b:00.0|BKD-XIDFATAL|Xid 79 of GPU 0000:3c:00.0",
		"[1.5] NVRM: API mismatch: the client has the version 535.183.01, but": "BKD-MISMATCH",
		"BKD-ORPHAN gpu=0 job=42 epilog; see: bookend show 42 : Not responding [slurm@2026-11-29T12:00:00]": "" +
			"drain reason Not responding|BKD-ORPHAN",
		"NVRM: Xid (PCI:0000:1b:00): 45, pid=18, name=python3, Ch 00000001 caused by previous Xid 149": "" +
			"Xid 45 of GPU 0000:1b:00.0|BKD-XID",
		"nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 20034, Fatal, Link 30 LTSSM Fault Up": "" +
			"SXid 20034 of device 0000:a9:00.0|BKD-KERNELLOG",
		"Nov 29 12:00:00 n1 kernel: NVRM: The NVIDIA GPU 0000:3b:00.0\nNov 29 12:00:00 n1 kernel: NVRM: (PCI ID: 10de:2330)" +
			" installed in this system has\nNov 29 12:00:00 n1 kernel: NVRM: fallen off the bus and is not responding to " +
			"commands.": "nvidia of GPU 0000:3b:00.0|BKD-XIDFATAL",
		"4,7,9,-,caller=T9;NVRM: Xid (PCI:0000:1b:00): 31, Ch 8": "Xid 31 of GPU 0000:1b:00.0|BKD-XID",
		"MESSAGE=NVRM: Xid (PCI:0000:1b:00): 31, Ch 8":           "Xid 31 of GPU 0000:1b:00.0|BKD-XID",
		"kernel:NVRM: Xid (PCI:0000:1b:00): 31, Ch 8":            "Xid 31 of GPU 0000:1b:00.0|BKD-XID",
		"`NVRM: Xid (PCI:0000:1b:00): 31, Ch 8`":                 "Xid 31 of GPU 0000:1b:00.0|BKD-XID",
		"Expedited requeue":                                      "expedited requeue",
		"Docker":                                                 "docker",
		"ray":                                                    "ray",
		"ipmi not responding":                                    "",
		"CUDA toolkit is nice":                                   "",
	} {
		var titles []string
		text := condition.Explanation(pasted, config.Default().Explain)
		for paragraph := range strings.SplitSeq(text, "\n\n") {
			title, _, _ := strings.Cut(paragraph, ": ")
			titles = append(titles, strings.TrimSpace(title))
		}
		if got := strings.Join(titles, "|"); got != want || strings.Contains(text, "\x1b") {
			t.Errorf("%q: got %q, want %q\n%s", pasted, got, want, text)
		}
	}
	for pasted, cause := range map[string]string{ // no line blames more than it shows
		"pcieport 0000:60:01.0: AER: Uncorrected (Fatal) error received: 0000:61:00.0":   "hardware: the device with this address, or",
		"pcieport 0000:60:01.0: DPC: containment event, status:0x1f01 source:0x0000":     "hardware: the device with this address, or",
		"NVRM: Xid (PCI:0000:1b:00): 45, pid=18, name=python3, Ch 00000001":              "what came before it: ",
		"NVRM: Xid (PCI:0000:1b:00): 45, pid=18, name=a, Ch 1 caused by previous Xid 79": "the GPU's hardware (Xid 79: ",
	} {
		text := condition.Explanation(pasted, config.Default().Explain)
		if !strings.Contains(text, "  cause:   "+cause) || strings.Contains(text, "of GPU 0000:6") {
			t.Errorf("%q: want cause %q\n%s", pasted, cause, text)
		}
	}
	for written, want := range map[string]string{
		"orfan": "BKD-ORPHAN", "Epilog eror": "Epilog error", "kill  task faild": "Kill task failed",
		"BKD-RESDUE": "BKD-RESIDUE", "requeu": "requeue", "ecx": "BKD-ECC", "fatalxid": "",
		"nvml_error_gpu_is_los": "NVML_ERROR_GPU_IS_LOST", "": "", "x": "", "BKD-": "", "nonsense": "", strings.Repeat("orphan", 99): "",
	} {
		if got := config.DidYouMean(config.Suggest(written, append(gpu.ReturnNames(), "requeue")...)); got != "" && got != "; did you mean "+want+"?" || got == "" && want != "" {
			t.Errorf("%q: %q", written, got)
		}
	}
}

// Every exit code of catalog's, and the reasons of hooks that Slurm sets, are known here.
func TestKnowsHooksReasons(t *testing.T) {
	for _, reason := range []string{slurm.PrologError, slurm.EpilogError} {
		if found := catalog.SlurmReasons(reason); len(found) != 1 || !strings.Contains(found[0].Remedy, "bookend explain") {
			t.Errorf("%q: %+v", reason, found)
		}
	}
}

func FuzzExplain(f *testing.F) {
	for _, seed := range []string{"xid", "nvml 999", "gres/gpu count too low (1 < 2)", "NVRM: Xid (PCI:0000:3b:00): 79, x",
		"a [b@c]", "x 2026-11-29T12:00:00", "cuda", "Low CPUs, ", strings.Repeat("cuda ", 20000)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := condition.Explanation(text, config.Default().Explain) + config.DidYouMean(config.Suggest(text))
		if strings.ContainsFunc(got, func(r rune) bool { return r != '\n' && (r < ' ' || r > '~') }) {
			t.Errorf("%q: %q", text, got)
		}
	})
}
