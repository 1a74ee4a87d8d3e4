package gpu

import "testing"

// The lines are those of kernels 5.x and 6.x, as sites have reported them.
func TestAMDErrors(t *testing.T) {
	const place = "amdgpu 0000:e3:00.0: "
	for text, want := range map[string]int{
		place + "amdgpu: uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!":                AMDUncorrected,
		place + "{1}uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!":                     AMDUncorrected,
		place + "amdgpu: {7}socket: 0, die: 0, 2 new uncorrectable hardware errors detected in umc block": AMDUncorrected,
		place + "amdgpu: GPU reset begin!":                                                                AMDReset,
		place + "VM memory stats for proc a(28374) task GPU reset begin(28320) is non-zero when fini":     AMDNotGivenBack,
		place + "amdgpu: [gfxhub0] no-retry page fault (src_id:0 ring:24 vmid:3 pasid:32770)":             AMDPageFault,
		place + "amdgpu: ring sdma0 timeout, process GPU reset begin pid 7":                               0,
		"amdgpu: Freeing queue vital buffer 0x153909800000, queue evicted":                                0,
		"amdgpu x: uncorrectable hardware error":                                                          0,
		"python[7]: amdgpu 0000:e3:00.0: GPU reset begin!":                                                0,
		"NVRM: Xid (PCI:0000:1b:00): 79, GPU reset begin":                                                 0,
	} {
		x, ok := AMD.Fault(text)
		if x.Code != want || ok != (want != 0) || ok && x.BusID != "0000:e3:00.0" {
			t.Errorf("%q: %+v, %v", text, x, ok)
		}
	}
}
