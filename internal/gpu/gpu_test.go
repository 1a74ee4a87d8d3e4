package gpu

import (
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"bookend/test/must"
)

// Epochs are the same or changed only by what both sides know; of the rest nobody knows.
func TestEpochs(t *testing.T) {
	whole := Epoch{Boot: "b", Driver: "580", Module: "m@1"}
	for name, tc := range map[string]struct {
		a, b          Epoch
		same, changed bool
	}{
		"equal":             {whole, whole, true, false},
		"other boot":        {whole, Epoch{"c", "580", "m@1"}, false, true},
		"other driver":      {whole, Epoch{"b", "595", "m@1"}, false, true},
		"reloaded":          {whole, Epoch{"b", "580", "m@2"}, false, true},
		"boot unknown":      {Epoch{"", "580", "m@1"}, Epoch{"", "580", "m@1"}, false, false},
		"driver unknown":    {Epoch{"b", "", "m@1"}, Epoch{"b", "", "m@1"}, false, false},
		"module unknown":    {Epoch{"b", "580", ""}, Epoch{"b", "580", ""}, false, false},
		"nothing known":     {Epoch{}, Epoch{}, false, false},
		"gone since":        {whole, Epoch{"b", "", ""}, false, false},
		"rest is not known": {Epoch{"b", "", ""}, Epoch{"c", "580", ""}, false, true},
	} {
		for _, pair := range [][2]Epoch{{tc.a, tc.b}, {tc.b, tc.a}} {
			same, changed := pair[0].Same(pair[1]), pair[0].Changed(pair[1])
			if same != tc.same || changed != tc.changed {
				t.Errorf("%s: got same %v, changed %v; want %v, %v", name, same, changed, tc.same, tc.changed)
			}
		}
	}
}

// The lines are those of kernels 5.x and 6.x, as sites have reported them.
func TestAMDErrors(t *testing.T) {
	const place = "amdgpu 0000:e3:00.0: "
	for text, want := range map[string]int{
		place + "amdgpu: uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!":                 AMDUncorrected,
		place + "{1}uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!":                      AMDUncorrected,
		place + "amdgpu: {7}socket: 0, die: 0, 2 new uncorrectable hardware errors detected in umc block":  AMDUncorrected,
		place + "amdgpu: {7}socket: 0, die: 0, 0 new uncorrectable hardware errors detected in umc block":  0,
		place + "amdgpu: socket: 1, die: 0, 0 correctable hardware errors detected in total in umc block":  0,
		place + "amdgpu: {7}socket: 0, die: 0, 10 new uncorrectable hardware errors detected in umc block": AMDUncorrected,
		place + "amdgpu: GPU reset begin!": AMDReset,
		place + "VM memory stats for proc a(28374) task GPU reset begin(28320) is non-zero when fini":                AMDNotGivenBack,
		place + "amdgpu: [gfxhub0] no-retry page fault (src_id:0 ring:24 vmid:3 pasid:32770)":                        AMDPageFault,
		place + "amdgpu: [mmhub0] page fault (src_id:0 ring:173 vmid:0 pasid:0, for process  pid 0 thread  pid 0)":   AMDDriverFault,
		place + "amdgpu: [gfxhub0] page fault (src_id:0 ring:24 vmid:8 pasid:7, for process a vmid:0 pasid:0 pid 7)": AMDPageFault,
		place + "amdgpu: ring sdma0 timeout, process GPU reset begin pid 7":                                          0,
		"amdgpu: Freeing queue vital buffer 0x153909800000, queue evicted":                                           0,
		"amdgpu x: uncorrectable hardware error":                                                                     0,
		"python[7]: amdgpu 0000:e3:00.0: GPU reset begin!":                                                           0,
		"NVRM: Xid (PCI:0000:1b:00): 79, GPU reset begin":                                                            0,
	} {
		x, ok := AMD.Fault(text)
		if x.Code != want || ok != (want != 0) || ok && x.BusID != "0000:e3:00.0" {
			t.Errorf("%q: %+v, %v", text, x, ok)
		}
	}
}

func TestXidForms(t *testing.T) {
	for text, want := range map[string]Xid{
		"NVRM: Xid (PCI:0000:1b:00): 31":                  {BusID: "0000:1b:00.0", Code: 31},
		"NVRM: Xid (PCI:0000:1b:00): 31, ":                {BusID: "0000:1b:00.0", Code: 31},
		"NVRM: Xid (PCI:0000:1b:00): 31, pid=7, name=x, ": {BusID: "0000:1b:00.0", Code: 31, PID: 7, Name: "x"},
		"NVRM: Xid (PCI:0000:1b:00): 31, pid=7, name=a, Ch 0000000a, b": {BusID: "0000:1b:00.0", Code: 31, PID: 7,
			Name: "a", Text: "Ch 0000000a, b"},
		"NVRM: Xid (PCI:0000:1b:00): 31, pid=7, name=, b": {BusID: "0000:1b:00.0", Code: 31, PID: 7, Text: "b"},
		"NVRM: Xid (PCI:0000:1b:00): 31, pid=-7, name=a,b, c": {BusID: "0000:1b:00.0", Code: 31,
			Name: "a,b", Text: "c"},
		"NVRM: Xid (PCI:0000:1b:00): 31, pid=99999999, x":              {BusID: "0000:1b:00.0", Code: 31, Text: "x"},
		"NVRM: Xid (PCI:10000:1b:00): 31, x":                           {BusID: "10000:1b:00.0", Code: 31, Text: "x"},
		"NVRM: Xid (PCI:0000:1b:00.1 GPU-I:x GPU-CI:999 NEW:1): 31, x": {BusID: "0000:1b:00.1", Code: 31, Text: "x"},
		"NVRM: Xid (PCI:0000:1b:00 GPU-I:05 GPU-CI:00): 13": {BusID: "0000:1b:00.0", Code: 13,
			Instance: "GPU-I 5 GPU-CI 0"},
	} {
		if got, ok := parseXid(text); !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v", text, got, ok)
		}
	}
	for _, text := range []string{
		"", "NVRM: Xid (", "NVRM: Xid (PCI:0000:1b:00)", "NVRM: Xid (): 31", "NVRM: Xid (PCI:0000:1b): 31",
		"NVRM: Xid (PCI:0000:1b:00): x",
		"NVRM: Xid (PCI:0000:1b:00): , pid=1", "NVRM: Xid (PCI:0000:1b:00): 31 or so",
		"NVRM: Xid (PCI:0000:1b:00): 10000",
		"NVRM: Xid (PCI:zzzz:1b:00): 31", "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 24007, Fatal",
	} {
		if got, ok := parseXid(text); ok {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

// Lines as people paste them. The first that is known counts.
func TestPastedLines(t *testing.T) {
	for text, want := range map[string]Xid{
		"kernel: NVRM: Xid (PCI:0000:1b:00): 45, pid=7, name=a, Ch 00000001 caused by previous Xid 149\r\nkernel: NVRM: x\n": {
			BusID: "0000:1b:00.0", Code: 45, CausedBy: 149, PID: 7, Name: "a", Text: "Ch 00000001 caused by previous Xid 149"},
		"[ 1.0] NVRM: loading\n[ 1.1] NVRM: The NVIDIA GPU 0000:3b:00.0\n[ 1.1] NVRM: (PCI ID: 10de:2330) installed in this " +
			"system has\n[ 1.1] NVRM: fallen off the bus and is not responding to commands.": {
			BusID: "0000:3b:00.0", Code: BusLost,
			Text: "(PCI ID: 10de:2330) installed in this system has fallen off the bus and is not responding to commands."},
		"kern  :warn  : [Sun Nov 29 16:42:51 2026] pcieport 0000:64:01.0: pciehp: Slot(17-1): Link Down": {
			BusID: "0000:64:01.0", Code: PortDown, Text: "pciehp: Slot(17-1): Link Down"},
		"<4>[1.0] 'amdgpu: Failed to evict queue 1'": {Code: AMDHang, Text: "Failed to evict queue 1"},
		"[ 1.0] pcieport 0000:64:01.0: AER: Multiple Uncorrectable (Fatal) error message received from 0000:1b:00.0": {
			BusID: "0000:1b:00.0", Code: PCIeFatal,
			Text: "AER: Multiple Uncorrectable (Fatal) error message received from 0000:1b:00.0"},
		"pcieport 0000:64:01.0: AER: Uncorrectable (Fatal) error message received from 0000:1b:00.0 (no details found": {
			BusID: "0000:1b:00.0", Code: PCIeFatal,
			Text: "AER: Uncorrectable (Fatal) error message received from 0000:1b:00.0 (no details found"},
		"pcieport 0000:64:01.0: AER: Uncorrectable (Non-Fatal) error message received from 0000:1b:00.0": {},
		"": {}, "NVRM: ": {}, "xNVRM: Xid (PCI:0000:1b:00): 45": {},
	} {
		if got := PastedErrors(text); len(got) != min(want.Code, 1) || len(got) == 1 && !reflect.DeepEqual(got[0], want) {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

// A process's number is its own only where the line is about its work.
func TestOwnerPID(t *testing.T) {
	for line, want := range map[string]int{
		"13, pid=7, name=x, Graphics Exception": 7, "94, pid=7, Contained": 7, "109, pid=7, name=x, Ch 00000008, x": 7,
		"109, pid=7, name=x, errorString": 0, "79, pid=7, name=Ch 1, Ch 00000001, GPU has fallen off the bus": 0,
		"119, pid=7, name=nvidia-smi, Timeout": 0, "154, pid=7, name=x, GPU recovery action changed": 0, "13, x": 0,
	} {
		x, _ := ParseKernelLine("NVRM: Xid (PCI:0000:1b:00): " + line)
		must.Not(t, x.OwnerPID() != want, "%s: %d", line, x.OwnerPID())
	}
}

// Whatever is pasted or logged, an error has a code of the table's ranges and an address in its one form, or none.
func FuzzKernelLine(f *testing.F) {
	f.Add("NVRM: Xid (PCI:0000:1b:00 GPU-I:05): 45, pid=7, name=a, Ch 00000001 caused by previous Xid 149")
	f.Add("NVRM: The NVIDIA GPU 0000:3b:00.0\nNVRM: (PCI ID: 10de:2330) has\nNVRM: fallen off the bus and is not responding")
	f.Add("nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 20034, Fatal, Link 30 LTSSM Fault Up")
	f.Add("pcieport 0000:64:01.0: AER: Uncorrected (Fatal) error received: 0000:1b:00.0")
	f.Add("[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring sdma0 timeout, signaled seq=1, emitted seq=2")
	f.Fuzz(func(t *testing.T, text string) {
		x, ok := ParseKernelLine(text)
		for _, x := range append(PastedErrors(text), x) {
			bus, err := ParseBusID(string(x.BusID))
			if ok = ok || x.Code > 0; ok && (x.Code < 0 || x.Code > FirstSXid+99_999 || x.CausedBy < 0 || x.CausedBy > maxXid || bus != x.BusID ||
				err != nil && x.BusID != "" || x.OwnerPID() > MaxPID || len(x.Text)+len(x.Name) > len(text)) {
				t.Errorf("%q: %+v", text, x)
			}
		}
	})
}

// Memory of a process that was there before and has gone since is not expected any more: it would hide as much of a
// leak.
func TestExpectedUse(t *testing.T) {
	e := Expected{Bytes: 5, Processes: []ExpectedProcess{{PID: 7, Bytes: 90, Share: 10}, {PID: 8, Bytes: 1000}}}
	for _, tt := range []struct {
		listed []Process
		want   uint64
	}{
		{nil, 5},
		{[]Process{{PID: 7, Memory: Bytes(90)}}, 105},
		{[]Process{{PID: 8, Memory: Bytes(1000)}, {PID: 7, Memory: Bytes(90)}}, 1105},
		{[]Process{{PID: 7, Memory: Bytes(40)}}, 55},
		{[]Process{{PID: 7, Memory: Bytes(400)}}, 105},
		{[]Process{{PID: 7, Memory: Unknown("not available")}}, 105},
		{[]Process{{PID: 9, Memory: Bytes(7)}}, 5},
	} {
		if got := e.Used(tt.listed); got != tt.want {
			t.Errorf("Used(%v) = %d, want %d", tt.listed, got, tt.want)
		}
	}
}

var busForm = regexp.MustCompile(`^[0-9A-Fa-f]+:[0-9A-Fa-f]+:[0-9A-Fa-f]+\.0*[0-7]$`)

// A bus id has one normal form, which names the same place and is its own normal form.
func FuzzParseBusID(f *testing.F) {
	for _, seed := range []string{"0000:1b:00.0", "00000000:1B:00.0", "0000:9D:00.7", "ffffffff:ff:1f.7", "0:0:0.0",
		"0000:1b:00", "0000:1b:20.0",
		"0000:1b:00.8", "+000:1b:00.0", "0000:1b:00.0 ", "1b:00.0", "0000:0x1b:00.0", "0_0:1b:00.0", ":::", "é:1:1.1",
		"0:0:0.00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := ParseBusID(s)
		if err != nil {
			if id != "" {
				t.Errorf("%q: %q and %v", s, id, err)
			}
			return
		}
		if again, err := ParseBusID(string(id)); err != nil || again != id || !busForm.MatchString(s) {
			t.Errorf("%q: %q, then %q, %v", s, id, again, err)
		}
		if numbers(t, s) != numbers(t, string(id)) || string(id) != strings.ToLower(string(id)) {
			t.Errorf("%q names another place than %q", id, s)
		}
	})
}

func numbers(t *testing.T, s string) string {
	t.Helper()
	var out []uint64
	for field := range strings.FieldsFuncSeq(s, func(r rune) bool { return r == ':' || r == '.' }) {
		n := must.Have(strconv.ParseUint(field, 16, 32))(t)
		out = append(out, n)
	}
	return fmt.Sprint(out)
}

// The number of a GPU for NVML and DCGM follows from the bus, not from minors or from the order of the list.
func TestOrdinal(t *testing.T) {
	card := func(id, bus string) Physical {
		return Physical{Device: Device{ID: ID(id), BusID: BusID(bus), Vendor: NVIDIA.Name}}
	}
	a, b, c := card("GPU-a", "0000:1b:00.0"), card("", "0000:1c:00.0"), card("GPU-c", "0009:01:00.0")
	out, amd := card("GPU-x", "0000:01:00.0"), card("0x12", "0000:02:00.0")
	out.Excluded, amd.Device.Vendor = true, AMD.Name
	node := []Physical{c, out, b, amd, a}
	for _, tt := range []struct {
		of    Device
		cards []Physical
		want  int
	}{
		{a.Device, node, 0}, {b.Device, node, 1}, {c.Device, node, 2}, {Device{ID: "GPU-c"}, node, 2},
		{Device{ID: "GPU-b", BusID: b.Device.BusID}, node, 1}, // its UUID became known since
		{Device{ID: "GPU-new", BusID: a.Device.BusID}, node, -1},
		{Device{ID: "MIG-a", Parent: "GPU-a"}, node, -1}, {Device{}, node, -1}, {amd.Device, node, -1},
		{out.Device, node, -1}, {a.Device, nil, -1},
	} {
		if got := tt.of.Ordinal(tt.cards); got != tt.want {
			t.Errorf("%+v: %d, want %d", tt.of, got, tt.want)
		}
	}
}
