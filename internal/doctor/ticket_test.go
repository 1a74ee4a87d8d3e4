package doctor

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/node"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/test/must"
)

// secrets are what a job's user chose or owns: none of it may leave the node.
var secrets = []string{"alice", "61001", "/home/", "train.py", "evil", "4711"}

const smi = `#!/bin/sh
echo "GPU $3"
printf '    Product Name : NVIDIA\033[2J H200\n    Compute Mode : Exclusive_Process\n'
printf '    Processes\n        GPU instance ID : N/A\n        Process ID : 4711\n            Name : /home/alice/evil train.py\n'
printf '    Serial Number : 1650123000042\n    Accounted Processes : 4711\n'
`

// ticketIn is a ticket about a GPU that a job with an ECC error had, on a node whose records have hostile texts.
func ticketIn(t *testing.T, dir string) *Ticket {
	t.Helper()
	card := record.Assigned{Index: 3, Device: gpu.Device{ID: "GPU-3", BusID: "0000:3b:00.0", Name: "NVIDIA\x1b[2J H200\nGPU",
		Vendor: "nvidia"}}
	wall := time.Date(2026, 11, 20, 17, 10, 0, 0, time.UTC)
	evil := "evil\n\x1b]0;/home/alice/train.py 4711"
	e := record.End{At: time.Hour, Wall: wall, Report: evil, Processes: []record.Process{{Name: evil, UID: 61001}},
		Kernel: &gpu.KernelLog{Xids: []gpu.Xid{
			{BusID: card.Device.BusID, Code: 48, Text: "DBE at\x1b row 7", Name: "<unknown>"},
			{BusID: card.Device.BusID, Code: 13, PID: 4711, Name: "evil", Text: "/home/alice, Ch 1"},
			{BusID: "0000:99:00.0", Code: 79, Text: "another GPU"}}},
		Findings: []record.Finding{
			{Code: catalog.XidFatal, GPU: "GPU-3", Xid: 48, Observed: evil},
			{Code: catalog.Xid, GPU: "GPU-3", Xid: 13, Observed: evil, Doubts: []string{evil}},
			{Code: catalog.Orphan, GPU: "GPU-3", Observed: evil, Holder: &record.Holder{Process: record.Process{Name: evil}}},
			{Code: catalog.Recovery, GPU: "GPU-9"}},
		Health:  []gpu.Health{{Device: "GPU-3", Facts: []gpu.Fact{{Code: gpu.RemapRows, Value: "4\x1b"}}}},
		Verdict: record.Verdict{Action: config.Drain, Code: catalog.XidFatal, Exit: 29}}
	r := record.Run{Key: "w1", Job: slurm.Job{ID: 42, UID: 61001, User: "alice", Partition: "evil"}, Devices: []record.Assigned{card},
		Epoch: gpu.Epoch{Boot: "b1", Driver: "580"}, Ends: []record.End{e}}
	later := record.Run{Key: "w2", Job: slurm.Job{ID: 43}, Epoch: gpu.Epoch{Boot: "b2", Driver: "580"}, Ends: []record.End{{Wall: wall.Add(time.Hour)}}}
	put(t, filepath.Join(dir, "sys/class/dmi/id/product_serial"), "S-\x1b123\n", 0o400)
	put(t, filepath.Join(dir, "bin/nvidia-smi"), smi, 0o755)
	return &Ticket{Node: "n1", Made: wall.Add(time.Hour), Device: card.Device, Runs: []record.Run{later, r},
		Paths:  config.Paths{Proc: filepath.Join(dir, "proc"), Sys: filepath.Join(dir, "sys"), Dev: filepath.Join(dir, "dev")},
		Faults: []record.Strike{{At: wall, Job: 42, Codes: []catalog.Code{catalog.XidFatal}, Xids: []int{48}}},
		Glance: node.Glance{Health: []gpu.Health{{Device: "GPU-3", Facts: []gpu.Fact{
			{Code: gpu.Serial, Value: "16/50\n"}, {Code: gpu.VBIOS, Unknown: "nvmlDeviceGetVbiosVersion: \x1bfailed"}}}}},
		Programs: filepath.Join(dir, "bin")}
}

// archived returns the files of a ticket's archive. Nothing in them may be unsafe to show or a user's.
func archived(t *testing.T, k *Ticket) map[string]string {
	t.Helper()
	data, err := k.Archive()
	must.Do(t, err)
	packed, err := gzip.NewReader(bytes.NewReader(data))
	must.Do(t, err)
	files := map[string]string{}
	for r := tar.NewReader(packed); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		must.Do(t, err)
		text, err := io.ReadAll(r)
		must.Do(t, err)
		files[h.Name] = string(text)
		for _, secret := range secrets {
			must.Not(t, strings.Contains(string(text), secret), "%s has %q:\n%s", h.Name, secret, text)
		}
		must.Not(t, strings.ContainsAny(string(text), "\x1b\x00\r"), "%s has control characters:\n%q", h.Name, text)
	}
	return files
}

func TestTicket(t *testing.T) {
	dir := must.RootsDir(t)
	k := ticketIn(t, dir)
	name := k.FileName()
	must.Not(t, name != "bookend-rma-n1-GPU-3-20261120-181000.tar.gz", "the archive's name is %q", name)
	files := archived(t, k)
	for file, wants := range map[string][]string{
		"summary.txt": {"serial:               16/50\\x0a\n", "vbios:                unknown: nvmlDeviceGetVbiosVersion: ", `product:              NVIDIA\x1b[2J H200\x0aGPU`,
			`serial number:        S-\x1b123`, "2026-11-20 17:10:00 UTC  Xid 48 (uncorrectable (double bit) memory error; NVIDIA asks: reset",
			"found by a hook of job 42", "2026-11-20 17:10:00 UTC  drained for BKD-XIDFATAL, job 42",
			"2026-11-20 18:10:00 UTC  the node was booted", "inforom:              unknown: not reported", "In the kernel log now\n  open "},
		"records.txt": {"2026-11-20 17:10:00 UTC  job 42, driver 580\n  BKD-XIDFATAL Xid 48\n  BKD-XID Xid 13 (uncertain)\n",
			`Xid 48: DBE at\x1b row 7`, "Xid 13: text left out", `remap_uncorrected=4\x1b`},
		"nvidia-smi.txt": {"GPU 0000:3b:00.0", "Exclusive_Process", "exit code 0", `Product Name : NVIDIA\x1b[2J H200`},
	} {
		for _, want := range wants {
			must.Not(t, !strings.Contains(files[file], want), "%s lacks %q:\n%s", file, want, files[file])
		}
	}
	for _, not := range []string{"BKD-ORPHAN", "BKD-RECOVERY", "another GPU", "job 43"} {
		must.Not(t, strings.Contains(files["records.txt"], not), "records.txt has %q:\n%s", not, files["records.txt"])
	}
}

// What hangs, fails or may be another user's is named, and the rest is there.
func TestTicketWithout(t *testing.T) {
	dir := must.RootsDir(t)
	k := ticketIn(t, dir)
	k.Glance = node.Glance{Problem: "BKD-HANG: killed after 3s"}
	files := archived(t, k)
	for _, want := range []string{"serial:               unknown: BKD-HANG: killed after 3s", "Xid 48 ("} {
		must.Not(t, !strings.Contains(files["summary.txt"], want), "no %q in:\n%s", want, files["summary.txt"])
	}
	must.Not(t, !strings.Contains(files["nvidia-smi.txt"], "did not answer"), "%s", files["nvidia-smi.txt"])

	k = ticketIn(t, dir)
	put(t, filepath.Join(dir, "bin/nvidia-smi"), smi, 0o777)
	got := archived(t, k)["nvidia-smi.txt"]
	must.Not(t, !strings.Contains(got, "was not started: "), "a program that others may write was run:\n%s", got)

	k = ticketIn(t, dir)
	put(t, filepath.Join(dir, "bin/nvidia-smi"), "#!/bin/sh\necho 'Unable to determine the device handle'\nexit 9\n", 0o755)
	got = archived(t, k)["nvidia-smi.txt"]
	must.Not(t, !strings.Contains(got, "Unable to determine") || !strings.Contains(got, "exit code 9"), "%s", got)
}
