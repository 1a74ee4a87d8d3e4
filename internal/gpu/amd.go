package gpu

import "strings"

// AMD is AMD's driver, as its backend and Slurm name its cards.
var AMD = Vendor{
	Name: "amd", PCI: "0x1002", Classes: []string{"0x0380", "0x12"}, Module: "amdgpu",
	Nodes:   Nodes{Card: "renderD", Folder: "dri"},
	Untried: "Bookend was never tried on AMD's hardware",
	Fault:   parseAMD,
}

// AMD's driver numbers none of its errors. These stand for its words, beyond all of NVIDIA's.
const (
	AMDUncorrected = maxXid + 1 + iota
	AMDReset
	AMDPageFault
	AMDNotGivenBack
)

var amdWords = []struct {
	words string // what follows the place and the prefixes, or is in it
	begin bool
	code  int
}{
	{"VM memory stats for proc ", true, AMDNotGivenBack}, // names of processes follow
	{"uncorrectable hardware error", false, AMDUncorrected},
	{"GPU reset begin", true, AMDReset},
	{"page fault (src_id:", false, AMDPageFault},
}

// parseAMD parses "amdgpu 0000:e3:00.0: amdgpu: text"; newer kernels leave the second name out, and number an event of
// the RAS: "{1}text". The first 21 bytes are more than the name of a process that begins a line can have.
func parseAMD(entry string) (x Xid, ok bool) {
	rest, ok := strings.CutPrefix(entry, "amdgpu ")
	place, text, found := strings.Cut(rest, ": ")
	if !ok || !found {
		return Xid{}, false
	}
	var err error
	if x.BusID, err = ParseBusID(place); err != nil {
		return Xid{}, false
	}
	x.Text, _, _ = strings.Cut(strings.TrimPrefix(text, "amdgpu: "), "\n")
	said := x.Text
	if number, after, numbered := strings.Cut(said, "}"); numbered && strings.HasPrefix(number, "{") {
		said = after
	}
	for _, w := range amdWords {
		if strings.HasPrefix(said, w.words) || !w.begin && strings.Contains(said, w.words) {
			x.Code = w.code
			return x, true
		}
	}
	return Xid{}, false
}
