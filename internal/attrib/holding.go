package attrib

import (
	"slices"

	"bookend/internal/gpu"
)

// Holding is one process with what it has open or mapped of the driver's device nodes. A descriptor proves a
// holder, not bytes.
type Holding struct {
	Process
	Minors  []int `json:"minors,omitempty"`  // of the cards, sorted
	Control bool  `json:"control,omitempty"` // the control node: names no GPU
	UVM     bool  `json:"uvm,omitempty"`     // a node of shared memory: names no GPU
	Caps    bool  `json:"caps,omitempty"`    // a file of the driver's capabilities
	// Renders are the minors of render nodes, as AMD's cards have, Buffers a dma-buf: memory of any card whose driver
	// gives such out.
	Renders []int `json:"renders,omitempty"`
	Buffers bool  `json:"dma_bufs,omitempty"`
}

// Has reports who has the card's own node open; where that is not known, who has anything of its vendor's.
func (h Holding) Has(d gpu.Device) bool {
	if d.Minor == nil {
		return h.Of(gpu.VendorOf(d))
	}
	return slices.Contains(h.cards(gpu.VendorOf(d)), *d.Minor)
}

// MayHold reports who may hold memory of a card that nobody is listed for: who has the card open, or something that
// names no card and none of the vendor's that does.
func (h Holding) MayHold(d gpu.Device) bool {
	v := gpu.VendorOf(d)
	return h.Has(d) || h.Of(v) && len(h.cards(v)) == 0 || v == &gpu.AMD && h.Buffers
}

// Of reports who has anything of a vendor's open.
func (h Holding) Of(v *gpu.Vendor) bool {
	if v == &gpu.AMD {
		return len(h.Renders) > 0 || h.Buffers
	}
	return len(h.Minors) > 0 || h.Control || h.UVM || h.Caps
}

func (h Holding) cards(v *gpu.Vendor) []int {
	if v == &gpu.AMD {
		return h.Renders
	}
	return h.Minors
}

// Open names the device nodes that a process holds, as in /dev.
func (h Holding) Open() (names []string) {
	v := &gpu.NVIDIA
	for _, minor := range h.Minors {
		names = append(names, v.CardNode(minor))
	}
	for _, minor := range h.Renders {
		names = append(names, gpu.AMD.CardNode(minor))
	}
	has := [...]bool{h.Control, h.UVM, h.Caps, h.Buffers}
	for i, name := range [...]string{v.Nodes.Control, v.Nodes.Shared[0], v.Nodes.Caps, "dma-buf"} {
		if has[i] {
			names = append(names, name)
		}
	}
	return names
}
