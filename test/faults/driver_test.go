package faults

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"bookend/internal/catalog"
	"bookend/test/must"
	"bookend/test/rig"
)

// fault is one thing that can be wrong when a hook runs, and what must come of it in each root hook.
type fault struct {
	harm  func(*node)
	job   job // what slurmd tells the hook; nil: newJob
	finds catalog.Code
	says  string // in the log's line of the finding
	// exit is the number with mode enforce and on_own_error: drain; otherwise a fault of Bookend's never drains.
	exit int
}

func (f fault) check(n *node, h hook, onUnknown string, exit int) {
	n.configure(func(c *conf) { c.onUnknown = onUnknown })
	n.begun(h)
	f.harm(n)
	j := newJob()
	if f.job != nil {
		j = f.job
	}
	n.exits(exit, h, j)
	n.saysTimes(1, "findings: ", string(f.finds), filepath.Base(h.program))
	if f.finds != catalog.Lost { // what is wrong with a GPU has no line of its own
		n.says(string(f.finds)+": ", f.says)
	}
	if f.finds != catalog.BadEnv && !has(n.findings(h), f.finds) { // of that job nothing is known
		n.Errorf("recorded: %v, want %s", n.findings(h), f.finds)
	}
	n.unharmed()
}

// backend makes a node's backend what a script says.
func backend(script string) func(*node) {
	return func(n *node) {
		path := n.script("backend", script)
		n.configure(func(c *conf) { c.backend = path })
	}
}

// set is a change of the fake driver, driver one of how a call of it behaves.
func set(key, value string) func(*node) { return func(n *node) { n.set(key, value) } }

func driver(call, rule string) func(*node) { return set("on."+call, rule) }

func noBackend(n *node) { n.configure(func(c *conf) { c.backend = n.in("nothing") }) }

// tightly is a harm under deadlines that a hang reaches.
func tightly(harm func(*node)) func(*node) {
	return func(n *node) { n.configure(func(c *conf) { c.tight = true }); harm(n) }
}

const hello = `{"bookend":1,"kind":"hello","hello":{"backend":"script","version":"1"}}`

func says(text string) string { return "read request\ncat <<'END'\n" + text + "\nEND\n" }

func unharmed(*node) {}

// faults are the ways in which backend, driver and what slurmd says can fail. What backends can answer package backend
// tries, what forms variables have package slurm, and what lists of GPUs there are package slurmconf.
var faults = map[string]fault{
	"no backend": {finds: catalog.BackendMissing, exit: 32, says: "no such file", harm: noBackend},
	"not root's": {finds: catalog.BackendRefused, exit: 33, says: "owner is 65534, not root",
		harm: func(n *node) { backend("exit 0")(n); n.give(n.conf.backend, user) }},
	"library not root's": {finds: catalog.BackendRefused, exit: 33, says: "owner is 65534, not root",
		harm: func(n *node) { n.give(n.world.NVML(), user) }},
	"crashing": {finds: catalog.BackendCrash, exit: 34, says: "SIGSEGV: segmentation violation",
		harm: driver(memoryCall, "crash")},
	"failing": {finds: catalog.BackendCrash, exit: 34, says: "exit code 3: out of luck",
		harm: backend("echo out of luck >&2; exit 3")},
	"nonsense": {finds: catalog.BackendGarbage, exit: 35, says: "line 1: garbage", harm: backend(says("GPU 0: H200"))},
	"leaves a child that holds its descriptors": {finds: catalog.BackendGarbage, exit: 35,
		harm: backend(says(hello) + "sleep 1000 &\nexit 0")},
	"wrong version, and dies": {finds: catalog.BackendVersion, exit: 36, says: "version 2, not 1",
		harm: backend(says(`{"bookend":2,"kind":"hello"}`) + "exit 1")},
	"flooding": {finds: catalog.BackendFlood, exit: 37, harm: backend("exec cat /dev/zero")},
	// killed at the deadline, a warning about the driver, no fault of Bookend's
	"hangs, stopped": {finds: catalog.Hang, says: "driver does not answer", harm: tightly(backend("kill -STOP $$"))},
	"hangs in the driver": {finds: catalog.Hang, says: "driver does not answer",
		harm: tightly(driver(memoryCall, "hang-hard"))},

	// on_own_error has no part in what is wrong with the driver
	"no library": {finds: catalog.NoDriver, says: "libnvidia-ml.so.1",
		harm: func(n *node) { must.Do(n, os.Remove(n.world.NVML())) }},
	"no driver in proc": {finds: catalog.NoDriver, says: "not loaded",
		harm: func(n *node) { nothingKnown(n); must.Do(n, os.RemoveAll(n.world.DriverProc())) }},
	"library without driver": {finds: catalog.NoDriver, says: "nvmlInit_v2", harm: driver("nvmlInit_v2", "rc 9")},
	"version mismatch":       {finds: catalog.Mismatch, says: "nvmlInit_v2", harm: driver("nvmlInit_v2", "rc 18")},
	"an error of its own":    {finds: catalog.DriverKO, says: "999", harm: driver("nvmlInit_v2", "rc 999")},
	"strange proc": {finds: catalog.DriverKO, says: "list GPUs",
		harm: func(n *node) { nothingKnown(n); must.Do(n, os.Mkdir(n.world.DriverProc()+"/gpus/..bus", 0o755)) }},

	// nor in what is wrong with a GPU
	"lost GPU":           {finds: catalog.Lost, exit: 20, harm: driver(memoryCall+".gpu0", "rc 15")},
	"GPU to be reset":    {finds: catalog.Lost, exit: 20, harm: driver(memoryCall+".gpu0", "rc 16")},
	"GPU without handle": {finds: catalog.Lost, exit: 20, harm: driver("nvmlDeviceGetHandleByPciBusId_v2.gpu0", "rc 15")},

	"job id as a path": {finds: catalog.BadEnv, exit: 31, says: "SLURM_JOB_ID=", harm: unharmed,
		job: newJob().With("SLURM_JOB_ID", "../../../etc", "SLURM_JOBID", "")},
	"node with a line feed": {finds: catalog.BadEnv, exit: 31, says: "is not a node name", harm: unharmed,
		job: newJob().With("SLURMD_NODENAME", "n1\nexport PATH=/x")},
	"no context": {finds: catalog.BadEnv, exit: 31, says: "SLURM_SCRIPT_CONTEXT is not set", harm: unharmed,
		job: newJob().With("SLURM_SCRIPT_CONTEXT", rig.Absent)},
	"lists of GPUs disagree": {finds: catalog.Ambiguous, exit: 40, says: "1 GPU indexes but 2 visible devices",
		harm: unharmed, job: newJob().With("CUDA_VISIBLE_DEVICES", "0,1", "GPU_DEVICE_ORDINAL", "")},
}

func TestFaults(t *testing.T) {
	for name, f := range faults {
		for _, h := range hooks {
			t.Run(name+" "+h.program, func(t *testing.T) {
				t.Parallel()
				f.check(newNode(t, "enforce"), h, "drain", f.exit)
			})
		}
	}
}

// A fault of Bookend's own drains only where the site both enforces and says so; package finding has the whole table.
func TestModes(t *testing.T) {
	for mode, onUnknown := range map[string]string{"observe": "drain", "enforce": "warn"} {
		for _, h := range hooks {
			fault{harm: noBackend, finds: catalog.BackendMissing}.check(newNode(t, mode), h, onUnknown, 0)
		}
	}
}

// Without any sign of GPUs a hook ends before it reads anything, whatever else is wrong, and before the libraries are
// initialised.
func TestNoGPUsNoWork(t *testing.T) {
	for _, h := range hooks {
		bare := exec.Command(program(h.program))
		bare.Env = []string{"GODEBUG=inittrace=1"}
		out := string(must.Have(bare.CombinedOutput())(t))
		must.Not(t, !strings.Contains(out, "init runtime ") || strings.Contains(out, "yaml"), "%s: %s", h.program, out)
		n := newNode(t, "enforce")
		n.config = "/nowhere"
		n.clean(h, job{"SLURM_SCRIPT_CONTEXT": rig.Absent})
		must.Not(t, n.log() != "", "%s: log: %s", h.program, n.log())
	}
}

// The vendor-neutral core is enough: a static program that knows ids, memory and processes, and lists the GPUs itself,
// as another vendor's without NVIDIA's directory in /proc, gives a clean start and names what the job left.
func TestCoreOnlyBackend(t *testing.T) {
	n := parallel(t, "enforce")
	must.Do(t, os.Mkdir(n.in("core"), 0o755))
	must.Do(t, os.Link(program("backend"), n.in("core/backend")))
	n.put("core/devices", fmt.Sprintf(`[{"id": %q, "bus_id": %q, "minor": 0}]`, n.world.UUID(0), n.world.BusID(0)),
		0o644)
	n.configure(func(c *conf) { c.backend, c.driverProc = n.in("core/backend"), `""` })
	must.Do(t, os.RemoveAll(n.world.DriverProc()))
	n.clean(prolog, newJob())
	orphan := exec.Command("/bin/sleep", "1000")
	orphan.Env, orphan.SysProcAttr = []string{}, rig.As(user)
	gpu0 := must.Have(os.Open(filepath.Join(n.world.Dev(), "nvidia0")))(t)
	defer gpu0.Close()
	orphan.ExtraFiles = []*os.File{gpu0}
	must.Do(t, orphan.Start())
	defer func() { _ = orphan.Process.Kill(); _ = orphan.Wait() }()
	n.put("core/cards", fmt.Sprintln(n.world.UUID(0), orphan.Process.Pid, 700<<20), 0o644)
	n.exits(10, epilog, newJob())
	f := n.found(n.findings(epilog), catalog.Orphan)
	must.Not(t, f.Holder.PID != orphan.Process.Pid || f.Bytes.Bytes != 700<<20 || f.Owner == nil || f.Owner.Job != 100,
		"%+v", f)
}

// A driver or GPU that does not work at two jobs in a row drains, whatever the code; a library that is only not where it
// was looked for, and what may come from the hook's own surroundings, never.
func TestDriverGoneTwice(t *testing.T) {
	type row struct {
		harm func(*node)
		exit int
	}
	each(t, "enforce", map[string]row{
		"the driver is not loaded": {driver("nvmlInit_v2", "rc 9"), 22},
		"versions differ":          {driver("nvmlInit_v2", "rc 18"), 23},
		"error 999 of the library": {driver("nvmlInit_v2", "rc 999"), 24},
		"a code that no table has": {driver("nvmlInit_v2", "rc 777"), 24},
		"lack of host memory":      {driver("nvmlInit_v2", "rc 20"), 0},
		"a GPU's handle, 999":      {driver("nvmlDeviceGetHandleByPciBusId_v2.gpu0", "rc 999"), 19},
		"a GPU's memory, 777":      {driver(memoryCall+".gpu0", "rc 777"), 19},
		"a GPU's processes, 999":   {driver("nvmlDeviceGetComputeRunningProcesses_v3.gpu0", "rc 999"), 0},
		"a GPU's permissions":      {driver("nvmlDeviceGetHandleByPciBusId_v2.gpu0", "rc 4"), 0},
		"another GPU's handle":     {driver("nvmlDeviceGetHandleByPciBusId_v2.gpu1", "rc 999"), 0},
		"no such GPU":              {driver("nvmlDeviceGetHandleByPciBusId_v2.gpu0", "rc 28"), 21},
		"no library":               {func(n *node) { must.Do(n, os.Remove(n.world.NVML())) }, 0},
		"no driver in proc":        {func(n *node) { must.Do(n, os.RemoveAll(n.world.DriverProc())) }, 0},
	}, func(n *node, tt row) {
		tt.harm(n)
		for id, exit := range []int{0, tt.exit} {
			n.exits(exit, prolog, numbered(100+id))
			n.exits(exit, epilog, numbered(100+id))
		}
	})
}

// kernel writes a line of the kernel's log, one second after the other.
func (n *node) kernel(text string) {
	f := must.Have(os.OpenFile(n.world.KernelLog(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600))(n)
	defer f.Close()
	seq := 100 + strings.Count(n.get(n.world.KernelLog()), "\n")
	must.Have(fmt.Fprintf(f, "3,%d,%d,-;%s\n", seq, seq*1_000_000, text))(n)
}

// xid is an error of a GPU as the kernel's module reports it.
func (n *node) xid(card, number int, text string) {
	n.kernel(fmt.Sprintf("NVRM: Xid (PCI:%s): %d, %s", strings.TrimSuffix(n.world.BusID(card), ".0"), number, text))
}

// offTheBus is what it says of one that is gone.
const offTheBus = "pid=4711, name=secret, GPU has fallen off the bus."

// silent makes the driver not tell whether a GPU needs recovery, as one from before 570.
func (n *node) silent() { n.set("gpu0.recovery_action_rc", "3") }

// What kernel and driver say against a GPU drains where it cannot be used, unless the driver says that all is well, and
// never where the site only observes. What lines and conditions there are packages inventory and health know.
func TestCondition(t *testing.T) {
	secret := []string{"4711", "secret"}
	tell(t, map[string]story{
		"fatal": {during: func(n *node) { n.silent(); n.xid(0, 79, offTheBus) }, finds: "BKD-XIDFATAL", exit: 29,
			reads: []string{"failed during your job: the GPU has fallen off the bus (Xid 79)", "This was not your code"}, not: secret},
		"fatal, and the driver asks for nothing": {during: func(n *node) { n.xid(0, 79, offTheBus) },
			finds: "BKD-XIDFATAL?", not: secret, reads: []string{"the GPU has fallen off the bus (Xid 79)"},
			check: func(n *node) { n.says("doubt=", "BKD-XIDFATAL") }},
		"a program's": {during: func(n *node) { n.xid(0, 13, "pid=4711, name=secret, Graphics Exception") }, not: secret,
			finds: "BKD-XID", reads: []string{"error in a program's kernel: wrong address, illegal instruction (Xid 13)", "most likely your own"}},
		"a program that was ended": {during: func(n *node) { n.xid(0, 45, "pid=4711, name=secret, Ch 00000001") },
			finds: "BKD-XID", not: append(secret, "WARNING", "Xid")},
		"a program that another error ended": {
			during: func(n *node) { n.xid(0, 45, "pid=4711, name=secret, Ch 00000001 caused by previous Xid 149") },
			finds:  "BKD-XID", reads: []string{"NVLink 5 error (Xid 45)", "No program causes this"}, not: secret},
		"lost, without a number": {during: func(n *node) {
			n.silent()
			n.kernel("NVRM: GPU " + n.world.BusID(0) + ": GPU has fallen off the bus.")
		}, finds: "BKD-XIDFATAL", exit: 29, reads: []string{"the GPU has fallen off the bus"}},
		"fatal, and over": {during: func(n *node) {
			n.silent()
			n.xid(0, 119, "pid=4711, name=secret, Timeout after 45s of waiting for RPC response from GPU0 GSP!")
			n.xid(0, 154, "pid=4711, name=secret, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)")
		}, finds: "BKD-XID BKD-XIDFATAL?", not: append(secret, "Xid 154")},
		"of an NVSwitch": {during: func(n *node) {
			n.silent()
			n.kernel("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up")
		}, finds: "BKD-KERNELLOG?", reads: []string{"fatal error of an NVSwitch link: GPUs behind it lose their work (SXid 20034)"}},
		"a reset is due": {during: set("gpu0.recovery_action", "1"), finds: "BKD-RECOVERY", exit: 27,
			reads: []string{"the driver asks for a reset of the GPU"}},
		"a reset is due, observed": {mode: "observe", during: set("gpu0.recovery_action", "1"), finds: "BKD-RECOVERY",
			check: func(n *node) { n.says("BKD-RECOVERY", "held=") }},
		"a remapping failed": {during: set("gpu0.remap_failure", "1"), finds: "BKD-REMAPFAILED", exit: 28,
			reads: []string{"the remapping of a memory row has failed"}},
		// it has shown the memory before: what that proves counts
		"hangs where it is asked, beside an orphan": {finds: "BKD-HANG BKD-ORPHAN", exit: 10,
			during: func(n *node) {
				n.configure(func(c *conf) { c.settle = "{max: 2s, stable: 200ms}" })
				n.replace(n.config, "epilog: {total: 3m, driver: 40s,", "epilog: {total: 3m, driver: 3s,")
				must.Do(n, os.Chmod(n.config, 0o644))
				n.leftover()
				n.set("on.nvmlDeviceGetGpuFabricInfoV.gpu0", "hang-hard")
			},
			check: func(n *node) {
				e := n.endOf(100)
				must.Not(n, len(e.Snapshot.Readings) != 1 || len(e.Health) != 0, "%+v", e)
			}},
	})
}
