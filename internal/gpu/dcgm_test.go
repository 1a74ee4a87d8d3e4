package gpu_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	"bookend/internal/gpu"
	"bookend/test/must"
)

// What dcgmi diag -j prints, as its source writes it (dcgmi/Diag.cpp): 2.4.7 to 3.2.6, 3.3.9, and 4.0 to 4.6. The results
// of a GPU that did not run a test are null. In 3.3's Deployment gpu_id is the last GPU with an error, and a message has
// the key of its list.
const (
	diag24 = `{"DCGM GPU Diagnostic": {"test_categories": [
{"category": "Deployment", "tests": [
 {"name": "Denylist", "results": [{"status": "Pass"}]},
 {"name": "Persistence Mode", "results": [{"status": "Fail", "warnings": "Persistence mode for GPU 0 is disabled. Enable persistence mode by running \"nvidia-smi -i <gpuId> -pm 1 \" as root."}]}]},
{"category": "Hardware", "tests": [
 {"name": "GPU Memory", "results": [{"gpu_ids": "0", "status": "Pass"}, null,
  {"gpu_ids": "2", "status": "Fail", "warnings": "A memory mismatch was detected on GPU 2, but no error was reported by CUDA or NVML."}]}]}]}}`
	diag33 = `{"DCGM GPU Diagnostic": {"test_categories": [
{"category": "Deployment", "tests": [
 {"name": "Page Retirement/Row Remap", "results": [{"gpu_id": 2, "status": "Fail", "warnings": [
  {"error_category": 10, "error_id": 83, "error_severity": 6, "warnings": "GPU 1 had memory errors and row remappings are pending"},
  {"error_category": 10, "error_id": 83, "error_severity": 6, "warnings": "GPU 2 had memory errors and row remappings are pending"}]}]}]},
{"category": "Integration", "tests": [{"name": "PCIe", "results": [{"gpu_id": "0", "status": "Skip"}, {"gpu_id": "2", "status": "Pass"}]}]},
{"category": "Stress", "tests": [{"name": "Targeted Power", "results": [{"gpu_id": "0", "status": "Fail", "warnings": [
  {"error_category": 14, "error_id": 65, "error_severity": 4, "warning": "Max power of 400.0 did not reach desired power minimum target_power_min_ratio of 450.0 for GPU 0"}]},
 {"gpu_id": "2", "status": "Pass"}]}]},
{"category": "Hardware", "tests": [
 {"name": "GPU Memory", "results": [{"gpu_id": "0", "status": "Pass"}, null, {"gpu_id": "2", "status": "%s", "warnings": [
  {"error_category": %d, "error_id": 52, "error_severity": %d, "warning": "%s"}]}]}]}]},
"Driver Version Detected": "550.90.07", "GPU Device IDs": ["2330", "2330"], "GPU Device Serials": {"0": "1650522003816", "2": "1650522003817"}, "version": "3.3.9"}`
	diag46 = `{"DCGM Diagnostic": {"test_categories": [
{"category": "Deployment", "tests": [{"name": "software", "results": [
  {"entity_group": "GPU", "entity_group_id": 1, "entity_id": 0, "status": "Fail", "warnings": [
   {"error_category": 8, "error_id": 29, "error_severity": 5, "warning": "Persistence mode for GPU 0 is disabled. Enable persistence mode by running \"nvidia-smi -i <gpuId> -pm 1 \" as root."}]},
  {"entity_group": "GPU", "entity_group_id": 1, "entity_id": 2, "status": "Pass"}],
  "test_summary": {"status": "Fail"}}]},
{"category": "Hardware", "tests": [{"name": "memory", "results": [
  {"entity_group": "GPU", "entity_group_id": 1, "entity_id": %d, "status": "Pass"},
  {"entity_group": "%s", "entity_group_id": 1, "entity_id": 2, "status": "%s", "warnings": [
   {"error_category": %d, "error_id": 52, "error_severity": %d, "warning": "Found 3 faulty memory elements on GPU %d"}]}],
  "test_summary": {"status": "%s", "warnings": [{"error_category": 10, "error_id": 52, "error_severity": 2, "warning": "Found 3 faulty memory elements on GPU 2"}]}},
 {"name": "cpu_eud", "test_summary": {"status": "%s"}}]}]},
"entity_groups": [{"entities": [{"device_id": "2330", "entity_id": 0, "serial_num": "1650522003816"}], "entity_group": "GPU", "entity_group_id": 1}],
"metadata": {"Driver Version Detected": "580.95.05", "version": "4.6.0"}}`
	mismatch = "A memory mismatch was detected on GPU 2, but no error was reported by CUDA or NVML."
)

var diagIDs = map[int]gpu.ID{0: "GPU-a", 2: "GPU-c"}

// A test that failed is about hardware only if DCGM itself says so, and that the GPU is to be isolated or reset. It is about
// a GPU only if nothing names another; "?" is hardware of a GPU that is not known. In 3.3's Deployment it never is.
func TestReadDiagnosis(t *testing.T) {
	of33 := func(status string, category, severity int, text string) string {
		return fmt.Sprintf(diag33, status, category, severity, text)
	}
	of46 := func(first int, group, status string, category, severity, named int, eud string) string {
		return fmt.Sprintf(diag46, first, group, status, category, severity, named, status, eud)
	}
	for name, tt := range map[string]struct {
		text, faults string // the GPUs with faulty hardware
		passed, not  int
		version      string
		unknown      string
	}{
		"2.4, whose texts have no kind":     {text: diag24, passed: 1, not: 2},
		"3.3, hardware":                     {of33("Fail", 10, 2, mismatch), "?GPU-c", 3, 3, "3.3.9", ""},
		"3.3, all else passed":              {of33("Pass", 0, 0, ""), "?", 4, 2, "3.3.9", ""},
		"3.3, to be reset":                  {of33("Fail", 15, 6, mismatch), "?GPU-c", 3, 3, "3.3.9", ""},
		"3.3, to be watched":                {of33("Fail", 10, 1, mismatch), "?", 3, 3, "3.3.9", ""},
		"3.3, to be looked into":            {of33("Fail", 10, 4, mismatch), "?", 3, 3, "3.3.9", ""},
		"3.3, software":                     {of33("Fail", 8, 2, mismatch), "?", 3, 3, "3.3.9", ""},
		"3.3, NVSwitch":                     {of33("Fail", 12, 2, mismatch), "?", 3, 3, "3.3.9", ""},
		"3.3, internal":                     {of33("Fail", 16, 2, mismatch), "?", 3, 3, "3.3.9", ""},
		"3.3, the message names another":    {of33("Fail", 11, 2, "GPU 2 has errors on its link to GPU 0"), "??", 3, 3, "3.3.9", ""},
		"3.3, copies between GPUs":          {of33("Fail", 13, 2, "GPU 2 was unsuccessfully written to by GPU 0 over PCIe in a peer-to-peer test: x"), "?", 3, 3, "3.3.9", ""},
		"3.3, NCCL":                         {of33("Fail", 15, 6, "Detected NCCL error: nccl_tests exited with code 3 Recovery action: 4 (DRAIN_AND_RESET)."), "?", 3, 3, "3.3.9", ""},
		"3.3, a warning":                    {of33("Warn", 10, 2, mismatch), "?", 3, 3, "3.3.9", ""},
		"4.6, persistence mode and memory":  {of46(0, "GPU", "Fail", 10, 2, 2, "Skip"), "GPU-c", 2, 2, "4.6.0", ""},
		"4.6, only persistence mode":        {of46(0, "GPU", "Pass", 0, 0, 2, "Pass"), "", 3, 1, "4.6.0", ""},
		"4.6, not a GPU":                    {of46(0, "Switch", "Fail", 10, 2, 2, "Skip"), "?", 2, 2, "4.6.0", ""},
		"4.6, the message names another":    {of46(0, "GPU", "Fail", 10, 2, 0, "Skip"), "?", 2, 2, "4.6.0", ""},
		"4.6, no GPU's test failed as well": {of46(0, "GPU", "Fail", 10, 2, 2, "Fail"), "GPU-c", 2, 3, "4.6.0", ""},
		"4.6, an unknown status":            {of46(0, "GPU", "Odd", 10, 2, 2, "Skip"), "", 2, 2, "4.6.0", ""},
		"4.6, two GPUs alike": {strings.Replace(of46(0, "GPU", "Fail", 10, 2, 2, "Skip"), `"entity_id": 0, "status": "Pass"`,
			`"entity_id": 0, "status": "Fail", "warnings": [{"error_category": 10, "error_severity": 2, "warning": "x"}]`, 1), "??", 1, 3, "4.6.0", ""},
		"4.6, only the sum of a test failed": {strings.Replace(of46(0, "GPU", "Pass", 0, 0, 2, "Skip"), `"test_summary": {"status": "Pass"`, `"test_summary": {"status": "Fail"`, 1),
			"?", 3, 2, "4.6.0", ""},
		"4.6, an error": {`{"DCGM Diagnostic": {"runtime_error": "Error: Diagnostic could not be run while DCGM is paused.", "version": "4.6.0"}}`,
			"", 0, 0, "4.6.0", "dcgmi: Error: Diagnostic could not be run while DCGM is paused."},
		"no test":          {`{"DCGM Diagnostic": {}}`, "", 0, 0, "", "dcgmi made no test of a GPU"},
		"nothing":          {"", "", 0, 0, "", "dcgmi printed no diagnosis"},
		"another document": {`{"status": "Pass"}`, "", 0, 0, "", `{\"status`},
		"cut off":          {diag24[:400], "", 0, 0, "", "dcgmi printed no diagnosis"},
		"two documents":    {diag24 + diag24, "", 0, 0, "", "dcgmi printed no diagnosis"},
		"no host engine":   {"Error: unable to establish a connection to the specified host: localhost", "", 0, 0, "", "unable to establish"},
		"very many":        {`{"DCGM Diagnostic": {"test_categories": [{"tests": [{"results": [` + strings.Repeat(`{"status":"Fail"},`, 5000) + `null]}]}]}}`, "", 0, 64, "", ""},
		"empty ones":       {`{"DCGM Diagnostic": {"test_categories": [null, {"tests": [null, {"results": [` + strings.Repeat("null,", 1e5) + `null]}]}]}}`, "", 0, 0, "", "no test"},
	} {
		t.Run(name, func(t *testing.T) {
			d := gpu.ReadDiagnosis(tt.text, diagIDs)
			faults := ""
			for _, f := range d.Faults() {
				faults += cmp.Or(string(f.GPU), "?")
			}
			got := fmt.Sprintln(faults, d.Passed, len(d.Failed), d.Version)
			must.Be(t, strings.Join(d.Lines(), "\n"), got, fmt.Sprintln(tt.faults, tt.passed, tt.not, tt.version))
			must.Not(t, !strings.Contains(d.Unknown, tt.unknown) || (tt.unknown == "") != (d.Unknown == ""), "unknown %q", d.Unknown)
		})
	}
	for text, want := range map[string]int{
		diag24: 2, of33("Fail", 0, 0, ""): 2, of46(0, "GPU", "Pass", 0, 0, 2, ""): 2, of46(0, "GPU", "Skip", 0, 0, 2, ""): 1,
		strings.ReplaceAll(of46(0, "GPU", "Pass", 0, 0, 2, ""), "Hardware", "Deployment"): 0,
	} {
		must.Be(t, text, gpu.ReadDiagnosis(text, nil).Tested, want)
	}
	must.Be(t, "not known by UUID", gpu.ReadDiagnosis(of46(0, "GPU", "Fail", 10, 2, 2, "Skip"), nil).Faults()[0].GPU, "")
	lines := strings.Join(gpu.ReadDiagnosis(of46(0, "GPU", "Fail", 10, 2, 2, "Skip"), diagIDs).Lines(), "\n")
	must.Be(t, "lines", lines, `dcgmi diag -r 0 (DCGM 4.6.0): 2 passed, 2 did not
  not certainly hardware (DCGM's GPU 0): software: Fail; Persistence mode for GPU 0 is disabled. Enable persistence mode by running "nvidia-smi -i <gpuId> -pm 1 " as root.
  hardware of GPU-c (DCGM's GPU 2): memory: Fail; Found 3 faulty memory elements on GPU 2`)
}

// discovery is what dcgmi discovery -l prints (dcgmi/Query.cpp and DcgmiOutput.cpp).
const discovery = `2 GPUs found.
+--------+----------------------------------------------------------------------+
| GPU ID | Device Information                                                   |
+--------+----------------------------------------------------------------------+
| 0      | Name: NVIDIA H200                                                    |
|        | PCI Bus ID: 00000000:18:00.0                                         |
|        | Device UUID: GPU-a                                                   |
+--------+----------------------------------------------------------------------+
| 2      | Name: NVIDIA H200                                                    |
|        | PCI Bus ID: 00000000:2A:00.0                                         |
|        | Device UUID: GPU-c                                                   |
+--------+----------------------------------------------------------------------+
4 NvSwitches found.
+-----------+
| Switch ID |
+-----------+
| 1         |
+-----------+
`

// DCGM's numbers are not the driver's: a GPU is known by its UUID, or not at all.
func TestDCGMIDs(t *testing.T) {
	now := gpu.Snapshot{Readings: []gpu.Reading{{Device: gpu.Device{ID: "GPU-a"}}, {Device: gpu.Device{ID: "GPU-c"}}}}
	for name, tt := range map[string]struct{ text, want string }{
		"whole":                  {discovery, "map[0:GPU-a 2:GPU-c]"},
		"nothing":                {"Error: Unable to connect to host engine.", "map[]"},
		"a UUID twice":           {strings.Replace(discovery, "GPU-c", "GPU-a", 1), "map[]"},
		"a number twice":         {strings.Replace(discovery, "| 2 ", "| 0 ", 1), "map[]"},
		"another GPU":            {strings.Replace(discovery, "GPU-c", "GPU-d", 1), "map[0:GPU-a]"},
		"one that does not tell": {strings.Replace(discovery, "Device UUID: GPU-c", "Return: error", 1), "map[0:GPU-a]"},
		"no number":              {strings.Replace(discovery, "| 2 ", "|   ", 1), "map[0:GPU-a]"},
	} {
		must.Be(t, name, fmt.Sprint(gpu.DCGMIDs(tt.text, now)), tt.want)
	}
}

// No text of dcgmi's makes the reader fail, name a GPU that it was not given, or keep much.
func FuzzReadDiagnosis(f *testing.F) {
	for _, text := range []string{diag24, fmt.Sprintf(diag33, "Fail", 10, 2, mismatch), fmt.Sprintf(diag46, 0, "GPU", "Fail", 10, 2, 2, "Fail", "Skip"), discovery} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d := gpu.ReadDiagnosis(text, diagIDs)
		for _, fault := range d.Faults() {
			must.Not(t, fault.GPU != "" && fault.GPU != "GPU-a" && fault.GPU != "GPU-c", "blames %q", fault.GPU)
		}
		must.Not(t, len(d.Failed) > 64 || d.Unknown == "" && d.Passed == 0 && len(d.Failed) == 0, "got %+v", d)
		gpu.DCGMIDs(text, gpu.Snapshot{})
	})
}
