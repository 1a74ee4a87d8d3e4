package condition

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/record"
)

// Reset is what is known of a GPU that an admin wants to reset, and of its node.
type Reset struct {
	Card     record.Assigned
	Before   ResetState
	Open     string      // why a job may get the GPU or has it, empty if none can
	Idle     bool        // the node is drained, and no job is on it
	Scan     record.Scan // which processes have GPUs open
	Switches bool        // NVSwitches connect the node's GPUs
	Manager  string      // state of the fabric manager's unit, if there are NVSwitches
	Stops    []string    // the units to stop, of those that the admin listed: they are active
	Odd      []string    // those that are neither active nor inactive, with their state
	Earlier  []ResetAttempt
	Boot     string
	Now      time.Time
}

// ResetState is what one sample shows of a GPU.
type ResetState struct {
	Reading *gpu.Reading // nil if the driver could not read it
	Fault   gpu.Fault    // of the GPU, without a code if it has none
	Health  gpu.Health
	Links   string    // the number of active NVLinks, empty if unknown
	Linked  bool      // all of its NVLinks are active
	Xids    []gpu.Xid // in the kernel log since the reset; only after it
	Log     string    // why that log was not read
}

// StateOf returns the state of the GPU at a bus id: after a reset another may be there.
func StateOf(bus gpu.BusID, now gpu.Snapshot, health []gpu.Health) (s ResetState) {
	for _, f := range now.Faults {
		if f.BusID == bus {
			s.Fault = f
		}
	}
	for _, r := range now.Readings {
		if r.Device.BusID == bus && r.Device.Parent == "" {
			s.Reading = &r
		}
	}
	for _, h := range health {
		if s.Reading != nil && h.Device == s.Reading.Device.ID {
			s.Health = h
		}
	}
	return s
}

// Refusals returns all that speaks against a reset now, each with what to do; none if it may be done.
func (r Reset) Refusals() (all []string) {
	all = given(r.unfit(), recoveryRefused(r.Before.Health), r.Open, r.together(), r.again())
	for _, unit := range r.Odd {
		all = append(all, unit+", and reset.stop has it: whether it is to be started again is not known")
	}
	return append(all, r.Holders(false)...)
}

// Late returns what speaks against the reset right before it, as a job may have come since.
func (r Reset) Late() []string { return append(given(r.Open, r.together()), r.Holders(true)...) }

func given(texts ...string) []string {
	return slices.DeleteFunc(texts, func(text string) bool { return text == "" })
}

// unfit returns why this GPU cannot be reset here or no proof be had.
func (r Reset) unfit() string {
	now := r.Before.Reading
	switch {
	case gpu.VendorOf(r.Card.Device).Name != gpu.NVIDIA.Name:
		return "only GPUs of NVIDIA's can be reset: this one's vendor is another"
	case r.Before.Fault.Code == gpu.FaultLost:
		return "the GPU has fallen off the bus: reboot the node"
	case now != nil && now.Device.ID != r.Card.Device.ID:
		return fmt.Sprintf("its place %s is that of %s now", r.Card.Device.BusID, now.Device.ID)
	case now != nil && (now.Parts || now.Device.Parent != ""):
		return fmt.Sprintf("the GPU is divided into parts (MIG): end that first (nvidia-smi -i %s -mig 0)",
			r.Card.Device.BusID)
	case now != nil && now.Memory.Unjudged != "":
		return "whether its memory is free afterwards could not be told: " + now.Memory.Unjudged
	}
	return ""
}

// recoveryRefused returns why a reset is not what the driver asks for, empty if it is, or if it asks for nothing.
func recoveryRefused(h gpu.Health) string {
	action, does := known(h, gpu.RecoveryAction), map[string]string{
		"reboot": "reboot the node", "system_reboot": "reboot the node",
		"drain_p2p":    "end the processes that use several GPUs, then run this again",
		"recover_imex": "recover the IMEX domain: the cause is not this GPU",
		"bus_reset":    "reboot the node: this command does not reset the bus",
	}
	switch {
	case slices.Contains([]string{"", "none", "reset", "drain_reset"}, action):
		return ""
	case does[action] == "":
		return fmt.Sprintf("the driver asks for recovery action %.20s: see the guide of this driver", action)
	}
	return meaning(gpu.Xid{Code: recoveryChanged, Recovery: action}) + ": " + does[action]
}

// isAlone reports whether the GPU can be reset without its peers, and if not, why: so since Ampere, and with NVSwitches
// before Hopper only while the fabric manager runs. Facts that only some generations have say which one it is.
func (r Reset) isAlone() (why string) {
	h := r.Before.Health
	_, remaps := h.Fact(gpu.RemapRows)
	fabric := known(h, gpu.FabricState)
	switch {
	case fabric != "" && fabric != "not_supported": // Hopper or later
		return ""
	case !remaps:
		return "a GPU from before Ampere, or whose generation is not known, is reset together with its peers"
	case r.Switches && r.Manager != "active":
		return fmt.Sprintf("without the fabric manager (it is %q), GPUs with NVSwitches are reset together", r.Manager)
	}
	return ""
}

func (r Reset) together() string {
	if why := r.isAlone(); why != "" && !r.Idle {
		return why + ": drain the node, and wait for the end of its jobs"
	}
	return ""
}

// Holders returns the processes that hold the GPU or, if it is reset together with its peers, any, and what to do about
// each. Before the plan is begun these are not those that it ends: units, and the daemon of the persistence mode.
func (r Reset) Holders(begun bool) (all []string) {
	d, peers := r.Card.Device, r.isAlone() != ""
	for _, h := range r.Scan.Holdings {
		unit, stops := unitOf(h.Process), ""
		switch {
		case !h.Has(d) && !(peers && len(h.Minors) > 0) && (h.OfSystem() || !h.MayHold(d)):
			continue
		case !begun && slices.Contains(r.Stops, unit),
			!begun && h.OfSystem() && h.Name == "nvidia-persiste" && r.persists(): // of a name 15 bytes are kept
			continue
		case h.Cgroup.Found():
			stops = fmt.Sprintf("it is job %d's", h.Cgroup.ID)
		case unit != "":
			stops = "systemctl stop " + unit + ", or list it in reset.stop"
		default:
			stops = "end it"
		}
		all = append(all, fmt.Sprintf("process %d (%.48s) has %s open: %s", h.PID, h.Name, strings.Join(h.Open(), ", "),
			stops))
	}
	if missed := r.Scan.Missed(); missed != "" {
		all = append(all, "whether other processes hold it is not known: "+missed)
	}
	return all
}

// unitOf returns the service that a process belongs to. Those of slurmd's unit may be users', but for root's slurmd.
func unitOf(p record.Process) string {
	if p.UID == 0 && p.Name == "slurmd" && !p.Cgroup.Found() {
		return "slurmd.service"
	}
	return p.Service
}

func (r Reset) persists() bool { return known(r.Before.Health, gpu.PersistenceMode) == "on" }

// ResetAttempt is one reset of a GPU, or one that was refused because of an earlier one.
type ResetAttempt struct {
	GPU     gpu.ID    `json:"gpu"`
	At      time.Time `json:"at"`
	Boot    string    `json:"boot"`
	Refused bool      `json:"refused,omitempty"`
	// Left are the commands that put back what the reset changed, as far as that is still to be done.
	Left [][]string `json:"left,omitempty"`
	Done bool       `json:"done"` // the GPU was reset, or may have been
	// ByCheck is set if no admin asked for it. Failed is why the GPU is not known to be well, empty until it is over.
	ByCheck bool   `json:"by_check,omitempty"`
	Failed  string `json:"failed,omitempty"`
}

// Unfinished says that a reset of this boot is not over, empty if none is.
func Unfinished(all []ResetAttempt, boot string) string {
	var left []string
	for _, a := range all {
		for _, command := range slices.Backward(a.Left) {
			left = append(left, strings.Join(command, " "))
		}
		if a.Boot != boot {
			left = nil
		}
	}
	if len(left) == 0 {
		return ""
	}
	return "a reset of a GPU is under way or has died; the next bookend reset, of any GPU, puts back what that has " +
		"changed: " + strings.Join(left, "; ")
}

// Undoing returns the command that a reset left behind, with the programs of today's configuration; nil for others.
func Undoing(left []string, smi, systemctl string) []string {
	switch {
	case len(left) == 3 && left[1] == "start" && strings.HasSuffix(left[2], ".service") && left[2][0] != '-':
		return []string{systemctl, "start", left[2]}
	case len(left) == 5 && left[1] == "-i" && left[3] == "-pm" && left[4] == "1":
		if bus, err := gpu.ParseBusID(left[2]); err == nil {
			return []string{smi, "-i", string(bus), "-pm", "1"}
		}
	}
	return nil
}

// Unrepaired says why the health check's last reset of a GPU has failed, empty if there was none lately.
func Unrepaired(all []ResetAttempt, now time.Time) string {
	for _, a := range slices.Backward(all) {
		if a.ByCheck && a.Failed != "" && now.Sub(a.At).Abs() < resetAgain {
			return fmt.Sprintf("the health check could not repair GPU %s at %s: %s", a.GPU,
				a.At.Local().Format(time.DateTime), a.Failed)
		}
	}
	return ""
}

// Diagnosed is the finding that DCGM's tests show a fault of a GPU's hardware.
func Diagnosed(card record.Assigned) record.Finding {
	return record.Finding{Code: catalog.Diagnosed, GPU: card.Device.ID, Index: &card.Index}
}

const resetAgain = 24 * time.Hour

// Counted returns the last 24 hours' resets of this GPU that count against another, and what was refused since.
func (r Reset) Counted() []ResetAttempt {
	all := slices.DeleteFunc(slices.Clone(r.Earlier), func(a ResetAttempt) bool {
		return a.GPU != r.Card.Device.ID || r.Now.Sub(a.At).Abs() > resetAgain
	})
	first := slices.IndexFunc(all, func(a ResetAttempt) bool { return a.Done })
	if first < 0 {
		return nil
	}
	return slices.DeleteFunc(all[first:], func(a ResetAttempt) bool { return !a.Done && !a.Refused })
}

func (r Reset) again() string {
	counted := r.Counted()
	if len(counted) == 0 {
		return ""
	}
	first := counted[0]
	text := fmt.Sprintf("it was reset at %s, and what comes back within 24 hours no reset cures",
		first.At.Local().Format(time.DateTime))
	if len(counted) == 1 && first.Boot == r.Boot {
		return text + ": reboot the node"
	}
	return text + ": reboot the node if that was not done since, else it is the vendor's (bookend rma)"
}

// ResetStep is a command of the plan, and the one that puts back what it changes, empty for none.
type ResetStep struct {
	Do   []string `json:"do"`
	Undo []string `json:"undo"`
}

// Steps returns the plan; its last step is the reset.
func (r Reset) Steps(smi, systemctl string) (steps []ResetStep) {
	for _, unit := range r.Stops {
		steps = append(steps, ResetStep{[]string{systemctl, "stop", unit}, []string{systemctl, "start", unit}})
	}
	bus := string(r.Card.Device.BusID)
	if r.persists() { // it keeps the GPU open
		steps = append(steps, ResetStep{[]string{smi, "-i", bus, "-pm", "0"}, []string{smi, "-i", bus, "-pm", "1"}})
	}
	return append(steps, ResetStep{Do: []string{smi, "-i", bus, "--gpu-reset"}, Undo: []string{}})
}

// ActiveLinks counts the NVLinks that nvidia-smi nvlink --status shows with a speed, and reports whether those are all.
// If no link is active it may print none.
func ActiveLinks(text string) (active string, all bool) {
	n, of := strings.Count(text, " GB/s"), strings.Count(text, "\t Link ")
	return strconv.Itoa(n), n > 0 && n == of
}

// AfterReset returns the fatal errors that stand after a reset of a GPU: its own up to the mark are over.
func AfterReset(s record.Standing, epoch gpu.Epoch, bus gpu.BusID, last gpu.KernelMark) record.Standing {
	if !s.Epoch.Same(epoch) {
		s = record.Standing{Epoch: epoch, Mark: last}
	}
	s = Without(s, func(f record.StandingFault) bool { return f.Xid.BusID == bus })
	s.Resets = maps.Clone(s.Resets)
	if s.Resets == nil {
		s.Resets = map[gpu.BusID]gpu.KernelMark{}
	}
	s.Resets[bus] = last
	return s
}
