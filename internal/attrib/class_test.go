package attrib

import (
	"slices"
	"testing"

	"bookend/internal/gpu"
	"bookend/internal/slurm"
)

func TestClasses(t *testing.T) {
	for _, tt := range []struct {
		name string
		p    Process
		kind gpu.Kind
		want []Class
	}{
		{"a job's", Process{State: "S", Cgroup: slurm.Owner{ID: 1}}, gpu.Compute, nil},
		{"gone, whatever else is on record", Process{Gone: true, State: "T", Container: "docker"}, gpu.MPS,
			[]Class{Phantom}},
		{"stopped", Process{State: "T"}, gpu.Compute, []Class{Stopped}},
		{"stopped by its tracer", Process{State: "t"}, gpu.Compute, []Class{Stopped}},
		{"a zombie's threads", Process{State: "Z"}, gpu.Compute, []Class{Dying}},
		{"in the kernel", Process{State: "D"}, gpu.Compute, []Class{Dying}},
		{"almost gone", Process{State: "X"}, gpu.Compute, []Class{Dying}},
		{"a client of MPS", Process{Name: "python"}, gpu.MPS, []Class{MPS}},
		{"MPS by its program", Process{Exe: "/usr/bin/nvidia-cuda-mps-server"}, gpu.Compute, []Class{MPS}},
		{"MPS by its name", Process{Name: "nvidia-cuda-mps"}, gpu.Compute, []Class{MPS}},
		{"a container's", Process{Container: "docker"}, gpu.Compute, []Class{Container}},
		{"in another PID namespace", Process{OtherPIDs: true}, gpu.Compute, []Class{Container}},
		{"a service", Process{Service: "dcgm.service"}, gpu.Compute, []Class{System}},
		{"a job's, below a service", Process{Service: "slurmd.service", Cgroup: slurm.Owner{ID: 1}}, gpu.Compute, nil},
		{"several", Process{State: "T", OtherPIDs: true}, gpu.MPS, []Class{Stopped, MPS, Container}},
	} {
		if got := Classes(tt.p, tt.kind); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// What a holding has open, and nothing beyond it.
func TestOpen(t *testing.T) {
	for _, tt := range []struct {
		h    Holding
		want []string
	}{
		{Holding{}, nil},
		{Holding{Control: true}, []string{"nvidiactl"}},
		{Holding{UVM: true}, []string{"nvidia-uvm"}},
		{Holding{Minors: []int{0, 12}, Control: true, UVM: true, Caps: true},
			[]string{"nvidia0", "nvidia12", "nvidiactl", "nvidia-uvm", "nvidia-caps"}},
	} {
		if got := tt.h.Open(); !slices.Equal(got, tt.want) {
			t.Errorf("%+v: %q, want %q", tt.h, got, tt.want)
		}
	}
}
