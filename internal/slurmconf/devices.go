package slurmconf

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
)

// Result is what a job's GPU list means on this node.
type Result struct {
	Devices []record.Assigned // certain, in Slurm's order
	Unknown string            // why the job has GPUs that Devices does not list
	// Missing are Slurm's indexes of devices that this node does not have, or that the driver is set to exclude.
	Missing []int
	Source  record.Source // what the devices were derived from
}

var errMissing = errors.New("not on this node")

// Devices resolves a job's list: ids in CUDA_VISIBLE_DEVICES, else the admin's map (ids or bus ids), else Slurm's list.
func Devices(job slurm.Job, cards []gpu.Physical, own map[int]string, list List) Result {
	wanted, err := requests(job)
	if err != nil {
		return Result{Unknown: err.Error(), Source: record.Ambiguous}
	}
	source := list.Source
	switch {
	case len(wanted) == 0:
		source = ""
	case !slices.ContainsFunc(wanted, unnamed):
		source = record.ByUUID
	case len(own) > 0:
		source = record.ByMap
	}
	n := node{cards: Usable(cards), own: own, list: list}
	return gather(wanted, source, n.find)
}

// again finds the devices from a job's start among the present GPUs, each by its id or else by its bus id.
func again(devices []record.Assigned, source record.Source, cards []gpu.Physical) Result {
	n := node{cards: Usable(cards)}
	return gather(devices, source, func(a record.Assigned) (gpu.Device, error) {
		switch id := a.Device.ID; {
		case a.Device.Parent != "" || isInstance(string(id)): // only the driver lists these
			return a.Device, nil
		case id != "":
			return n.whole(string(id))
		}
		return n.device(func(d gpu.Device) bool { return d.BusID == a.Device.BusID })
	})
}

// gather finds each device. If two numbers lead to the same device, the result is ambiguous.
func gather(wanted []record.Assigned, source record.Source, find func(record.Assigned) (gpu.Device, error)) Result {
	result, seen := Result{Source: source}, map[string]bool{}
	for _, a := range wanted {
		device, err := find(a)
		switch {
		case errors.Is(err, errMissing):
			result.Missing = append(result.Missing, a.Index)
		case err != nil:
			result.Unknown = cmp.Or(result.Unknown, err.Error())
		default:
			result.Devices = append(result.Devices, record.Assigned{Index: a.Index, Device: device})
		}
		for _, name := range []string{string(device.ID), string(device.BusID)} {
			if name != "" && seen[name] {
				return Result{Unknown: "two of the job's GPUs lead to the same device, " + name,
					Source: record.Ambiguous}
			}
			seen[name] = true
		}
	}
	if result.Unknown != "" {
		result.Source = record.Ambiguous
	}
	return result
}

// Slurms reports by bus id whether Slurm gives out a GPU, whole or in parts. It returns nil if that is unknown.
func Slurms(cards []gpu.Physical, list List) map[gpu.BusID]bool {
	if len(list.GPUs) == 0 {
		return nil
	}
	given := map[gpu.BusID]bool{}
	for _, c := range cards {
		if c.Device.BusID == "" { // a partition has no bus id: Slurm may give it out
			continue
		}
		given[c.Device.BusID] = c.Device.Minor == nil || slices.ContainsFunc(list.GPUs, func(files GPU) bool {
			return slices.ContainsFunc(files, func(f string) bool { return path.Base(f) == c.Device.Node() })
		})
	}
	return given
}

// givesNumbers reports whether Slurm gives the job a number without naming its device.
func givesNumbers(job slurm.Job) bool {
	wanted, err := requests(job)
	return err == nil && slices.ContainsFunc(wanted, unnamed)
}

func unnamed(a record.Assigned) bool { return a.Device.ID == "" }

// requests merges Slurm's two lists, which name the same devices in the same order.
func requests(job slurm.Job) ([]record.Assigned, error) {
	if job.GPUProblem != "" {
		return nil, errors.New(job.GPUProblem)
	}
	n := len(job.GPUIndexes)
	if v := len(job.Visible); v != 0 && v != n {
		return nil, fmt.Errorf("the job has %d GPU indexes but %d visible devices", n, v)
	}
	wanted := make([]record.Assigned, n)
	for i, index := range job.GPUIndexes {
		wanted[i].Index = index
	}
	for i, element := range job.Visible {
		switch visible, err := strconv.ParseUint(element, 10, 16); {
		case err != nil:
			wanted[i].Device.ID = gpu.ID(element)
		case int(visible) != wanted[i].Index:
			return nil, fmt.Errorf("the job has GPU index %d but visible device %d", wanted[i].Index, visible)
		}
	}
	return wanted, nil
}

// Usable returns the GPUs that the driver was not configured to exclude.
func Usable(cards []gpu.Physical) []gpu.Physical {
	return slices.DeleteFunc(slices.Clone(cards), func(c gpu.Physical) bool { return c.Excluded })
}

type node struct {
	cards []gpu.Physical // usable
	own   map[int]string // the admin's map
	list  List
}

// find returns errMissing for a device that this node does not have, and another error if that is unknown.
func (n *node) find(a record.Assigned) (gpu.Device, error) {
	name, ok := n.own[a.Index]
	switch {
	case !unnamed(a):
		return n.named(string(a.Device.ID))
	case len(n.own) == 0:
		return n.listed(a.Index)
	case !ok:
		return gpu.Device{}, fmt.Errorf("nvidia.gpu_map has no GPU index %d", a.Index)
	}
	return n.named(name)
}

func (n *node) named(name string) (gpu.Device, error) {
	if busID, err := gpu.ParseBusID(name); err == nil {
		return n.device(func(d gpu.Device) bool { return d.BusID == busID })
	}
	switch {
	case isInstance(name): // only the driver reports which GPU it is part of
		return gpu.Device{ID: gpu.ID(name)}, nil
	case strings.HasPrefix(name, "GPU-"):
		return n.whole(name)
	}
	return gpu.Device{}, fmt.Errorf("%q is not a device id that is known here", name)
}

// whole finds a GPU by id. One not found may be any whose id the driver has not cached: the id alone then names it.
func (n *node) whole(id string) (gpu.Device, error) {
	device, err := n.device(func(d gpu.Device) bool { return d.ID == gpu.ID(id) })
	if err == nil || !slices.ContainsFunc(n.cards, func(c gpu.Physical) bool { return c.Device.ID == "" }) {
		return device, err
	}
	return gpu.Device{ID: gpu.ID(id)}, nil
}

func (n *node) device(match func(gpu.Device) bool) (gpu.Device, error) {
	i := slices.IndexFunc(n.cards, func(c gpu.Physical) bool { return match(c.Device) })
	if i < 0 {
		return gpu.Device{}, errMissing
	}
	return n.cards[i].Device, nil
}

func isInstance(id string) bool { return strings.HasPrefix(id, "MIG-") }

const hint = "run bookend doctor, or set nvidia.gpu_map"

func (n *node) listed(index int) (gpu.Device, error) {
	switch slurms := len(n.list.GPUs); {
	case !n.list.Source.Settled():
		return gpu.Device{}, fmt.Errorf("the meaning of Slurm's GPU numbers is not known: %s: %s",
			cmp.Or(n.list.Why, "slurmd was not asked"), hint)
	case index < 0 || index >= slurms:
		return gpu.Device{}, fmt.Errorf("index %d is not one of the %d GPUs that slurmd lists", index, slurms)
	}
	return n.byFile(n.list.GPUs[index])
}

// byFile finds the GPU of a device file. It distinguishes a missing GPU from one that cannot be read.
func (n *node) byFile(files GPU) (gpu.Device, error) {
	if len(files) != 1 {
		return gpu.Device{}, fmt.Errorf("part of a GPU is given out as %q: "+
			"which part is not known without the UUID that AutoDetect=nvml adds", files)
	}
	name := path.Base(files[0])
	if !gpu.IsDeviceNode(name) {
		return gpu.Device{}, fmt.Errorf("gres.conf has %.200q, which is not the device file of a whole GPU: %s",
			files[0], hint)
	}
	device, err := n.device(func(d gpu.Device) bool { return d.Minor != nil && name == d.Node() })
	unread := func(c gpu.Physical) bool { return c.Device.Minor == nil }
	if i := slices.IndexFunc(n.cards, unread); err != nil && i >= 0 {
		return gpu.Device{}, fmt.Errorf("which GPU %s is not known: the minor of GPU %s could not be read",
			name, n.cards[i].Device.BusID)
	}
	return device, err
}

// GPU is one GPU as Slurm counts it: its device files. A part of a GPU (MIG) has several.
type GPU []string

// DeviceFiles expands a list such as "/dev/nvidia[0-3,5],/dev/nvidia8". It leaves what it does not understand as it is.
func DeviceFiles(list string) (all []string) {
	for _, element := range slurm.Elements(list) {
		files, ok := slurm.Expand(element)
		if !ok {
			files = []string{element}
		}
		all = append(all, files...)
	}
	return all
}

// Count counts the GPUs of a node's Gres in slurm.conf, such as "gpu:h100:4(S:0-1),gpu:2,shard:8".
func Count(list string) (n int) {
	for _, e := range slurm.Elements(list) {
		e, _, _ = strings.Cut(strings.TrimSpace(e), "(")
		parts := strings.Split(e, ":")
		if !strings.EqualFold(parts[0], "gpu") {
			continue
		}
		count, err := strconv.Atoi(parts[len(parts)-1])
		if err != nil {
			count = 1
		}
		n += count
	}
	return n
}

// SharedGPUs finds in slurm.conf whether a node's GPUs may be given out in shards or by MPS: a shard job looks to hooks
// like one with whole GPUs. Slurm refuses a second definition of a node and complains about a second GresTypes, in
// included files too. What is listed in gres.conf alone is not given out:
//
//	GresTypes=gpu,shard                   without shard and mps there are none
//	NodeName=n[1-4] Gres=gpu:4,shard:16   what slurmctld gives out of a node
func SharedGPUs(conf Conf, node string) slurm.Sharing {
	types, stated := conf.Get("GresTypes")
	own := conf.Node(node)
	why := fmt.Sprintf("slurm.conf has Gres=%.80s", own.Gres)
	switch {
	case stated && !HasWord(types.Text, "shard") && !HasWord(types.Text, "mps"):
		return slurm.Sharing{Shared: slurm.No, Why: fmt.Sprintf("slurm.conf has GresTypes=%.80s", types.Text)}
	case own.Unsure != "":
		return slurm.Sharing{Shared: slurm.Unknown, Why: own.Unsure}
	case !own.Found:
		return slurm.Sharing{Shared: slurm.Unknown, Why: "slurm.conf does not say what Gres this node has"}
	case HasWord(own.Gres, "shard") || HasWord(own.Gres, "mps"):
		return slurm.Sharing{Shared: slurm.Yes, Why: why}
	}
	return slurm.Sharing{Shared: slurm.No, Why: why}
}

// OfJob returns a job's GPUs, and where their numbers' meaning came from, with the GPUs that the job may have too. What
// the numbers meant at the start of the run on record they mean at its end, whatever the configuration says by then.
func OfJob(job slurm.Job, run record.Run, cards []gpu.Physical, own map[int]string, list List) (Result, record.Origin) {
	res := Devices(job, cards, own, list)
	if settled(run, job) && givesNumbers(job) {
		res = again(run.Devices, run.Numbering.Source, cards)
	}
	o := record.Origin{Source: res.Source, Why: res.Unknown, Perhaps: run.Numbering.Perhaps}
	if !settled(run, job) {
		o.Perhaps = list.Perhaps(res.Devices, Every(cards, own, list))
	}
	return res, o
}

// NeedsList reports whether the job's GPUs follow from the meaning of Slurm's numbers: it names no devices, and the
// run's start did not determine them.
func NeedsList(job slurm.Job, run record.Run) bool { return givesNumbers(job) && !settled(run, job) }

// settled reports whether the start of this run determined what its numbers mean. With another count it is a record of
// another run, or Slurm before 21.08.
func settled(r record.Run, job slurm.Job) bool {
	another := func(d record.Assigned) bool { return !slices.Contains(job.GPUIndexes, d.Index) }
	return r.Numbering.Source.Settled() && len(r.Devices) > 0 && (!r.Closed() || r.Sure(job)) &&
		len(job.GPUIndexes) == len(r.Devices) && !slices.ContainsFunc(r.Devices, another)
}

// Every returns the driver's GPUs with Slurm's numbers, as for a job that has all; -1 if not certain.
func Every(cards []gpu.Physical, own map[int]string, list List) (all []record.Assigned) {
	job := slurm.Job{GPUIndexes: slices.Sorted(maps.Keys(own))}
	for i := range list.GPUs {
		if len(own) == 0 {
			job.GPUIndexes = append(job.GPUIndexes, i)
		}
	}
	numbered := Devices(job, cards, own, list).Devices
	for _, c := range cards {
		if !c.Excluded {
			all = append(all, record.Assigned{Index: numberOf(c.Device, numbered), Device: c.Device})
		}
	}
	return all
}

// Renumber returns GPUs with Slurm's numbers by this answer, nil for none; as they are if that says nothing.
func (k *Kept) Renumber(all []record.Assigned, own map[int]string) []record.Assigned {
	var cards []gpu.Physical
	for _, a := range all {
		cards = append(cards, gpu.Physical{Device: a.Device})
	}
	switch {
	case len(own) > 0:
		return Every(cards, own, List{})
	case k != nil && k.List.Source.Settled():
		return Every(cards, nil, k.List)
	}
	return all
}

// numberOf returns Slurm's number of a GPU, -1 if that is not certain.
func numberOf(d gpu.Device, cards []record.Assigned) int {
	for _, c := range cards {
		if c.Device.ID == d.ID && d.ID != "" || c.Device.BusID == d.BusID && d.BusID != "" {
			return c.Index
		}
	}
	return -1
}

// WithReadings joins the driver's list with a sample of all GPUs: MIG instances, without numbers, replace their GPU.
func WithReadings(cards []record.Assigned, s gpu.Snapshot) (all []record.Assigned) {
	cut := map[gpu.ID]bool{}
	for _, r := range s.Readings {
		cut[r.Device.Parent] = r.Device.Parent != ""
	}
	unread := slices.Clone(cards)
	for _, r := range s.Readings {
		unread = slices.DeleteFunc(unread, func(c record.Assigned) bool { return c.Device.BusID == r.Device.BusID })
		if cut[r.Device.ID] {
			continue
		}
		card := record.Assigned{Index: -1, Device: r.Device}
		if r.Device.Parent == "" {
			card.Index = numberOf(r.Device, cards)
		}
		all = append(all, card)
	}
	return append(all, unread...)
}
