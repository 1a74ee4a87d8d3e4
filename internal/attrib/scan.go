package attrib

import "fmt"

// Holding is one process with what it has open or mapped of the driver's device nodes. A descriptor proves a
// holder, not bytes.
type Holding struct {
	Process
	Minors  []int `json:"minors,omitempty"`  // each N of /dev/nvidiaN, sorted
	Control bool  `json:"control,omitempty"` // /dev/nvidiactl: names no GPU
	UVM     bool  `json:"uvm,omitempty"`     // /dev/nvidia-uvm: names no GPU
	Caps    bool  `json:"caps,omitempty"`    // something below /dev/nvidia-caps
	Mapped  bool  `json:"mapped,omitempty"`  // some of it is mapped and has no descriptor
}

// Scan is one search of /proc for holders of device nodes.
type Scan struct {
	Holdings []Holding `json:"holdings"`
	Looked   int       `json:"looked"` // processes that were looked into
	// Partial is why holders may have been missed, empty when every process was looked into to its end.
	Partial string `json:"partial,omitempty"`
	// Hung are the processes whose memory was still being read when time was up.
	Hung []Instance `json:"hung,omitempty"`
}

// Open names the device nodes that a process holds, as in /dev.
func (h Holding) Open() []string {
	var names []string
	for _, n := range h.Minors {
		names = append(names, fmt.Sprintf("nvidia%d", n))
	}
	for _, kind := range []struct {
		open bool
		name string
	}{{h.Control, "nvidiactl"}, {h.UVM, "nvidia-uvm"}, {h.Caps, "nvidia-caps"}} {
		if kind.open {
			names = append(names, kind.name)
		}
	}
	return names
}
