package doctor

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"bookend/internal/child"
	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/node"
	"bookend/internal/nodefiles"
	"bookend/internal/record"
	"bookend/internal/safefile"
	"bookend/internal/safetext"
)

// Ticket is what a vendor's ticket about a GPU is made of.
type Ticket struct {
	Node      string
	Made      time.Time
	Paths     config.Paths
	Device    gpu.Device
	Faults    []record.Strike // that the records prove
	Runs      []record.Run    // of the node, the newest first
	Drain     string          // what Bookend last did about a drain of the node
	Glance    node.Glance     // the driver's answer, with the GPUs' condition
	Programs  string          // the directory of nvidia-smi
	Diagnoses []gpu.Diagnosis // DCGM's tests of the node, the newest last

	page strings.Builder
}

// FileName returns a name for the archive: node, GPU and date.
func (t *Ticket) FileName() string {
	id := filepath.Base(string(t.Device.ID))
	return fmt.Sprintf("bookend-rma-%s-%s-%s.tar.gz", t.Node, id, t.Made.Format("20060102-150405"))
}

// Archive returns the ticket's files as a compressed tar archive; summary.txt is to be read first. None of them names a
// user, or a job's program, files or output.
func (t *Ticket) Archive() ([]byte, error) {
	found, tried := t.history()
	t.summarize(tried)
	var b bytes.Buffer
	packed := gzip.NewWriter(&b)
	out := tar.NewWriter(packed)
	var err error
	for _, f := range [][2]string{{"summary.txt", t.page.String()}, {"records.txt", strings.Join(found, "\n") + "\n"},
		{"nvidia-smi.txt", t.nvidiaSMI()}} {
		var text bytes.Buffer
		fmt.Fprint(safetext.Terminal(&text), f[1])
		h := tar.Header{Name: f[0], Mode: 0o600, Size: int64(text.Len()), ModTime: t.Made, Format: tar.FormatPAX}
		err = cmp.Or(err, out.WriteHeader(&h))
		_, _ = text.WriteTo(out) // Close reports what was not written
	}
	err = cmp.Or(err, out.Close(), packed.Close())
	return b.Bytes(), err
}

func (t *Ticket) head(title string, lines ...string) {
	fmt.Fprintf(&t.page, "\n%s\n", strings.Join(append([]string{title}, lines...), "\n  "))
}

func (t *Ticket) line(name, value, why string) {
	text := safetext.Clean(value, 100)
	if value == "" || why != "" {
		text = "unknown: " + safetext.Clean(cmp.Or(why, "not reported"), 200)
	}
	fmt.Fprintf(&t.page, "  %-21s %s\n", name+":", text)
}

// facts adds what the driver reported about the GPU.
func (t *Ticket) facts(codes ...gpu.FactCode) {
	for _, c := range codes {
		f, why := gpu.Fact{}, t.Glance.Problem
		for _, fault := range t.Glance.Snapshot.Faults {
			if fault.Concerns(t.Device) {
				why = fault.Detail
			}
		}
		for _, h := range t.Glance.Health {
			if known, ok := h.Fact(c); ok && h.Device == t.Device.ID {
				f, why = known, known.Unknown
			}
		}
		t.line(string(c), f.Value, why)
	}
}

const ticketNext = `
Next to this page
  records.txt has what ends of jobs found of the GPU's condition, nvidia-smi.txt what nvidia-smi -q prints.

Before the ticket is sent
  Read all of these files. NVIDIA and most vendors of systems also ask for nvidia-bug-report.sh, run as root right after
  a fault, which names users and their programs; for the result of the field diagnostics, which the system's vendor has,
  or of bookend diagnose --level 3; and whether the fault follows the GPU to another slot, with power, cooling, firmware
  and driver as they recommend.
`

func (t *Ticket) summarize(tried []string) {
	d, p := t.Device, t.Paths
	fmt.Fprintf(&t.page, "Fault report of a GPU, made by bookend at %s\n", utc(t.Made))
	t.head("GPU")
	t.line("product", d.Name, "")
	t.line("UUID", string(d.ID), "")
	t.line("PCI bus id", string(d.BusID), "")
	t.facts(gpu.Serial, gpu.PartNumber, gpu.VBIOS, gpu.InfoROM)
	t.head("System")
	t.line("node", t.Node, "")
	for _, f := range [][2]string{{"vendor", "sys_vendor"}, {"product", "product_name"},
		{"serial number", "product_serial"}, {"BIOS", "bios_version"}} {
		t.line(f[0], firstLine(filepath.Join(p.Sys, "class/dmi/id", f[1]), ""), "")
	}
	t.line("operating system", firstLine(filepath.Join("/", "usr/lib/os-release"), "PRETTY_NAME="), "")
	t.line("kernel", firstLine(filepath.Join(p.Proc, "sys/kernel/osrelease"), ""), "")
	t.line("driver", cmp.Or(t.Glance.Snapshot.Driver.Version, node.ReadEpoch(p).Driver), "")
	var faults []string
	for _, one := range t.Faults {
		faults = append(faults, fmt.Sprintf("%s  %s, found by a hook of job %d", utc(one.At), one.Words(), one.Job))
	}
	t.head("Faults on record, none that a program can cause and none in doubt", faults...)
	t.head("Condition and counters now")
	t.facts(gpu.ECCUncorrected, gpu.ECCEver, gpu.CorrectedEver, gpu.RemapRows, gpu.RemapCorrected, gpu.RemapPending,
		gpu.RemapFailed, gpu.RetiredPending, gpu.RecoveryAction)
	ask := nodefiles.Request{Dev: p.Dev, Proc: p.Proc, Sys: p.Sys, Since: &gpu.KernelMark{}}
	log, err := nodefiles.ReadKernel.Ask(ask, 5*time.Second)
	if err != nil {
		log.Unknown = err.Error()
	}
	t.head("In the kernel log now", append(t.logged(&log), string(safetext.Clean(log.Unknown, 200)))...)
	for _, d := range t.Diagnoses {
		for i, line := range d.Lines() {
			if i == 0 || strings.Contains(line, string(t.Device.ID)) {
				tried = append(tried, utc(d.At)+"  "+line)
			}
		}
	}
	t.head("What was tried", append(tried, "Bookend's last action: "+cmp.Or(t.Drain, "none on record"))...)
	t.page.WriteString(ticketNext)
}

func utc(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05 UTC") }

func firstLine(path, key string) string {
	// Threat: none: users can write none of these files; firmware may have any text in them.
	data, _ := safefile.ReadGiven(path, 64<<10)
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(line, key); ok {
			return strings.Trim(value, "\"\n ")
		}
	}
	return ""
}

// history returns what ends of jobs found of the GPU's condition, its drains, and when the driver was loaded or the
// node booted, oldest first. What findings observed is left out: it may quote names that a job chose.
func (t *Ticket) history() (found, tried []string) {
	var last gpu.Epoch
	for _, r := range slices.Backward(t.Runs) {
		for _, e := range r.AllEnds() {
			at, epoch := utc(e.Wall), r.EpochOf(*e)
			if epoch.Changed(last) {
				tried = append(tried, at+"  the node was booted, or the driver loaded again, before this time")
			}
			last = epoch.Or(last)
			of := func(f record.Finding) bool { return f.Code == e.Verdict.Code && f.GPU == t.Device.ID }
			if e.Verdict.Exit != 0 && slices.ContainsFunc(e.Findings, of) {
				tried = append(tried, fmt.Sprintf("%s  drained for %s, job %d", at, e.Verdict.Code, r.Job.ID))
			}
			if lines := append(t.findings(e.Findings), t.logged(e.Kernel)...); len(lines) > 0 {
				head := fmt.Sprintf("%s  job %d, driver %s", at, r.Job.ID, safetext.Clean(epoch.Driver, 60))
				found = append(append(append(found, head), lines...), t.measured(e.Health)...)
			}
		}
	}
	return found, tried
}

func (t *Ticket) findings(found []record.Finding) (lines []string) {
	for _, f := range found {
		traits := f.Code.Traits()
		if f.GPU != t.Device.ID || traits.Memory != "" || !traits.Condition && traits.Fault == "" {
			continue
		}
		line := "  " + string(f.Code)
		if f.Xid != 0 {
			line += " " + gpu.Error(f.Xid)
		}
		if f.Unknown != "" || len(f.Doubts) > 0 {
			line += " (uncertain)"
		}
		lines = append(lines, line)
	}
	return lines
}

func (t *Ticket) measured(health []gpu.Health) (lines []string) {
	for _, h := range health {
		for _, f := range h.Facts {
			if h.Device == t.Device.ID && f.Unknown == "" {
				lines = append(lines, fmt.Sprintf("  %s=%s", f.Code, safetext.Clean(f.Value, 100)))
			}
		}
	}
	return lines
}

// logged returns the kernel log's lines about the GPU. A process chooses its name, which may look like the rest of the
// line: after one, that is left out. In AMD's lines it may be anywhere.
func (t *Ticket) logged(log *gpu.KernelLog) (lines []string) {
	if log == nil {
		return nil
	}
	for _, x := range log.Xids {
		text := "text left out, which may name a process"
		if t.isNVIDIA() && (x.Name == "" || x.Name == "<unknown>") {
			text = string(safetext.Clean(x.Text, 300))
		}
		if x.BusID == t.Device.BusID {
			lines = append(lines, fmt.Sprintf("  [%.6f] %s: %s", x.At.Seconds(), gpu.Error(x.Code), text))
		}
	}
	return lines
}

func (t *Ticket) isNVIDIA() bool { return gpu.VendorOf(t.Device).Name == gpu.NVIDIA.Name }

// nvidiaSMI returns what nvidia-smi prints about the GPU before it names processes, or why there is nothing.
func (t *Ticket) nvidiaSMI() string {
	path := filepath.Join(t.Programs, "nvidia-smi")
	// Threat: root runs it: like a backend, it must be where no other user could have put it.
	err := safefile.Trusted(path)
	switch {
	case !t.isNVIDIA():
		return "nvidia-smi was not started: the GPU is not NVIDIA's\n"
	case t.Glance.Problem != "":
		return "nvidia-smi was not started, because the driver did not answer\n"
	case err != nil:
		return fmt.Sprintf("nvidia-smi was not started: %v\n", err)
	}
	r := child.Run(child.Spec{Path: path, Args: []string{"-q", "-i", string(t.Device.BusID)}, MaxOutput: 1 << 20,
		Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, Timeout: 20 * time.Second})
	processes := regexp.MustCompile(`(?is)(^|\n)\s*(\w+ )?process.*`)
	return fmt.Sprintf("%s\nnvidia-smi %s after %v, exit code %d\n", processes.ReplaceAllString(string(r.Stdout), ""),
		r.Outcome, r.Took.Round(time.Millisecond), r.ExitCode)
}
