package doctor

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
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
	Node, Version string
	Made          time.Time
	Paths         config.Paths
	Card          record.Assigned
	Faults        []record.Strike // that the records prove
	Runs          []record.Run    // of the node, the newest first
	Drain         string          // what Bookend last did about a drain of the node
	Glance        node.Glance     // the driver's answer, with the GPUs' condition
	Programs      string          // the directory of nvidia-smi and nvidia-bug-report.sh
	BugReport     bool            // run nvidia-bug-report.sh

	page    strings.Builder
	files   []attachment
	unknown []string // what could not be read, and why
}

type attachment struct {
	name string
	data []byte
}

// FileName returns a name for the archive: node, GPU and date.
func (t *Ticket) FileName() string {
	id := strings.Map(func(c rune) rune {
		if strings.ContainsRune("/.\\ ", c) {
			return '-'
		}
		return c
	}, cmp.Or(t.fact(gpu.Serial), string(t.Card.Device.ID)))
	return fmt.Sprintf("bookend-rma-%s-%s-%s.tar.gz", t.Node, id, t.Made.Format("20060102-150405"))
}

// Archive returns the ticket's files as a compressed tar archive; summary.txt is to be read first. None of them names a
// user, or a job's program, files or output; nvidia-bug-report.sh collects more, if it was asked for.
func (t *Ticket) Archive() ([]byte, error) {
	ends, err := json.MarshalIndent(t.ends(), "", "  ")
	t.attach("records.json", string(ends)+"\n")
	t.attach("kernel.txt", t.kernel())
	if gpu.VendorOf(t.Card.Device).Name == gpu.NVIDIA.Name {
		t.programs()
	}
	t.summarize()
	var b bytes.Buffer
	packed := gzip.NewWriter(&b)
	out := tar.NewWriter(packed)
	for _, f := range append([]attachment{{"summary.txt", []byte(t.page.String())}}, t.files...) {
		h := tar.Header{Name: f.name, Mode: 0o600, Size: int64(len(f.data)), ModTime: t.Made, Format: tar.FormatPAX}
		if err = cmp.Or(err, out.WriteHeader(&h)); err == nil {
			_, err = out.Write(f.data)
		}
	}
	err = cmp.Or(err, out.Close(), packed.Close())
	return b.Bytes(), err
}

func (t *Ticket) attach(name, text string) { t.files = append(t.files, attachment{name, []byte(text)}) }

func (t *Ticket) cannot(form string, args ...any) {
	t.unknown = append(t.unknown, string(safetext.Keep(fmt.Sprintf(form, args...), 300)))
}

// fact returns what the driver reported about the GPU, empty if it did not.
func (t *Ticket) fact(c gpu.FactCode) string {
	for _, h := range t.Glance.Health {
		if f, ok := h.Fact(c); ok && h.Device == t.Card.Device.ID && f.Unknown == "" {
			return string(safetext.Clean(f.Value, 64))
		}
	}
	return ""
}

// silence returns why the driver did not report more about the GPU.
func (t *Ticket) silence() string {
	for _, f := range t.Glance.Snapshot.Faults {
		if f.Concerns(t.Card.Device) {
			return fmt.Sprintf("%s: %s", f.Code, f.Detail)
		}
	}
	return cmp.Or(t.Glance.Problem, "the driver did not report it")
}

func (t *Ticket) head(title string, lines ...string) {
	fmt.Fprintf(&t.page, "\n%s\n", title)
	for _, line := range lines {
		fmt.Fprintf(&t.page, "  %s\n", safetext.Keep(line, 300))
	}
}

// line adds a fact to the page and, if it is empty, to what is unknown.
func (t *Ticket) line(name, value, why string) {
	if value == "" {
		t.cannot("%s: %s", name, safetext.Clean(why, 200))
	}
	fmt.Fprintf(&t.page, "  %-21s %s\n", name+":", safetext.Keep(cmp.Or(value, "unknown"), 200))
}

// counters are the facts that vendors judge memory by.
var counters = []gpu.FactCode{gpu.ECCUncorrected, gpu.ECCEver, gpu.CorrectedEver, gpu.RemapRows, gpu.RemapCorrected,
	gpu.RemapPending, gpu.RemapFailed, gpu.RetiredPending, gpu.RecoveryAction}

const ticketNext = `
Before the ticket is sent
  Read all of these files. NVIDIA and most vendors of systems also ask for nvidia-bug-report.sh, run as root right after
  a fault (bookend rma --bug-report GPU), which contains names of users and programs; for the result of the field
  diagnostics, which the system's vendor has, or of dcgmi diag -r 3; and whether the fault follows the GPU to another
  slot, with power, cooling, firmware and driver as they recommend.
`

func (t *Ticket) summarize() {
	d, why := t.Card.Device, t.silence()
	by := safetext.Clean(t.Version, 40)
	fmt.Fprintf(&t.page, "Fault report of a GPU, made by bookend %s at %s\n", by, utc(t.Made))
	t.head("GPU")
	t.line("product", string(safetext.Clean(d.Name, 100)), why)
	t.line("UUID", string(safetext.Clean(string(d.ID), 100)), why)
	t.line("PCI bus id", string(d.BusID), why)
	for _, c := range []gpu.FactCode{gpu.Serial, gpu.PartNumber, gpu.VBIOS, gpu.InfoROM} {
		t.line(string(c), t.fact(c), why)
	}
	t.head("System", "node:                 "+t.Node)
	p := t.Paths
	t.line("vendor", firstLine(p.Sys, "class/dmi/id/sys_vendor", ""), "the firmware does not report it")
	t.line("product", firstLine(p.Sys, "class/dmi/id/product_name", ""), "the firmware does not report it")
	t.line("serial number", firstLine(p.Sys, "class/dmi/id/product_serial", ""), "the firmware does not report it")
	t.line("BIOS", firstLine(p.Sys, "class/dmi/id/bios_version", ""), "the firmware does not report it")
	t.line("operating system", firstLine("/", "usr/lib/os-release", "PRETTY_NAME="), "not in /usr/lib/os-release")
	t.line("kernel", firstLine(p.Proc, "sys/kernel/osrelease", ""), "not in /proc")
	driver := cmp.Or(t.Glance.Snapshot.Driver.Version, node.ReadEpoch(p).Driver)
	t.line("driver", string(safetext.Clean(driver, 60)), why)
	var lines []string
	for _, one := range t.Faults {
		finder := "found by the health check"
		if one.Job != 0 {
			finder = fmt.Sprintf("found by a hook of job %d", one.Job)
		}
		lines = append(lines, fmt.Sprintf("%s  %s, %s", utc(one.At), one.Words(), finder))
	}
	t.head("Faults on record, none that a program can cause and none in doubt", lines...)
	t.head("Condition and counters now")
	for _, c := range counters {
		t.line(string(c), t.fact(c), why)
	}
	t.head("What was tried", append(t.tried(), "Bookend's last action: "+cmp.Or(t.Drain, "none on record"))...)
	lines = nil
	for _, f := range t.files {
		lines = append(lines, fmt.Sprintf("%s (%d bytes)", f.name, len(f.data)))
	}
	t.head("Files next to this page", lines...)
	t.head("Unknown", t.unknown...)
	t.page.WriteString(ticketNext)
}

func utc(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05 UTC") }

// firstLine returns the rest of a file's first line that begins with key.
func firstLine(root, name, key string) string {
	// Threat: none: users can write none of these files; firmware may have any text in them.
	data, _ := safefile.ReadGiven(filepath.Join(root, name), 64<<10)
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(line, key); ok {
			return string(safetext.Clean(strings.Trim(value, "\"\n "), 100))
		}
	}
	return ""
}

// ticketEnd is what the archive has of an end of a job that says something about the GPU's condition.
type ticketEnd struct {
	Job      uint32     `json:"job"`
	At       time.Time  `json:"at"`
	Epoch    gpu.Epoch  `json:"epoch"`
	Findings []string   `json:"findings"`
	Kernel   []string   `json:"kernel_log,omitempty"`
	Facts    []gpu.Fact `json:"facts,omitempty"`
}

// ends returns those ends, the newest first. What findings observed may quote names that a job chose: it is left out.
func (t *Ticket) ends() []ticketEnd {
	all := []ticketEnd{}
	for _, r := range t.Runs {
		for _, e := range r.AllEnds() {
			one := ticketEnd{Job: uint32(r.Job.ID), At: e.Wall, Epoch: r.EpochOf(*e)}
			for _, f := range e.Findings {
				traits := f.Code.Traits()
				if f.GPU != t.Card.Device.ID || traits.Memory != "" || !traits.Condition && traits.Fault == "" {
					continue
				}
				words := string(f.Code)
				if f.Xid != 0 {
					words += " " + gpu.Error(f.Xid)
				}
				if f.Unknown != "" || len(f.Doubts) > 0 {
					words += " (uncertain)"
				}
				one.Findings = append(one.Findings, words)
			}
			if e.Kernel != nil {
				one.Kernel = t.lines(*e.Kernel)
			}
			for _, h := range e.Health {
				if h.Device == t.Card.Device.ID {
					one.Facts = h.Facts
				}
			}
			if len(one.Findings)+len(one.Kernel) > 0 {
				all = append(all, one)
			}
		}
	}
	return safetext.KeepAll(all, 400)
}

// lines returns the kernel log's lines about the GPU. A process chooses its name, which may look like the rest of the
// line: after one, that is left out. In AMD's lines it may be anywhere.
func (t *Ticket) lines(log gpu.KernelLog) (lines []string) {
	for _, x := range log.Xids {
		text := "text left out, which may name a process"
		if gpu.VendorOf(t.Card.Device).Name == gpu.NVIDIA.Name && (x.Name == "" || x.Name == "<unknown>") {
			text = string(safetext.Clean(x.Text, 300))
		}
		if x.BusID == t.Card.Device.BusID {
			lines = append(lines, fmt.Sprintf("[%.6f] %s %s: %s", x.At.Seconds(), x.BusID, gpu.Error(x.Code), text))
		}
	}
	return lines
}

// kernel returns the lines about the GPU that the kernel's log has now.
func (t *Ticket) kernel() string {
	ask := nodefiles.Request{Dev: t.Paths.Dev, Proc: t.Paths.Proc, Sys: t.Paths.Sys, Since: &gpu.KernelMark{}}
	log, err := nodefiles.ReadKernel.Ask(ask, 5*time.Second)
	if err != nil {
		log.Unknown = err.Error()
	}
	if log.Unknown != "" {
		t.cannot("kernel log: %s", safetext.Clean(log.Unknown, 200))
	}
	return strings.Join(append(t.lines(log), ""), "\n")
}

// tried returns the drains for this GPU, and when the driver was loaded again or the node was booted.
func (t *Ticket) tried() (lines []string) {
	var last gpu.Epoch
	for _, r := range slices.Backward(t.Runs) {
		for _, e := range r.AllEnds() {
			epoch := r.EpochOf(*e)
			if epoch.Changed(last) {
				lines = append(lines, utc(e.Wall)+"  the node was booted, or the driver loaded again, before this time")
			}
			last = epoch.Or(last)
			drained := func(f record.Finding) bool { return f.Code == e.Verdict.Code && f.GPU == t.Card.Device.ID }
			if e.Verdict.Exit != 0 && slices.ContainsFunc(e.Findings, drained) {
				lines = append(lines, fmt.Sprintf("%s  drained for %s, job %d", utc(e.Wall), e.Verdict.Code, r.Job.ID))
			}
		}
	}
	return lines
}

// programs attaches what NVIDIA's own programs print. They ask the driver: none is started if that did not answer.
func (t *Ticket) programs() {
	if t.Glance.Problem != "" {
		t.cannot("nvidia-smi and nvidia-bug-report.sh: not started, because the driver did not answer")
		return
	}
	out := t.run(20*time.Second, "nvidia-smi", "-q", "-i", string(t.Card.Device.BusID))
	t.attach("nvidia-smi.txt", withoutProcesses(out))
	if !t.BugReport {
		return
	}
	const name = "nvidia-bug-report.log"
	dir, err := os.MkdirTemp("", "bookend-rma-") // Threat: none: its mode is 0700, and its name cannot be guessed
	if err == nil {
		defer os.RemoveAll(dir)
		t.run(5*time.Minute, "nvidia-bug-report.sh", "--output-file", filepath.Join(dir, name))
		var data []byte
		data, err = safefile.ReadGiven(filepath.Join(dir, name+".gz"), 256<<20)
		t.attach(name+".gz", string(data))
	}
	if err != nil {
		t.cannot("nvidia-bug-report.sh: %v", err)
	}
}

// run runs one of NVIDIA's programs and returns what it prints.
func (t *Ticket) run(limit time.Duration, name string, args ...string) string {
	path := filepath.Join(t.Programs, name)
	// Threat: root runs it: like a backend, it must be where no other user could have put it.
	if err := safefile.Trusted(path); err != nil {
		t.cannot("%s: not started: %v", name, err)
		return ""
	}
	r := child.Run(child.Spec{Path: path, Args: args, Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"},
		MaxOutput: 1 << 20, Timeout: limit})
	if r.Outcome != child.Exited || r.ExitCode != 0 {
		t.cannot("%s: %s after %v, exit code %d", name, r.Outcome, r.Took.Round(time.Millisecond), r.ExitCode)
	}
	return string(r.Stdout)
}

// withoutProcesses leaves out the sections about processes, which have their names and paths, and makes the rest safe.
func withoutProcesses(text string) string {
	var b strings.Builder
	section := -1 // indent of the section that is left out
	for line := range strings.Lines(text) {
		indent := len(line) - len(strings.TrimLeft(line, " \t"))
		if section >= 0 && (strings.TrimSpace(line) == "" || indent > section) {
			continue
		}
		section = -1
		if strings.Contains(strings.ToLower(line), "process") {
			section = indent
			continue
		}
		fmt.Fprintln(&b, safetext.Keep(strings.TrimRight(line, "\r\n"), 400))
	}
	return b.String()
}
