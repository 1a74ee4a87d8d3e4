package condition

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"bookend/internal/gpu"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/test/must"
)

const bus = gpu.BusID("0000:1b:00.0")

func healthOf(facts ...string) (h gpu.Health) {
	h.Device = "GPU-a"
	for _, f := range facts {
		code, value, _ := strings.Cut(f, "=")
		fact := gpu.Fact{Code: gpu.FactCode(code), Value: value}
		if why, unknown := strings.CutPrefix(value, "?"); unknown {
			fact.Value, fact.Unknown = "", why
		}
		h.Facts = append(h.Facts, fact)
	}
	return h
}

// readyToReset is an Ampere GPU on an idle, drained node, whose persistence mode is on.
func readyToReset() Reset {
	minor := 1
	d := gpu.Device{ID: "GPU-a", BusID: bus, Minor: &minor, Vendor: gpu.NVIDIA.Name}
	memory := gpu.Memory{Used: gpu.Bytes(20 << 30)}
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	return Reset{Card: record.Assigned{Index: 3, Device: d}, Idle: true, Boot: "boot-1", Now: now,
		Before: ResetState{Reading: &gpu.Reading{Device: d, Memory: memory}, Links: "12", Health: healthOf("recovery_action=reset",
			"remap_uncorrected=2", "persistence=on", "fabric_state=not_supported", "ecc_uncorrected=7", "serial=17")}}
}

func holding(name string, uid uint32, service string, minors ...int) record.Scan {
	return record.Scan{Holdings: []record.Holding{{Process: record.Process{PID: 42, Name: name, UID: uid, Service: service},
		Minors: minors, Control: true}}}
}

func TestResetRefused(t *testing.T) {
	earlier := func(hours int, boot string, refused bool) ResetAttempt {
		return ResetAttempt{GPU: "GPU-a", At: readyToReset().Now.Add(-time.Duration(hours) * time.Hour), Boot: boot, Done: !refused,
			Refused: refused}
	}
	action := func(word string) func(*Reset) {
		return func(r *Reset) {
			r.Before.Health = healthOf("remap_uncorrected=0", "persistence=on", "recovery_action="+word)
		}
	}
	for name, tt := range map[string]struct {
		change func(*Reset)
		want   string // empty: it may be reset
	}{
		"ready":                {func(*Reset) {}, ""},
		"nothing is asked":     {action("none"), ""},
		"drain and reset":      {action("drain_reset"), ""},
		"action not read":      {action("?not supported"), ""},
		"reboot":               {action("reboot"), "asks for a reboot of the node: reboot the node"},
		"system reboot":        {action("system_reboot"), "reboot of the whole system: reboot the node"},
		"peers":                {action("drain_p2p"), "then run this again"},
		"IMEX":                 {action("recover_imex"), "recover the IMEX domain: the cause is not this GPU"},
		"bus":                  {action("bus_reset"), "does not reset the bus"},
		"a number":             {action("9"), "recovery action 9"},
		"another vendor":       {func(r *Reset) { r.Card.Device.Vendor = gpu.AMD.Name }, "only GPUs of NVIDIA's"},
		"off the bus":          {func(r *Reset) { r.Before = ResetState{Fault: gpu.Fault{Code: gpu.FaultLost}} }, "fallen off the bus"},
		"another in its place": {func(r *Reset) { r.Before.Reading.Device.ID = "GPU-b" }, "its place 0000:1b:00.0 is that of GPU-b now"},
		"MIG":                  {func(r *Reset) { r.Before.Reading.Parts = true }, "-i 0000:1b:00.0 -mig 0"},
		"vGPU":                 {func(r *Reset) { r.Before.Reading.Memory.Unjudged = "vGPU" }, "could not be told: vGPU"},
		"a job may get it":     {func(r *Reset) { r.Open = "a job may get GPU 3" }, "a job may get GPU 3"},
		"quarantine":           {func(r *Reset) { r.Idle = false }, ""},
		"before Ampere":        {func(r *Reset) { r.Idle, r.Before.Health = false, healthOf("retired_pending=no") }, "from before Ampere"},
		"before Ampere, idle":  {func(r *Reset) { r.Before.Health = healthOf("retired_pending=no") }, ""},
		"peers are in use": {func(r *Reset) {
			r.Before.Health, r.Scan = healthOf("retired_pending=no"), holding("train", 1000, "", 0)
		}, "process 42 (train) has nvidia0, nvidiactl open: end it"},
		"fabric manager down": {func(r *Reset) { r.Idle, r.Switches, r.Manager = false, true, "inactive" }, `(it is "inactive")`},
		"fabric manager up":   {func(r *Reset) { r.Idle, r.Switches, r.Manager = false, true, "active" }, ""},
		"Hopper": {func(r *Reset) {
			r.Idle, r.Switches, r.Before.Health = false, true, healthOf("remap_uncorrected=0", "fabric_state=completed")
		}, ""},
		"a user's process":    {func(r *Reset) { r.Scan = holding("train", 1000, "", 1) }, "process 42 (train) has nvidia1, nvidiactl open: end it"},
		"another GPU's":       {func(r *Reset) { r.Scan = holding("train", 1000, "", 0) }, ""},
		"an exported handle":  {func(r *Reset) { r.Scan = holding("train", 1000, "") }, "process 42 (train) has nvidiactl open"},
		"a service's control": {func(r *Reset) { r.Scan = holding("nv-fabricmanage", 0, "nvidia-fabricmanager.service") }, ""},
		"an exporter":         {func(r *Reset) { r.Scan = holding("dcgm-exporter", 0, "dcgm-exporter.service", 0, 1) }, "systemctl stop dcgm-exporter.service, or list it in reset.stop"},
		"X":                   {func(r *Reset) { r.Scan = holding("Xorg", 0, "gdm.service", 1) }, "systemctl stop gdm.service"},
		"a listed exporter": {func(r *Reset) {
			r.Stops, r.Scan = []string{"dcgm.service"}, holding("nv-hostengine", 0, "dcgm.service", 1)
		}, ""},
		"slurmd":               {func(r *Reset) { r.Scan = holding("slurmd", 0, "", 1) }, "systemctl stop slurmd.service"},
		"a listed slurmd":      {func(r *Reset) { r.Stops, r.Scan = []string{"slurmd.service"}, holding("slurmd", 0, "", 1) }, ""},
		"a user's slurmd":      {func(r *Reset) { r.Stops, r.Scan = []string{"slurmd.service"}, holding("slurmd", 1000, "", 1) }, "end it"},
		"persistence's daemon": {func(r *Reset) { r.Scan = holding("nvidia-persiste", 0, "nvidia-persistenced.service", 1) }, ""},
		"a user's of the name": {func(r *Reset) { r.Scan = holding("nvidia-persiste", 1000, "", 1) }, "end it"},
		"a job's": {func(r *Reset) {
			r.Scan = holding("train", 1000, "", 1)
			r.Scan.Holdings[0].Cgroup = slurm.Owner{ID: 7}
		}, "it is job 7's"},
		"an incomplete search": {func(r *Reset) { r.Scan.Partial = "time was up" }, "whether other processes hold it is not known: time was up"},
		"an odd unit":          {func(r *Reset) { r.Odd = []string{`dcgm.service is "activating"`} }, `"activating", and reset.stop has it`},
		"reset today":          {func(r *Reset) { r.Earlier = []ResetAttempt{earlier(3, "boot-1", false)} }, "it was reset at " + readyToReset().Now.Add(-3*time.Hour).Local().Format(time.DateTime) + ", and what comes back within 24 hours no reset cures: reboot the node"},
		"refused today":        {func(r *Reset) { r.Earlier = []ResetAttempt{earlier(3, "boot-1", false), earlier(2, "boot-1", true)} }, "bookend rma"},
		"reset and rebooted":   {func(r *Reset) { r.Earlier = []ResetAttempt{earlier(3, "boot-0", false)} }, "bookend rma"},
		"reset yesterday":      {func(r *Reset) { r.Earlier = []ResetAttempt{earlier(25, "boot-1", false)} }, ""},
		"only refused today":   {func(r *Reset) { r.Earlier = []ResetAttempt{earlier(25, "boot-1", false), earlier(2, "boot-1", true)} }, ""},
		"a reset that was not": {func(r *Reset) { r.Earlier = []ResetAttempt{{GPU: "GPU-a", At: r.Now}} }, ""},
		"another was reset":    {func(r *Reset) { r.Earlier = []ResetAttempt{{GPU: "GPU-b", At: r.Now, Done: true}} }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := readyToReset()
			tt.change(&r)
			got := strings.Join(r.Refusals(), "\n")
			must.Not(t, (got == "") != (tt.want == "") || !strings.Contains(got, tt.want), "got %q, want %q", got, tt.want)
		})
	}
}

// Once the plan has begun nothing may hold the GPU, not even what the plan was to end.
func TestHoldersOnceBegun(t *testing.T) {
	for _, scan := range []record.Scan{holding("nv-hostengine", 0, "dcgm.service", 1), holding("nvidia-persiste", 0, "nvidia-persistenced.service", 1)} {
		r := readyToReset()
		r.Stops, r.Scan = []string{"dcgm.service"}, scan
		must.Not(t, len(r.Holders(false)) > 0 || len(r.Holders(true)) != 1, "%q, then %q", r.Holders(false), r.Holders(true))
	}
}

// A job that may have got the GPU since keeps it from being reset, and so does one with a peer of it.
func TestLate(t *testing.T) {
	for name, change := range map[string]func(*Reset){
		"a job may get it": func(r *Reset) { r.Open = "a job may get GPU 3" },
		"a peer is in use": func(r *Reset) { r.Idle, r.Before.Health = false, healthOf("retired_pending=no") },
		"it is held":       func(r *Reset) { r.Scan = holding("train", 1000, "", 1) },
	} {
		r := readyToReset()
		must.Not(t, len(r.Late()) > 0, "%q", r.Late())
		change(&r)
		must.Not(t, len(r.Late()) != 1, "%s: %q", name, r.Late())
	}
}

// Only what a reset leaves is run for one that died, by the programs of today.
func TestUndoing(t *testing.T) {
	for left, want := range map[string]string{
		"/old/systemctl start dcgm.service": "ctl start dcgm.service", "/old/smi -i 0000:1b:00.0 -pm 1": "smi -i 0000:1b:00.0 -pm 1",
		"": "", "/bin/sh": "", "/bin/sh -c id": "", "ctl stop dcgm.service": "", "ctl start --root=x.service": "", "ctl start .": "",
		"smi -i 0000:1b:00.0 -pm 0": "", "smi -i 0 -pm 1": "", "smi -i 0000:1b:00.0 --gpu-reset": "", "smi -x 0000:1b:00.0 -pm 1": "",
	} {
		must.Be(t, left, strings.Join(Undoing(strings.Fields(left), "smi", "ctl"), " "), want)
	}
	died := func(boot string) []ResetAttempt {
		return []ResetAttempt{{Boot: "b"}, {Boot: boot, Left: [][]string{{"ctl", "start", "x"}, {"smi", "on"}}}}
	}
	must.Not(t, !strings.HasSuffix(Unfinished(died("b"), "b"), ": smi on; ctl start x"), "%q", Unfinished(died("b"), "b"))
	must.Be(t, "of another boot", Unfinished(died("a"), "b"), "")
}

func TestResetSteps(t *testing.T) {
	r := readyToReset()
	r.Stops = []string{"dcgm.service", "a.service"}
	text := ""
	for _, s := range r.Steps("smi", "ctl") {
		text += fmt.Sprintln(strings.Join(s.Do, " "), "|", strings.Join(s.Undo, " "))
	}
	must.Be(t, "steps", text, `ctl stop dcgm.service | ctl start dcgm.service
ctl stop a.service | ctl start a.service
smi -i 0000:1b:00.0 -pm 0 | smi -i 0000:1b:00.0 -pm 1
smi -i 0000:1b:00.0 --gpu-reset | 
`)
	r.Stops, r.Before.Health = nil, healthOf("persistence=off")
	must.Not(t, len(r.Steps("smi", "ctl")) != 1, "%q", r.Steps("smi", "ctl"))
}

// well is that GPU after a reset.
func well() ResetState {
	s := readyToReset().Before
	s.Reading = &gpu.Reading{Device: s.Reading.Device, Memory: gpu.Memory{Used: gpu.Bytes(0)}}
	s.Health = healthOf("recovery_action=none", "remap_uncorrected=2", "remap_pending=no", "persistence=on",
		"fabric_state=not_supported", "ecc_uncorrected=0", "serial=17")
	return s
}

func TestProofs(t *testing.T) {
	set := func(fact string) func(*Reset, *ResetState) {
		return func(_ *Reset, s *ResetState) {
			code, _, _ := strings.Cut(fact, "=")
			for i, f := range s.Health.Facts {
				if string(f.Code) == code {
					s.Health.Facts[i] = healthOf(fact).Facts[0]
				}
			}
		}
	}
	const yes, no, open = record.Yes, record.No, record.CannotTell
	for name, tt := range map[string]struct {
		change func(*Reset, *ResetState)
		want   record.Answer
		row    string // what is not Yes
	}{
		"well":                  {func(*Reset, *ResetState) {}, yes, ""},
		"it does not come back": {func(_ *Reset, s *ResetState) { *s = ResetState{Fault: gpu.Fault{Detail: "lost"}} }, no, "the driver reads it"},
		"another UUID":          {func(_ *Reset, s *ResetState) { s.Reading.Device.ID = "GPU-b" }, no, "UUID"},
		"another serial number": {set("serial=18"), no, "serial number"},
		"it asks again":         {set("recovery_action=reset"), no, "recovery action"},
		"action not read":       {set("recovery_action=?error"), open, "recovery action"},
		"an old driver":         {func(_ *Reset, s *ResetState) { s.Health.Facts = s.Health.Facts[1:] }, open, "recovery action"},
		"memory":                {func(_ *Reset, s *ResetState) { s.Reading.Memory.Used = gpu.Bytes(1 << 30) }, no, "memory in use"},
		"memory not read":       {func(_ *Reset, s *ResetState) { s.Reading.Memory.Used = gpu.Unknown("error") }, open, "memory in use"},
		"a process":             {func(_ *Reset, s *ResetState) { s.Reading.Processes = []gpu.Process{{PID: 1}} }, no, "memory in use"},
		"an error since":        {set("ecc_uncorrected=1"), no, "memory errors since load"},
		"one more row":          {set("remap_uncorrected=3"), no, "remapped rows"},
		"a row that waited": {func(r *Reset, s *ResetState) {
			r.Before.Health = healthOf("recovery_action=reset", "remap_uncorrected=1", "remap_pending=yes", "persistence=on")
		}, open, "remapped rows"},
		"rows wait":              {set("remap_pending=yes"), no, "remapping pending"},
		"persistence is off":     {set("persistence=off"), no, "persistence mode"},
		"persistence not read":   {set("persistence=?error"), open, "persistence mode"},
		"the fabric is not back": {set("fabric_state=in_progress"), no, "NVLink fabric"},
		"the fabric is gone": {func(r *Reset, _ *ResetState) { r.Before.Health = healthOf("fabric_state=completed") }, no,
			"NVLink fabric"},
		"fewer links":           {func(_ *Reset, s *ResetState) { s.Links = "11" }, no, "active NVLinks"},
		"more links":            {func(_ *Reset, s *ResetState) { s.Links = "18" }, yes, ""},
		"down links, no switch": {func(r *Reset, s *ResetState) { r.Before.Links, s.Links = "0", "0" }, yes, ""},
		"links down before":     {func(r *Reset, s *ResetState) { r.Switches, r.Before.Links, s.Links = true, "0", "0" }, open, "active NVLinks"},
		"all links":             {func(r *Reset, s *ResetState) { r.Switches, s.Linked = true, true }, yes, ""},
		"fewer of all":          {func(r *Reset, s *ResetState) { r.Switches, s.Links = true, "11" }, no, "active NVLinks"},
		"links not read":        {func(_ *Reset, s *ResetState) { s.Links = "" }, open, "active NVLinks"},
		"not read before":       {func(r *Reset, _ *ResetState) { r.Before = ResetState{Links: "12"} }, yes, ""},
		"a new Xid":             {func(_ *Reset, s *ResetState) { s.Xids = []gpu.Xid{{BusID: bus, Code: 79}} }, no, "new errors in the log"},
		"another GPU's Xid":     {func(_ *Reset, s *ResetState) { s.Xids = []gpu.Xid{{BusID: "0000:3d:00.0", Code: 79}} }, yes, ""},
		"it says it is over":    {func(_ *Reset, s *ResetState) { s.Xids = []gpu.Xid{{BusID: bus, Code: 154, Recovery: "none"}} }, yes, ""},
		"the log not read":      {func(_ *Reset, s *ResetState) { s.Log = "no kmsg" }, open, "new errors in the log"},
	} {
		t.Run(name, func(t *testing.T) {
			r, s := readyToReset(), well()
			tt.change(&r, &s)
			all := r.Proofs(s, record.NewLimits(32<<20, 512<<20), "ok", record.Yes)
			var rows []string
			for _, p := range all {
				if p.Holds != yes {
					rows = append(rows, p.What)
				}
			}
			must.Not(t, Proven(all) != tt.want || strings.Join(rows, ", ") != tt.row, "%s, %q\n%+v", Proven(all), rows, all)
		})
	}
	all := readyToReset().Proofs(well(), record.NewLimits(32<<20, 512<<20), "BKD-BITS", record.No)
	must.Not(t, Proven(all) != no || Proven(nil) == yes, "a test that fails proves nothing: %+v", all)
}

// The state is that of the GPU at the bus id, whatever its UUID is.
func TestStateOf(t *testing.T) {
	reading := func(id gpu.ID, bus gpu.BusID) gpu.Reading { return gpu.Reading{Device: gpu.Device{ID: id, BusID: bus}} }
	now := gpu.Snapshot{Readings: []gpu.Reading{reading("GPU-b", "0000:3d:00.0"), reading("GPU-c", bus)},
		Faults: []gpu.Fault{{Code: gpu.FaultLost, BusID: bus}, {Code: gpu.FaultReset, BusID: "0000:3d:00.0"}}}
	s := StateOf(bus, now, []gpu.Health{{Device: "GPU-b"}, {Device: "GPU-c", Facts: []gpu.Fact{{Code: gpu.Serial}}}})
	must.Not(t, s.Reading.Device.ID != "GPU-c" || s.Fault.Code != gpu.FaultLost || len(s.Health.Facts) != 1, "%+v", s)
	const gpu0 = "GPU 0: NVIDIA A100 (UUID: GPU-a)\n"
	for text, want := range map[string]string{"\t Link 0: 25 GB/s\n\t Link 1: <inactive>\n\t Link 2: 26.562 GB/s\n": "2 false",
		"\t Link 0: 25 GB/s\n\t Link 1: 25 GB/s\n": "2 true", "NVML: all links are inActive\n": "0 false", "": "0 false"} {
		active, all := ActiveLinks(gpu0 + text)
		must.Be(t, "links of "+text, fmt.Sprint(active, " ", all), want)
	}
}

// What the kernel log has of a GPU from before its reset is over, for the errors that stand and for each later reader;
// that of other GPUs, and what comes later, counts.
func TestAfterReset(t *testing.T) {
	epoch := gpu.Epoch{Boot: "b", Driver: "d", Module: "m"}
	at := func(bus gpu.BusID, seq uint64) gpu.Xid {
		return gpu.Xid{BusID: bus, Code: 79, KernelMark: gpu.KernelMark{Seq: seq}}
	}
	other := gpu.BusID("0000:3d:00.0")
	was := record.Standing{Epoch: epoch, Mark: gpu.KernelMark{Seq: 5}, Faults: []record.StandingFault{{Xid: at(bus, 4)}, {Xid: at(other, 3)}}}
	s := AfterReset(was, epoch, bus, gpu.KernelMark{Seq: 8})
	must.Not(t, len(s.Faults) != 1 || s.Faults[0].Xid.BusID != other || len(was.Resets) > 0, "%+v", s)
	log := gpu.KernelLog{Epoch: epoch, Last: gpu.KernelMark{Seq: 10}, Xids: []gpu.Xid{at(bus, 7), at(other, 7), at(bus, 9)},
		Before: []gpu.Xid{at(bus, 6)}}
	now := log.Since(s.Resets, s.Epoch)
	must.Not(t, len(now.Xids) != 2 || now.Xids[1].Seq != 9 || len(now.Before) != 0 || len(log.Xids) != 3, "%+v", now)
	must.Not(t, len(log.Since(s.Resets, gpu.Epoch{Boot: "c"}).Xids) != 3, "a mark of another boot counts")
	again := AfterReset(record.Standing{}, epoch, bus, gpu.KernelMark{Seq: 8})
	must.Not(t, !again.Epoch.Same(epoch) || again.Mark.Seq != 8 || again.Resets[bus].Seq != 8, "%+v", again)
}
