//go:build cgo

package fakegpu

import (
	"reflect"
	"slices"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// migInstance is what the consumer saw of a MIG instance.
type migInstance struct {
	Index       int
	UUID        string
	GI, CI      int
	Total, Used uint64
	Processes   []process
	Parent      string
}

// readModes reads what only newer drivers offer.
func (c *card) readModes(lib nvml.Interface, d nvml.Device) {
	if lib.Extensions().LookupSymbol("nvmlDeviceGetAddressingMode") != nil {
		return
	}
	mode, _ := d.GetAddressingMode()
	virtual, _ := d.GetVirtualizationMode()
	c.Addressing, c.Virtualization = int(mode.Value), int(virtual)
	if on, _, _ := d.GetMigMode(); on != nvml.DEVICE_MIG_ENABLE {
		return
	}
	most, _ := d.GetMaxMigDeviceCount()
	for i := range most {
		if handle, rc := d.GetMigDeviceHandleByIndex(i); rc == nvml.SUCCESS {
			c.Instances = append(c.Instances, readInstance(i, handle))
		}
	}
}

func readInstance(i int, d nvml.Device) migInstance {
	in := migInstance{Index: i}
	in.UUID, _ = d.GetUUID()
	in.GI, _ = d.GetGpuInstanceId()
	in.CI, _ = d.GetComputeInstanceId()
	memory, _ := d.GetMemoryInfo_v2()
	in.Total, in.Used = memory.Total, memory.Used
	infos, _ := d.GetComputeRunningProcesses()
	in.Processes = processes(infos)
	if parent, rc := d.GetDeviceHandleFromMigDeviceHandle(); rc == nvml.SUCCESS {
		in.Parent, _ = parent.GetUUID()
	}
	return in
}

func TestModes(t *testing.T) {
	w := newWorld(t, GPUs(2), With("gpu1.addressing_mode", "2"), With("gpu1.virtualization_mode", "2"))
	c := attach(t, w).look().Cards
	if c[0].Addressing != 0 || c[0].Virtualization != 0 || c[1].Addressing != 2 || c[1].Virtualization != 2 || c[0].Instances != nil {
		t.Errorf("got %+v", c)
	}
}

func TestInstances(t *testing.T) {
	w := newWorld(t, GPUs(2), Instance(1, 0, 7, 0, 18000), Instance(1, 4, 3, 0, 36000), Instance(1, 5, 3, 1, 36000),
		With("gpu1.mig0_extra_mib", "40"), With("gpu1.mig5_list", "77:5"))
	p, err := w.Start("alloc", "--gpu", "1", "--mib", "1000")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.End)
	if err := w.Place(1, 4, p.PID); err != nil {
		t.Fatal(err)
	}
	consumer := attach(t, w)
	const client = 1000 + 527
	listed, invented := process{uint32(p.PID), (client - 9) * MiB}, process{77, 5 * MiB}
	want := []migInstance{
		{0, w.InstanceUUID(1, 0), 7, 0, 18000 * MiB, 40 * MiB, nil, w.UUID(1)},
		{4, w.InstanceUUID(1, 4), 3, 0, 36000 * MiB, client * MiB, []process{listed}, w.UUID(1)},
		{5, w.InstanceUUID(1, 5), 3, 1, 36000 * MiB, client * MiB, []process{invented}, w.UUID(1)},
	}
	see := func(want []migInstance) {
		t.Helper()
		if got := consumer.look().Cards[1].Instances; !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	}
	see(want)
	if c := consumer.look().Cards; c[0].Instances != nil || c[1].Used != (client+40)*MiB || !slices.Equal(c[1].Compute, []process{listed, invented}) {
		t.Errorf("cards: %+v", c)
	}
	set(t, w, "gpu1.mig_lists", "parent")
	for i := range want {
		want[i].Processes = []process{listed, invented}
	}
	see(want)
	set(t, w, "gpu1.mig_lists", "")
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := w.Destroy(1, 5); err != nil {
		t.Fatal(err)
	}
	want = want[:2]
	want[0].Processes, want[1].Processes, want[1].Used = nil, nil, 0
	see(want)
}

// Version 3 of the lists alone may be laid out wrongly, as drivers 535.43 to 535.86 have it.
func TestLongEntriesInVersion3(t *testing.T) {
	w := newWorld(t, GPUs(1), With("process_stride_v3", "32"), With("gpu0.list", "11:1 12:2"))
	old := startConsumer(t, w.NVMLOld(), "guarded") // which has version 2 alone
	if _, err := old.read(); err != nil {
		t.Fatal(err)
	}
	if got := attach(t, w).look().Cards[0].Compute; got[1].PID == 12 {
		t.Errorf("version 3: %+v", got)
	}
	if got := old.look().Cards[0].Compute; !slices.Equal(got, []process{{11, MiB}, {12, 2 * MiB}}) {
		t.Errorf("version 2: %+v", got)
	}
}
