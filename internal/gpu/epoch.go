package gpu

// Epoch names one uninterrupted life of a node's driver. What was measured in one epoch says nothing about
// another: a boot, a driver update or a reload of the module frees all GPU memory and may renumber the devices.
type Epoch struct {
	Boot   string `json:"boot,omitempty"`   // the kernel's boot id; empty when unknown
	Driver string `json:"driver,omitempty"` // version of the loaded driver; empty when unknown
	Module string `json:"module,omitempty"` // identity of the loaded module; empty when unknown
}

// Same reports whether both are known to be one epoch. A part that is unknown on either side equals nothing, so
// two unknown epochs differ.
func (e Epoch) Same(other Epoch) bool {
	return known(e.Boot, other.Boot) && known(e.Driver, other.Driver) && known(e.Module, other.Module)
}

// Changed reports that a part of the epoch, known on both sides, is another. Epochs may be neither the same nor
// changed: then nobody knows.
func (e Epoch) Changed(other Epoch) bool {
	differ := func(a, b string) bool { return a != "" && b != "" && a != b }
	return differ(e.Boot, other.Boot) || differ(e.Driver, other.Driver) || differ(e.Module, other.Module)
}

func known(a, b string) bool { return a != "" && a == b }
