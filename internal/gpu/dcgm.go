package gpu

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Diagnosis is the result of DCGM's tests of a node (dcgmi diag).
type Diagnosis struct {
	At      time.Time   `json:"at"`
	Level   int         `json:"level"`
	Version string      `json:"version,omitempty"`
	Unknown string      `json:"unknown,omitempty"` // why there is no result
	Passed  int         `json:"passed"`            // tests of a GPU
	Tested  int         `json:"tested"`            // GPUs, by more than what is to be seen without a test
	Failed  []DiagFault `json:"failed,omitempty"`
}

// DiagFault is a test that did not pass.
type DiagFault struct {
	Test     string `json:"test"`
	Of       string `json:"of,omitempty"` // what was tested, in DCGM's words
	Hardware bool   `json:"hardware,omitempty"`
	GPU      ID     `json:"gpu,omitempty"` // only if it certainly is this one's hardware
	Why      string `json:"why"`
}

// Faults are those of the hardware, none if the result is not known.
func (d Diagnosis) Faults() []DiagFault {
	if d.Unknown != "" {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(d.Failed), func(f DiagFault) bool { return !f.Hardware })
}

// Lines describe the result for an admin.
func (d Diagnosis) Lines() []string {
	head := fmt.Sprintf("dcgmi diag -r %d (DCGM %s): %d passed, %d did not", d.Level, d.Version, d.Passed,
		len(d.Failed))
	if d.Unknown != "" {
		head = fmt.Sprintf("dcgmi diag -r %d: no result: %s", d.Level, d.Unknown)
	}
	lines := []string{head}
	for _, f := range d.Failed {
		lines = append(lines, "  "+f.Summary())
	}
	return lines
}

func (f DiagFault) Summary() string {
	of := "not certainly hardware"
	switch {
	case f.GPU != "":
		of = "hardware of " + string(f.GPU)
	case f.Hardware:
		of = "hardware, not certainly of one GPU"
	}
	return strings.ReplaceAll(fmt.Sprintf("%s (%s): %s: %s", of, f.Of, f.Test, f.Why), " ()", "")
}

// diagDocument is what dcgmi 2.1 to 4.6 print; each release leaves out some of it.
type diagDocument struct {
	Version  string                   `json:"version"`
	Old      *diagBody                `json:"DCGM GPU Diagnostic"`
	New      *diagBody                `json:"DCGM Diagnostic"`
	Metadata struct{ Version string } `json:"metadata"`
}

type diagBody struct {
	Version    string `json:"version"`
	Error      string `json:"runtime_error"`
	Categories []struct {
		Category string `json:"category"`
		Tests    []struct {
			Name    string       `json:"name"`
			Results []diagResult `json:"results"` // empty ones for what was not run
			Summary diagResult   `json:"test_summary"`
		} `json:"tests"`
	} `json:"test_categories"`
}

type diagResult struct {
	Status   string          `json:"status"`
	ID       json.RawMessage `json:"gpu_id"`  // 3.3: a string; in "Deployment" a number, that of any GPU with an error
	IDs      string          `json:"gpu_ids"` // before 3.3
	Group    string          `json:"entity_group"`
	Entity   *int            `json:"entity_id"` // since 4.0
	Warnings json.RawMessage `json:"warnings"`  // before 3.3 a text, of which DCGM says no kind
}

// diagWarning has the message in either key.
type diagWarning struct {
	Warning  string `json:"warning"`
	Warnings string `json:"warnings"`
	Category int    `json:"error_category"`
	Severity int    `json:"error_severity"`
}

// ReadDiagnosis reads what dcgmi diag -j printed. ids has the GPUs by DCGM's own numbers, as DCGMIDs returns them.
func ReadDiagnosis(text string, ids map[int]ID) (d Diagnosis) {
	doc := diagDocument{}
	err := json.Unmarshal([]byte(text), &doc)
	body := cmp.Or(doc.New, doc.Old)
	switch {
	case err != nil || body == nil:
		d.Unknown = fmt.Sprintf("dcgmi printed no diagnosis that is known: %.200q", strings.TrimSpace(text))
		return d
	case body.Error != "":
		d.Unknown = "dcgmi: " + clipped(body.Error)
	}
	for _, version := range []string{doc.Metadata.Version, doc.Version, body.Version} {
		if version != "" {
			d.Version = clipped(version)
		}
	}
	tested := map[int]bool{}
	for _, c := range body.Categories {
		for _, t := range c.Tests {
			for _, r := range t.Results {
				number, is := r.gpu()
				ran := slices.Contains([]string{"pass", "fail", "warn"}, strings.ToLower(r.Status))
				tested[number] = tested[number] || is && ran && c.Category != "Deployment"
			}
			failed := len(d.Failed)
			d.add(t.Name, t.Results, ids)
			if len(d.Failed) == failed { // an error may be of no GPU
				d.add(t.Name, []diagResult{t.Summary}, nil)
			}
		}
	}
	maps.DeleteFunc(tested, func(_ int, is bool) bool { return !is })
	d.Tested = len(tested)
	if d.Unknown == "" && d.Passed == 0 && len(d.Failed) == 0 {
		d.Unknown = "dcgmi made no test of a GPU"
	}
	return d
}

const mostFaults = 64 // kept of a diagnosis

func clipped(text string) string { return fmt.Sprintf("%.400s", text) }

// add adds a test's results. What several GPUs fail may have a cause that they share: it speaks against none.
func (d *Diagnosis) add(test string, results []diagResult, ids map[int]ID) {
	var failed []DiagFault
	for _, r := range results {
		_, is := r.gpu()
		switch status := strings.ToLower(r.Status); {
		case status == "pass" && is:
			d.Passed++
		case slices.Contains([]string{"", "pass", "skip", "not run"}, status):
		default:
			failed = append(failed, r.fault(test, ids))
		}
	}
	if len(failed) > 1 {
		for i := range failed {
			failed[i].GPU = ""
		}
	}
	d.Failed = append(d.Failed, failed...)
	d.Failed = d.Failed[:min(len(d.Failed), mostFaults)]
}

func (r diagResult) fault(test string, ids map[int]ID) DiagFault {
	f, failed := DiagFault{Test: clipped(test), Of: r.of(), Why: r.Status}, strings.EqualFold(r.Status, "fail")
	number, is := r.gpu()
	for _, w := range r.warnings() {
		f.Why += "; " + w.text()
		f.Hardware = f.Hardware || failed && w.isOfHardware()
		if failed && w.isOfHardware() && is && w.isAbout(number) {
			f.GPU = ids[number]
		}
	}
	f.Why = clipped(f.Why)
	return f
}

// gpu returns DCGM's number of the one GPU that a result is certainly about.
func (r diagResult) gpu() (number int, is bool) {
	if r.Entity != nil {
		return *r.Entity, r.Group == "GPU"
	}
	id := r.IDs
	if len(r.ID) > 0 && json.Unmarshal(r.ID, &id) != nil {
		return 0, false
	}
	number, err := strconv.Atoi(id)
	return number, err == nil
}

func (r diagResult) of() string {
	number, is := r.gpu()
	switch {
	case is:
		return fmt.Sprintf("DCGM's GPU %d", number)
	case r.Entity != nil:
		return fmt.Sprintf("%.20s %d", r.Group, *r.Entity)
	}
	return ""
}

func (r diagResult) warnings() (all []diagWarning) {
	one := ""
	if json.Unmarshal(r.Warnings, &one) == nil && one != "" {
		return []diagWarning{{Warning: one}}
	}
	_ = json.Unmarshal(r.Warnings, &all) // what is of another form has no kind
	return all
}

func (w diagWarning) text() string { return strings.TrimSpace(w.Warning + " " + w.Warnings) }

// isOfHardware reports whether DCGM says that the GPU must not be used: to isolate it, or to drain and reset it, for a
// fault of the category memory, NVLink, PCIe, power, other hardware, or heat. It says so of NCCL too, which fails as
// well for a small /dev/shm or a library, and of copies between GPUs, which an IOMMU can garble.
func (w diagWarning) isOfHardware() bool {
	const thermal, nvSwitch, lastOfHardware, isolate, reset = 9, 12, 15, 2, 6
	return (w.Severity == isolate || w.Severity == reset) &&
		w.Category >= thermal && w.Category <= lastOfHardware && w.Category != nvSwitch &&
		!strings.Contains(w.text(), "NCCL") && !strings.Contains(w.text(), "peer-to-peer")
}

// isAbout reports whether the message names no other GPU.
func (w diagWarning) isAbout(number int) bool {
	named := regexp.MustCompile(`(?i)\bgpus?\s*#?(\d+)`).FindAllStringSubmatch(w.text(), -1)
	return !slices.ContainsFunc(named, func(m []string) bool { return m[1] != strconv.Itoa(number) })
}

// DCGMIDs reads dcgmi discovery -l: the driver's GPUs by DCGM's numbers. What is there twice is left out.
func DCGMIDs(text string, now Snapshot) map[int]ID {
	ids, twice, number := map[int]ID{}, map[ID]int{}, -1
	for line := range strings.Lines(text) {
		cells := strings.Split(line, "|")
		if strings.HasPrefix(line, "+") || len(cells) < 4 {
			number = -1
			continue
		}
		if n, err := strconv.Atoi(strings.TrimSpace(cells[1])); err == nil {
			number = n
		}
		if uuid, is := strings.CutPrefix(strings.TrimSpace(cells[2]), "Device UUID: "); is && number >= 0 {
			id := ID(strings.TrimSpace(uuid))
			if ids[number] != "" {
				id = "" // twice
			}
			ids[number] = id
			twice[id]++
		}
	}
	maps.DeleteFunc(ids, func(_ int, id ID) bool {
		is := func(r Reading) bool { return r.Device.ID == id }
		return id == "" || twice[id] > 1 || !slices.ContainsFunc(now.Readings, is)
	})
	return ids
}
