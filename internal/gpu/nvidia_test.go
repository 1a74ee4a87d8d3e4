package gpu

import (
	"reflect"
	"testing"
)

func TestXidForms(t *testing.T) {
	for text, want := range map[string]Xid{
		"NVRM: Xid (PCI:0000:1b:00): 31":                  {BusID: "0000:1b:00.0", Code: 31},
		"NVRM: Xid (PCI:0000:1b:00): 31, ":                {BusID: "0000:1b:00.0", Code: 31},
		"NVRM: Xid (PCI:0000:1b:00): 31, pid=7, name=x, ": {BusID: "0000:1b:00.0", Code: 31, PID: 7, Name: "x"},
		"NVRM: Xid (PCI:0000:1b:00): 31, pid=7, name=a, b, c": {BusID: "0000:1b:00.0", Code: 31, PID: 7,
			Name: "a, b", Text: "c"},
		"NVRM: Xid (PCI:0000:1b:00): 31, pid=7, name=a, secret, MMU": {BusID: "0000:1b:00.0", Code: 31, PID: 7,
			Name: "a, secret", Text: "MMU"},
		"NVRM: Xid (PCI:0000:1b:00): 31, pid=7, name=123456789, 1234, b": {BusID: "0000:1b:00.0", Code: 31, PID: 7,
			Name: "123456789, 1234", Text: "b"},
		"NVRM: Xid (PCI:0000:1b:00): 31, pid=7, name=123456789, 12345, b": {BusID: "0000:1b:00.0", Code: 31, PID: 7,
			Name: "123456789", Text: "12345, b"},
		"NVRM: Xid (PCI:0000:1b:00): 31, pid=7, name=a, Ch 0000000a, b": {BusID: "0000:1b:00.0", Code: 31, PID: 7,
			Name: "a", Text: "Ch 0000000a, b"},
		"NVRM: Xid (PCI:0000:1b:00): 31, pid=7, name=a, Ch 1, b": {BusID: "0000:1b:00.0", Code: 31, PID: 7,
			Name: "a, Ch 1", Text: "b"},
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
