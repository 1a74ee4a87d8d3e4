// Package resolve finds the devices behind the GPU list that Slurm gives a job. It never guesses: a list that
// could mean two things is unknown, with the reason.
package resolve

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"bookend/internal/config"
	"bookend/internal/gpu"
	"bookend/internal/gresconf"
	"bookend/internal/numbering"
	"bookend/internal/slurm"
)

// Result is what a job's GPU list means on this node.
type Result struct {
	// Devices are certain, in Slurm's order.
	Devices []Assigned
	// Unknown says why the job has GPUs that Devices does not list.
	Unknown string
	// Missing are Slurm's indexes of devices that this node does not have, or that the driver was told to exclude.
	Missing []int
	// Source says what the devices follow from.
	Source numbering.Source
}

// Assigned is one device of the job. Device.ID is empty where the driver had not cached the card's id: then
// Device.BusID names it, and the first reading of the card tells the id. A MIG instance has an ID but no bus id,
// which would name the whole card; its Device.Parent is empty where only the first reading tells it.
type Assigned struct {
	Index  int // Slurm's index of the device; -1 where Slurm gave only an id
	Device gpu.Device
}

var errMissing = errors.New("not on this node")

// Devices resolves a job's list. Ids in CUDA_VISIBLE_DEVICES win over indexes; an index is looked up in the admin's map
// (values: device ids or bus ids) under config.OrderMap, else in Slurm's own list.
func Devices(job slurm.Job, cards []gpu.Card, own config.NVIDIA, list numbering.List) Result {
	wanted, err := requests(job)
	if err != nil {
		return Result{Unknown: err.Error(), Source: numbering.Ambiguous}
	}
	node := node{cards: cards, own: own, list: list}
	result := Result{Source: sourceOf(wanted, own, list)}
	for _, r := range wanted {
		device, err := node.find(r)
		result.add(r, device, err)
	}
	if twin := result.twin(); twin != "" {
		result = Result{Unknown: fmt.Sprintf("two of the job's GPUs lead to the same device, %s", twin)}
	}
	if result.Unknown != "" {
		result.Source = numbering.Ambiguous
	}
	return result
}

// Again finds the devices of a job's start among the GPUs there are now, each by what identifies it.
func Again(devices []Assigned, source numbering.Source, cards []gpu.Card) Result {
	result := Result{Source: source}
	n := node{cards: cards}
	for _, a := range devices {
		device, err := a.Device, error(nil)
		switch {
		case a.Device.Parent != "" || isInstance(string(a.Device.ID)): // only the driver lists these
		case a.Device.ID != "":
			device, err = n.whole(string(a.Device.ID))
		default:
			device, err = n.card(func(d gpu.Device) bool { return d.BusID == a.Device.BusID })
		}
		result.add(request{index: a.Index, name: string(a.Device.ID)}, device, err)
	}
	return result
}

// Slurms are the GPUs that Slurm gives out, whole or in parts, by their place; nil where that is not known.
func Slurms(cards []gpu.Card, list numbering.List) map[gpu.BusID]bool {
	if len(list.GPUs) == 0 {
		return nil
	}
	given := map[gpu.BusID]bool{}
	for _, c := range cards {
		given[c.Device.BusID] = c.Device.Minor == nil || slices.ContainsFunc(list.GPUs, func(files gresconf.GPU) bool {
			return slices.ContainsFunc(files, func(f string) bool { return path.Base(f) == c.Device.Node() })
		})
	}
	return given
}

// ByList reports whether a job's GPUs can only be told by Slurm's own list.
func ByList(job slurm.Job, own config.NVIDIA) bool {
	return ByNumber(job) && own.GPUOrder != config.OrderMap
}

// ByNumber reports whether Slurm gives the job a number whose device it does not name.
func ByNumber(job slurm.Job) bool {
	wanted, err := requests(job)
	return err == nil && slices.ContainsFunc(wanted, func(r request) bool { return r.name == "" })
}

func sourceOf(wanted []request, own config.NVIDIA, list numbering.List) numbering.Source {
	switch {
	case len(wanted) == 0:
		return ""
	case !slices.ContainsFunc(wanted, func(r request) bool { return r.name == "" }):
		return numbering.ByUUID
	case own.GPUOrder == config.OrderMap:
		return numbering.ByMap
	}
	return list.Source
}

func (r *Result) add(wanted request, device gpu.Device, err error) {
	switch {
	case errors.Is(err, errMissing) && wanted.index >= 0:
		r.Missing = append(r.Missing, wanted.index)
	case errors.Is(err, errMissing):
		r.doubt(fmt.Sprintf("device %q is not on this node", wanted.name))
	case err != nil:
		r.doubt(err.Error())
	default:
		r.Devices = append(r.Devices, Assigned{Index: wanted.index, Device: device})
	}
}

func (r *Result) doubt(why string) {
	if r.Unknown == "" {
		r.Unknown = why
	}
}

// twin names a device that is listed twice.
func (r *Result) twin() string {
	seen := map[string]bool{}
	for _, a := range r.Devices {
		for _, name := range []string{string(a.Device.ID), string(a.Device.BusID)} {
			if name != "" && seen[name] {
				return name
			}
			seen[name] = true
		}
	}
	return ""
}

// request is one element of Slurm's lists.
type request struct {
	index int    // -1 when not told
	name  string // the device's id; empty when only the index is told
}

// requests joins Slurm's two lists, which name the same devices in the same order.
func requests(job slurm.Job) ([]request, error) {
	if job.GPUProblem != "" {
		return nil, errors.New(job.GPUProblem)
	}
	if len(job.Visible) == 0 {
		return byIndexes(job.GPUIndexes), nil
	}
	if n := len(job.GPUIndexes); n != 0 && n != len(job.Visible) {
		return nil, fmt.Errorf("the job has %d GPU indexes but %d visible devices", n, len(job.Visible))
	}
	visible := make([]request, len(job.Visible))
	for i, element := range job.Visible {
		visible[i] = request{index: -1, name: element}
		if n, err := strconv.ParseUint(element, 10, 16); err == nil {
			visible[i] = request{index: int(n)}
		}
	}
	if len(job.GPUIndexes) == 0 { // Slurm 20.11
		return visible, nil
	}
	return joined(job.GPUIndexes, visible)
}

func byIndexes(indexes []int) []request {
	wanted := make([]request, len(indexes))
	for i, index := range indexes {
		wanted[i].index = index
	}
	return wanted
}

// joined gives each visible id its index, and refuses a visible index that is not the one in its place.
func joined(indexes []int, visible []request) ([]request, error) {
	for i := range visible {
		if visible[i].name != "" {
			visible[i].index = indexes[i]
		}
		if visible[i].index != indexes[i] {
			return nil, fmt.Errorf("the job has GPU index %d but visible device %d", indexes[i], visible[i].index)
		}
	}
	return visible, nil
}

// node is where a request is looked up.
type node struct {
	cards []gpu.Card
	own   config.NVIDIA
	list  numbering.List
}

// find returns errMissing for a device this node does not have, another error where it cannot be told.
func (n *node) find(r request) (gpu.Device, error) {
	if r.name != "" {
		return n.named(r.name)
	}
	if n.own.GPUOrder != config.OrderMap {
		return n.listed(r.index)
	}
	name, ok := n.own.GPUMap[r.index]
	if !ok {
		return gpu.Device{}, fmt.Errorf("nvidia.gpu_map has no GPU index %d", r.index)
	}
	return n.named(name)
}

func (n *node) named(name string) (gpu.Device, error) {
	if busID, err := gpu.ParseBusID(name); err == nil {
		return n.card(func(d gpu.Device) bool { return d.BusID == busID })
	}
	switch {
	case isInstance(name):
		return n.instance(name)
	case strings.HasPrefix(name, "GPU-"):
		return n.whole(name)
	}
	return gpu.Device{}, fmt.Errorf("%q is not a device id that is known here", name)
}

// whole finds a card by id. While the driver has not cached every card's id, one that is not found may be any of
// those: the id alone still names it to the driver.
func (n *node) whole(id string) (gpu.Device, error) {
	device, err := n.card(func(d gpu.Device) bool { return d.ID == gpu.ID(id) })
	if err == nil || !slices.ContainsFunc(n.cards, func(c gpu.Card) bool { return !c.Excluded && c.Device.ID == "" }) {
		return device, err
	}
	return gpu.Device{ID: gpu.ID(id)}, nil
}

// card finds a usable card.
func (n *node) card(match func(gpu.Device) bool) (gpu.Device, error) {
	for _, c := range n.cards {
		if !c.Excluded && match(c.Device) {
			return c.Device, nil
		}
	}
	return gpu.Device{}, errMissing
}

func isInstance(id string) bool { return strings.HasPrefix(id, "MIG-") }

// instance describes a MIG instance. Drivers before 470 name its card in its id, "MIG-GPU-<uuid>/gi/ci"; later
// ones, "MIG-<uuid>", do not, and neither does anything that can be read without the driver.
func (n *node) instance(id string) (gpu.Device, error) {
	card, place, old := strings.Cut(strings.TrimPrefix(id, "MIG-"), "/")
	if !old {
		return gpu.Device{ID: gpu.ID(id)}, nil
	}
	if !strings.HasPrefix(card, "GPU-") || !isPlace(place) {
		return gpu.Device{}, fmt.Errorf("%q is not a device id that is known here", id)
	}
	parent, err := n.whole(card)
	if err != nil {
		return gpu.Device{}, err
	}
	return gpu.Device{ID: gpu.ID(id), Parent: gpu.ID(card), Name: parent.Name, Vendor: parent.Vendor}, nil
}

// isPlace reports whether text is a GPU instance and a compute instance, "7/0".
func isPlace(text string) bool {
	gi, ci, ok := strings.Cut(text, "/")
	_, bad := strconv.ParseUint(gi, 10, 16)
	_, worse := strconv.ParseUint(ci, 10, 16)
	return ok && bad == nil && worse == nil
}
