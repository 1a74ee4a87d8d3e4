package faults

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/state"
	"bookend/test/fakeamd"
	"bookend/test/must"
)

const gib = 1 << 30

// amd makes a node of these cards, which Slurm gives out by their render nodes. Beside says that it has NVIDIA's too.
func amd(t *testing.T, beside bool, cards ...fakeamd.Card) (*node, *fakeamd.World) {
	t.Helper()
	n := parallel(t, "enforce")
	w := fakeamd.New(n.in("amd"), cards...)
	var files, list []string
	if beside {
		must.Do(t, os.CopyFS(filepath.Join(w.Sys, "module/nvidia"), os.DirFS(filepath.Join(n.world.Sys(), "module/nvidia"))))
		files = []string{"/dev/nvidia0", "/dev/nvidia1"}
	}
	for _, c := range cards {
		minors := c.Partitions
		if len(minors) == 0 {
			minors = []int{c.Minor}
		}
		for _, minor := range minors {
			files = append(files, fmt.Sprintf("/dev/dri/renderD%d", minor))
		}
	}
	gres := ""
	for i, f := range files {
		gres += "Name=gpu File=" + f + "\n"
		list = append(list, fmt.Sprintf("echo 'slurmd: Gres Name=gpu Type=(null) Count=1 Index=%d ID=7696487 File=%s "+
			"Links=(null) Flags=HAS_FILE,ENV_RSMI' >&2\n", i, f))
	}
	n.put("slurm.d/gres.conf", gres, 0o644)
	n.put("slurm.d/slurm.conf", fmt.Sprintf("GresTypes=gpu\nSlurmdPidFile=%s\nNodeName=%s Gres=gpu:%d\n",
		n.in("slurm.d/slurmd.pid"), nodeName, len(files)), 0o644)
	n.put("slurm.d/new", "#!/bin/sh\n"+strings.Join(list, ""), 0o755)
	must.Do(t, os.Rename(n.in("slurm.d/new"), n.in("slurm.d/slurmd")))
	n.configure(func(c *conf) {
		c.sys, c.extra = w.Sys, "amd: {backend: "+program("bookend-amd")+"}\n"
		if !beside {
			c.driverProc = n.in("none")
		}
	})
	return n, w
}

// onAMD is the job on one of those GPUs, as Slurm tells it.
func onAMD(gpu string) job {
	return newJob().On(gpu).With("CUDA_VISIBLE_DEVICES", "", "ROCR_VISIBLE_DEVICES", gpu)
}

// stays is a process of the job's user that stays, in the job's cgroup.
func (n *node) stays() (pid int) {
	n.Helper()
	p := n.leftover()
	n.inCgroup(p, "100")
	return p.PID
}

// What stays on an AMD GPU is named as on any other, and never drains. There was no such hardware: the files are as the kernel's sources
// have them, the processes real.
func TestAMD(t *testing.T) {
	card := fakeamd.Card{Bus: "0000:26:00.0", Minor: 128, UniqueID: "a1b2c3d4e5f60718", Total: 192 * gib}
	other := fakeamd.Card{Bus: "0000:46:00.0", Minor: 136, UniqueID: "a1b2c3d4e5f60719", Total: 192 * gib}
	cut, apu := card, card
	cut.Partitions, apu.APU = []int{128, 129}, true
	one, two := []fakeamd.Card{card}, []fakeamd.Card{card, other}
	const first, second, partition = "GPU-a1b2c3d4e5f60718", "GPU-a1b2c3d4e5f60719", "GPU-a1b2c3d4e5f60718/renderD129"
	const dead = 4194000 // no PID that is given out here
	type leaves = func(*node, *fakeamd.World)
	uses := func(gpu int, bytes uint64) leaves { return func(_ *node, w *fakeamd.World) { w.Use(gpu, bytes) } }
	ghost := func(_ *node, w *fakeamd.World) { w.Compute(dead, 128, 8*gib) }
	ghostly := func(n *node, w *fakeamd.World) { uses(0, 8*gib)(n, w); ghost(n, w) }
	for name, tt := range map[string]struct {
		cards   []fakeamd.Card
		beside  bool
		gpu, id string
		leaves  leaves
		finds   string
	}{
		"clean": {two, false, "1", second, uses(1, 0), ""},
		"a process of the job": {two, false, "1", second, func(n *node, w *fakeamd.World) {
			w.Use(1, 8*gib)
			w.Compute(n.stays(), 136, 8*gib)
		}, "BKD-ORPHAN?"},
		"on another's":                 {two, false, "1", second, ghostly, ""},
		"a stale entry":                {one, false, "0", first, ghostly, "BKD-PHANTOM?"},
		"a stale entry without memory": {one, false, "0", first, ghost, "BKD-PHANTOM? BKD-RESIDUE?*"},
		"a dma-buf without a process":  {one, false, "0", first, uses(0, 46*gib), "BKD-RESIDUE?"},
		"the other die":                {two, false, "0", first, uses(1, 40*gib), ""},
		"memory of the host's":         {[]fakeamd.Card{apu}, false, "0", first, uses(0, 40*gib), "BKD-UNJUDGED*"},
		"beside NVIDIA's, on AMD's":    {one, true, "2", first, ghostly, "BKD-PHANTOM?"},
		"beside NVIDIA's, on theirs":   {one, true, "1", "", ghostly, ""},
		"a process on its partition": {[]fakeamd.Card{cut}, false, "1", partition, func(n *node, w *fakeamd.World) {
			w.Compute(n.stays(), 129, 8*gib)
		}, "BKD-ORPHAN?"},
		"a second context": {one, false, "0", first, func(n *node, w *fakeamd.World) {
			pid := n.stays()
			w.Use(0, 8*gib)
			w.Compute(pid, 128, 3*gib)
			w.Second(pid, 128, 5*gib)
		}, "BKD-ORPHAN?"},
		"memory that goes late": {one, false, "0", first, func(n *node, w *fakeamd.World) {
			n.configure(func(c *conf) { c.settle = "{max: 8s, stable: 3s}" })
			w.Use(0, 40*gib)
			time.AfterFunc(time.Second, func() { w.Use(0, 0) })
		}, ""},
		"no permission to look into KFD": {one, false, "0", first, func(n *node, w *fakeamd.World) {
			w.Without("class/kfd/kfd/proc")
			w.Put("", "class/kfd/kfd/proc")
		}, "BKD-UNREAD*"},
		"an error in the kernel's log": {one, false, "0", first, func(n *node, _ *fakeamd.World) {
			n.kernel("amdgpu 0000:26:00.0: {1}uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!")
		}, "BKD-XIDFATAL?"},
	} {
		t.Run(name, func(t *testing.T) {
			seeHoldersOf(t, tt.finds)
			n, w := amd(t, tt.beside, tt.cards...)
			n.clean(prolog, onAMD(tt.gpu))
			tt.leaves(n, w)
			n.exits(0, epilog, onAMD(tt.gpu))
			found, run := n.findings(epilog), n.run(100)
			must.Not(t, codes(found) != tt.finds, "found %q, want %q: %+v", codes(found), tt.finds, found)
			must.Not(t, len(run.Devices) != 1 || tt.id != "" && string(run.Devices[0].Device.ID) != tt.id ||
				run.Numbering.Source != record.BySlurmd, "%+v by %+v, want %s", run.Devices, run.Numbering, tt.id)
		})
	}
}

// The recorder sees AMD's GPUs too, on a node of two vendors by a backend of each.
func TestAMDRecorded(t *testing.T) {
	card := fakeamd.Card{Bus: "0000:26:00.0", Minor: 128, UniqueID: "a1b2c3d4e5f60718", Total: 192 * gib}
	n, w := amd(t, true, card)
	n.ownPrograms()
	n.configure(func(c *conf) { c.record = "100ms" })
	n.clean(n.own(prolog), onAMD("2"))
	n.clean(n.own(prolog), bystanding())
	w.Use(0, 8*gib)
	w.Compute(n.stays(), 128, 7*gib)
	n.recorded("what the job has", func(r record.GPURecording) bool { return r.Own.Bytes == 7*gib && r.Peak.Bytes == 7*gib+512*mib })
	await(t, "the other job's samples", func() bool {
		of := state.Recorded.Peek(n.store()).Runs
		return len(of) == 2 && !slices.ContainsFunc(slices.Collect(maps.Values(of)), func(r record.Recording) bool { return r.Samples == 0 })
	})
	problem := state.Recorded.Peek(n.store()).Problem
	must.Not(t, problem != "", "its trouble: %q", problem)
}

// Where ROCm's library is named, GPUs are tested by it; what it finds drains no more than anything else there.
func TestAMDTested(t *testing.T) {
	n, w := amd(t, false, fakeamd.Card{Bus: "0000:26:00.0", Minor: 128, UniqueID: "a1b2c3d4e5f60718", Total: 192 * gib})
	library := must.Have(w.HIP(fmt.Sprintf("largest %d", 100*gib)))(t)
	n.configure(func(c *conf) {
		c.extra = fmt.Sprintf("amd: {backend: %s, hip_library: %s}\n", program("bookend-amd"), library)
	})
	n.clean(prolog, onAMD("0"))
	n.exits(0, epilog, onAMD("0"))
	tests := n.endOf(100).Probes
	must.Not(t, len(tests) != 1 || tests[0].Result != gpu.ProbeGap || tests[0].Largest.Bytes != 100*gib, "%+v", tests)
	got := codes(n.findings(epilog))
	must.Not(t, got != "BKD-GAP?", "found %s", got)
}
