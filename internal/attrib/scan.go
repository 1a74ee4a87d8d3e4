package attrib

import "bookend/internal/gpu"

// Holding is one process with what it has open or mapped of the driver's device nodes. A descriptor proves a
// holder, not bytes.
type Holding struct {
	Process
	Minors  []int `json:"minors,omitempty"`  // of the cards, sorted
	Control bool  `json:"control,omitempty"` // the control node: names no GPU
	UVM     bool  `json:"uvm,omitempty"`     // a node of shared memory: names no GPU
	Caps    bool  `json:"caps,omitempty"`    // something in the folder of capabilities
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
	v := gpu.Vendors[0]
	for _, minor := range h.Minors {
		names = append(names, v.CardNode(minor))
	}
	for _, kind := range []struct {
		open bool
		name string
	}{{h.Control, v.Nodes.Control}, {h.UVM, v.Nodes.Shared[0]}, {h.Caps, v.Nodes.Caps}} {
		if kind.open {
			names = append(names, kind.name)
		}
	}
	return names
}
