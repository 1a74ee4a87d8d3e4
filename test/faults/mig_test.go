package faults

import (
	"testing"

	"bookend/internal/code"
	"bookend/internal/gpu"
	"bookend/test/fakegpu"
)

// onInstance is job 100 with one MIG instance, as Slurm gives it with AutoDetect=nvml.
func (n *node) onInstance(index int) job {
	id := n.world.InstanceUUID(0, index)
	return newJob().with("SLURM_JOB_GPUS", "0", "CUDA_VISIBLE_DEVICES", id, "GPU_DEVICE_ORDINAL", "0")
}

// A MIG instance is a device of its own: what is on it is its job's, what is on its sibling is nobody's here, and as
// no driver's word on one was ever measured nothing drains.
func TestInstances(t *testing.T) {
	for name, tt := range map[string]struct {
		on   int // the instance on which a process stays
		want code.Code
	}{
		"on the job's instance": {0, code.Orphan},
		"on its sibling":        {1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "enforce", fakegpu.Instance(0, 0, 1, 0, 40_000), fakegpu.Instance(0, 1, 2, 0, 40_000))
			j := n.onInstance(0)
			n.clean(prolog, j)
			p := n.leftover()
			must(t, n.world.Place(0, tt.on, p.PID))
			o := n.hook(epilog, j)
			found := n.findings(epilog)
			switch {
			case o.exit != 0:
				t.Errorf("drained: %+v %+v", o, found)
			case tt.want == "" && len(found) != 0:
				t.Errorf("a sibling's process is nobody's here: %+v", found)
			case tt.want != "" && (len(found) == 0 || found[0].Code != tt.want || found[0].Holder.PID != p.PID ||
				found[0].GPU != gpu.ID(n.world.InstanceUUID(0, 0)) || len(found[0].Doubts) == 0):
				t.Errorf("%+v", found)
			}
		})
	}
}

// An instance that is gone at the job's end is a device that does not exist, and no leak.
func TestInstanceVanishes(t *testing.T) {
	n := newNode(t, "enforce", fakegpu.Instance(0, 0, 1, 0, 40_000))
	j := n.onInstance(0)
	n.clean(prolog, j)
	must(t, n.world.Destroy(0, 0))
	o := n.hook(epilog, j)
	if found := n.findings(epilog); o.exit != 0 || len(found) == 0 || has(found, code.Residue) || has(found, code.Orphan) {
		t.Errorf("%+v %+v", o, found)
	}
}
