package faults

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"bookend/internal/gpu"
	"bookend/internal/state"
	"bookend/test/must"
)

// fakeDCGMI stands for dcgmi, whose number of the first GPU is 3: "diag" has what diag prints, "discovery" what discovery does.
const fakeDCGMI = `echo "dcgmi $*" >>DIR/dcgmi-ran
case $1:$(cat DIR/how) in
diag:undrains) echo IDLE >DIR/node;;
diag:renumbers) echo "1 GPU found." >DIR/discovery;;
diag:taken) echo "broken [alice@2026-11-21T07:00:00]" >DIR/reason;;
discovery:unconnected) echo "Error: Unable to connect to host engine."; exit 255;;
esac
case $1 in
discovery) cat DIR/discovery;;
diag) cat DIR/diag; exit 226;;
esac`

// diagnosis is what dcgmi 4.6 prints of one test of DCGM's GPU 3, and of another GPU that passed.
func diagnosis(status string, category, severity int) string {
	return fmt.Sprintf(`{"DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": [{"name": "memory", "results": [
{"entity_group": "GPU", "entity_group_id": 1, "entity_id": 3, "status": %q, "warnings": [
{"error_category": %d, "error_id": 52, "error_severity": %d, "warning": "Found 3 faulty memory elements on GPU 3"}]},
{"entity_group": "GPU", "entity_group_id": 1, "entity_id": 4, "status": "Pass"}],
"test_summary": {"status": %[1]q}}]}]}, "metadata": {"version": "4.6.0"}}`, status, category, severity)
}

// toDiagnose is the node that Bookend drained for what is on its first GPU.
func toDiagnose(t *testing.T) *node {
	t.Helper()
	n := toRepair(t)
	n.repairing(false, ", resume: {enabled: true, after: 1}")
	n.script("dcgmi", strings.ReplaceAll(fakeDCGMI, "DIR", n.dir))
	n.put("how", "", 0o644)
	n.put("discovery", fmt.Sprintf("+---+\n| 3      | Name: NVIDIA H200   |\n|        | Device UUID: %s |\n+---+\n", n.world.UUID(0)), 0o644)
	n.put("diag", diagnosis("Fail", 10, 2), 0o644)
	return n
}

const (
	diagnosed    = "scontrol update NodeName=n1 State=DRAIN Reason=BKD-DIAG gpu=0 healthcheck; see: bookend status\n"
	diagnosedOne = "scontrol update NodeName=n1 State=DRAIN Reason=BKD-DIAG healthcheck; see: bookend status\n"
)

// What DCGM certainly says of the hardware, while no job was there, becomes the reason of a drain of Bookend's, which then no
// health check ends. A GPU is named only if its number was of the same UUID before and after.
func TestDiagnose(t *testing.T) {
	for name, tt := range map[string]struct {
		how, diag string
		exit      int
		says, ran string
	}{
		"hardware":              {"", diagnosis("Fail", 10, 2), 1, "hardware of GPU-", diagnosed},
		"the drain is taken":    {"taken", diagnosis("Fail", 10, 2), 1, "no drain has it as its reason: the node has \"broken\"", ""},
		"the drain ends":        {"undrains", diagnosis("Fail", 10, 2), 5, "a job may have been on the GPUs meanwhile: jobs may use its GPUs: it is IDLE", ""},
		"other numbers":         {"renumbers", diagnosis("Fail", 10, 2), 1, "hardware, not certainly of one GPU (DCGM's GPU 3)", diagnosedOne},
		"numbers not known":     {"unconnected", diagnosis("Fail", 10, 2), 1, "hardware, not certainly of one GPU (DCGM's GPU 3)", diagnosedOne},
		"configuration":         {"", diagnosis("Fail", 8, 5), 5, "not certainly hardware", ""},
		"only seen, no test":    {"", strings.Replace(diagnosis("Pass", 0, 0), "Hardware", "Deployment", 1), 5, "no result: it tested 0 of 2 GPUs", ""},
		"a GPU unknown to DCGM": {"", strings.Replace(diagnosis("Pass", 0, 0), `"entity_id": 4, "status": "Pass"`, `"entity_id": 4, "status": "Skip"`, 1), 5, "no result: it tested 1 of 2 GPUs", ""},
		"all passed":            {"", diagnosis("Pass", 0, 0), 0, "2 passed, 0 did not", ""},
		"no document":           {"", "Error: Unable to connect to host engine.", 5, "Unable to connect to host engine", ""},
		"a document cut short":  {"", diagnosis("Fail", 10, 2)[:200], 5, "no result: dcgmi printed no diagnosis", ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := toDiagnose(t)
			n.put("how", tt.how, 0o644)
			n.put("diag", tt.diag, 0o644)
			out, exit := n.bookend("diagnose", "--level", "3")
			must.Not(t, exit != tt.exit || !strings.Contains(out, tt.says), "exit %d, want %d and %q:\n%s", exit, tt.exit, tt.says, out)
			must.Be(t, "ran", n.ran(), tt.ran)
			must.Be(t, "dcgmi ran", n.get(n.in("dcgmi-ran")), "dcgmi discovery -l\ndcgmi diag -r 3 -j\ndcgmi discovery -l\n")
			out, _ = n.bookend("status")
			must.Be(t, "status has it", strings.Contains(out, "BKD-DIAG") && strings.Contains(out, "Found 3 faulty"), tt.exit == 1)
			n.set("gpu0.extra_mib", "0")
			n.check()
			n.check()
			resumed := ""
			if tt.how == "" && tt.exit != 1 {
				resumed = undrained
			}
			must.Be(t, "ran later", n.ran(), resumed)
		})
	}
}

// Nothing is tested, and nothing goes on record, while a job may be on the GPUs, or by a program that is not root's.
func TestDiagnoseRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		do   func(n *node)
		args string
		exit int
		says string
	}{
		"not drained": {func(n *node) { n.put("node", "MIXED", 0o644) }, "", 5,
			"sbatch '--exclusive' '--nodes=1' '--nodelist=n1'"},
		"a job is there":  {func(n *node) { n.put("node", "MIXED+DRAIN", 0o644) }, "", 1, "takes no jobs: run this on it once its jobs have ended"},
		"a process":       {func(n *node) { n.leftover() }, "", 1, "is on GPU GPU-"},
		"a user's dcgmi":  {func(n *node) { must.Do(n, os.Chmod(n.in("dcgmi"), 0o777)) }, "", 5, "no result"},
		"no dcgmi":        {func(n *node) { must.Do(n, os.Remove(n.in("dcgmi"))) }, "", 5, "no result"},
		"a dry run":       {func(*node) {}, "--dry-run", 0, "dcgmi diag -r 2 -j, at most 40m0s"},
		"level 4":         {func(*node) {}, "--level=4", 64, "want --level 2 or 3"},
		"another's check": {func(n *node) { must.Have(n.store().Turns.Check(0))(n) }, "--dry-run", 1, "try again"},
	} {
		t.Run(name, func(t *testing.T) {
			n := toDiagnose(t)
			tt.do(n)
			out, exit := n.bookend(strings.Fields("diagnose " + tt.args)...)
			must.Not(t, exit != tt.exit || !strings.Contains(out, tt.says), "exit %d, want %d and %q:\n%s", exit, tt.exit, tt.says, out)
			must.Be(t, "ran", n.ran(), "")
			_, err := os.Stat(n.in("dcgmi-ran"))
			must.Be(t, "dcgmi did not run", os.IsNotExist(err), true)
			out, _ = n.bookend("status")
			must.Not(t, strings.Contains(out, "BKD-DIAG"), "got\n%s", out)
		})
	}
}

// A pattern test that takes far longer than this GPU's earlier ones says so, and is no measure for later ones.
func TestSlowMemory(t *testing.T) {
	n := toReset(t)
	n.set("gpu0.extra_mib", "0")
	n.set("gpu0.recovery_action", "0")
	n.shows("wrong words of 8 bytes: 0", "test", "0")
	was := must.Have(state.Probes.Load(n.store()))(t)[gpu.ID(n.world.UUID(0))]
	must.Not(t, len(was.Speeds) != 1 || was.Speeds[0].Bytes != was.Probe.Pattern.Bytes, "got %+v", was)
	was.Speeds = slices.Repeat(gpu.Speeds{{Bytes: was.Probe.Pattern.Bytes, Read: 1}}, 5)
	must.Do(t, state.Probes.Put(n.store(), was))
	n.shows("; slow: ", "test", "0")
	now := must.Have(state.Probes.Load(n.store()))(t)[gpu.ID(n.world.UUID(0))]
	must.Be(t, "speeds", len(now.Speeds), 5)
}
