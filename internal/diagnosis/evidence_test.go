package diagnosis

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"bookend/internal/catalog"
	"bookend/internal/gpu"
	"bookend/internal/oomlog"
	"bookend/internal/record"
	"bookend/internal/slurm"
)

// source is something that an answer can rest on.
type source string

const (
	output      source = "all of the output read"
	figures     source = "a balance in every last message about a GPU"
	sized       source = "the size asked for in every last message about a GPU"
	refusal     source = "a message that CUDA did not start"
	hostSaid    source = "a message about host memory"
	kill        source = "a kill, or Slurm's state, for host memory"
	start       source = "every GPU seen at the start"
	end         source = "every GPU seen at the end"
	kernel      source = "all of the kernel log"
	byCondition source = "every GPU's health"
	tests       source = "a test of every GPU"
	space       source = "the limit of address space"
	alone       source = "no one shares the GPUs"
	sharing     source = "who may share the GPUs"
	cards       source = "which GPUs the job had"
	recorded    source = "every interval between its ends"
)

// restsOn is the contract: a cause may be answered no only on one of these sets of evidence. docs/users.md says it to users.
var restsOn = map[record.CauseName][][]source{
	record.CauseOthers:    {{figures}, {refusal, space}, {recorded, start, end}},
	record.CauseLeftover:  {{start, cards, alone}, {figures}},
	record.CauseUnlisted:  {{figures}, {refusal, space}, {recorded, start, end}},
	record.CausePieces:    {{tests, cards}, {figures}},
	record.CausePool:      {{figures}, {refusal, space}, {hostSaid}, {kill, output}},
	record.CauseFault:     {{byCondition, kernel, cards}},
	record.CauseOwn:       {{figures}, {refusal, space}, {hostSaid}, {kill, output}},
	record.CauseProcesses: {{figures}, {refusal, space}},
	record.CauseLimits:    {{figures}, {kernel, space, output}},
	record.CauseShare:     {{cards, sharing}},
}

var deniesOn = map[string][][]source{
	"no message about memory in its output": {{output}},
	"not the GPU":                           {{hostSaid}, {kill, output}, {sized}, {space}},
	"nothing seen on n1":                    {{start, end, byCondition, kernel, tests, cards, sharing}, {start, end, byCondition, kernel, figures, cards, sharing}},
}

// removals take one source each from a world. Those of a part read, and of nobody between, leave what else is known.
var removals = map[string]func(*Input){
	"output": func(in *Input) { in.Messages, in.MessagesUnknown = nil, "job_log.read is off" },
	"part":   func(in *Input) { in.MessagesPart = "only its last 64 KiB" },
	"figures": func(in *Input) {
		m := jax(20)
		m.File = oomlog.MaxFiles - 1
		in.Messages = append(slices.Clone(in.Messages), m)
	},
	"start":           func(in *Input) { in.Start, in.StartFindings = nil, nil },
	"start of a GPU":  func(in *Input) { in.Start = blurred(in.Start) },
	"end":             func(in *Input) { in.End, in.Findings = nil, nil },
	"end of a GPU":    func(in *Input) { in.End = blurred(in.End) },
	"between":         func(in *Input) { in.Seen = nil },
	"recording":       func(in *Input) { in.Recorded, in.Whole = nil, false },
	"kernel":          func(in *Input) { in.Kernel = nil },
	"kernel's reason": func(in *Input) { in.Kernel = &gpu.KernelLog{Unknown: "permission denied"} },
	"kernel's part":   func(in *Input) { in.Kernel = &gpu.KernelLog{Lost: true} },
	"health": func(in *Input) {
		in.HealthUnknown = "no time"
		in.Health = slices.Clone(in.Health)
		for i := range in.Health {
			in.Health[i].Facts = nil
		}
	},
	"health of a GPU": func(in *Input) { in.Health = in.Health[:max(0, len(in.Health)-1)] },
	"tests":           func(in *Input) { in.Probes = nil },
	"test of a GPU":   func(in *Input) { in.Probes = in.Probes[:max(0, len(in.Probes)-1)] },
	"space":           func(in *Input) { in.AddressSpace = gpu.Unknown("no task hook") },
	"exit":            func(in *Input) { in.Job.Exit = slurm.ExitStatus{} },
	"sharing":         func(in *Input) { in.SharedUnknown = "gres.conf not read" },
	"cards":           func(in *Input) { in.Cards = nil },
}

func blurred(s *record.Side) *record.Side {
	if s == nil {
		return nil
	}
	t := *s
	t.Curves = maps.Clone(s.Curves)
	t.Curves[gpu0] = record.Curve{State: record.Unreadable}
	return &t
}

// has is what there is to rest on in a world, read from its input alone.
func has(in Input) map[source]bool {
	seen := func(s *record.Side, found []record.Finding) bool {
		doubtful := slices.ContainsFunc(found, func(f record.Finding) bool { return f.Unknown != "" })
		return s != nil && !doubtful && !slices.ContainsFunc(in.Cards, func(c record.Assigned) bool {
			state := s.Curves[c.Device.ID].State
			return state != record.Clean && state != record.Flat
		})
	}
	log := in.Kernel != nil && in.Kernel.Unknown == "" && !in.Kernel.Lost
	h := map[source]bool{
		output: in.MessagesUnknown == "" && in.MessagesPart == "", figures: atLast(in.Messages, balance), sized: atLast(in.Messages, size), start: seen(in.Start, in.StartFindings), end: seen(in.End, in.Findings),
		kernel: log, byCondition: true, tests: true, space: in.AddressSpace.Known(), sharing: in.SharedUnknown == "",
		cards: len(in.Cards) > 0, recorded: in.Whole, alone: in.Shared == "", kill: in.Kernel != nil && len(in.Kernel.Kills) > 0 || signal(in.Job.Exit.Raw) == 125 || signal(in.Job.Exit.Derived) == 125,
	}
	for _, m := range in.Messages {
		h[refusal] = h[refusal] || m.Kind == record.KindInit
		h[hostSaid] = h[hostSaid] || m.Kind == record.KindHost
	}
	for _, c := range in.Cards {
		of := func(id gpu.ID) bool { return id == c.Device.ID || c.Device.Parent != "" && id == c.Device.Parent }
		h[byCondition] = h[byCondition] && slices.ContainsFunc(in.Health, func(g gpu.Health) bool { return of(g.Device) && len(g.Facts) > 0 })
		h[tests] = h[tests] && slices.ContainsFunc(in.Probes, func(p gpu.Probe) bool { return p.Device == c.Device.ID && p.Largest.Known() })
	}
	return h
}

// atLast: the last message about a card of every file is so.
func atLast(all []record.Message, is func(record.Message) bool) bool {
	last := map[int]record.Message{}
	for _, m := range all {
		if m.Kind == record.KindDevice {
			last[m.File] = m
		}
	}
	for _, m := range last {
		if !is(m) {
			return false
		}
	}
	return len(last) > 0
}

func size(m record.Message) bool    { return m.Asked.Known() }
func balance(m record.Message) bool { return m.Asked.Known() && m.Free.Known() }

func supported(by map[source]bool, sets [][]source) bool {
	return slices.ContainsFunc(sets, func(set []source) bool {
		return !slices.ContainsFunc(set, func(s source) bool { return !by[s] })
	})
}

// evident checks that nothing is denied in a world without something to rest on.
func evident(t *testing.T, in Input, without string) {
	t.Helper()
	d, by := Why(in), has(in)
	for _, c := range d.Causes {
		if c.Answer == record.No && !supported(by, restsOn[c.Name]) {
			t.Errorf("without %s: no %s: %s\nthere is %v", without, c.Name, c.Evidence, by)
		}
		if c.Answer == record.No && in.Job.NodeList != "" && len(in.Messages) == 0 && c.Name != record.CauseShare && !by[kill] {
			t.Errorf("without %s: no %s on every node: %s", without, c.Name, c.Evidence)
		}
	}
	for text, sets := range deniesOn {
		if strings.Contains(d.Headline, text) && !supported(by, sets) {
			t.Errorf("without %s: %q\nthere is %v", without, d.Headline, by)
		}
	}
}

// neverWithoutEvidence takes every source from a world.
func neverWithoutEvidence(t *testing.T, in Input) {
	t.Helper()
	evident(t, in, "nothing")
	for name, remove := range removals {
		less := in
		remove(&less)
		evident(t, less, name)
	}
}

// worlds are what can be so of a job; two of them together make one.
var worlds = []func(*Input){
	func(*Input) {},
	func(in *Input) { in.Job.Exit.Raw = 0 },
	func(in *Input) { in.Job.Exit.Raw = 9 },
	func(in *Input) { in.Job.Exit.Raw = 125 },
	func(in *Input) { in.Job.NodeList = "n[1-2]" },
	func(in *Input) { in.Shared = "shards" },
	func(in *Input) { in.Cards[0].Device.Parent = "GPU-p" },
	limited(4),
	seeing(seen(500, 900, 1, true)),
	seeing(seen(500, 900, 1, true), seen(500, 901, 1, true), seen(500, 902, 1, true)),
	seeing(seen(500, 5150, 0.1, false)),
	seeing(seen(500, 900, 13, true)),
	seeing(seen(500, 900, 13, true), seen(500, 901, 70, true)),
	dirty(there(catalog.Dirty, 0.3, 5150, nil)),
	dirty(there(catalog.Dirty, 20, 5150, nil)),
	dirty(unsure(there(catalog.Dirty, 20, 5150, nil))),
	dirty(there(catalog.Dirty, 20, 0, before)),
	func(in *Input) {
		in.End.Curves[gpu0] = record.Curve{State: record.Flat}
		in.Findings = []record.Finding{unsure(there(catalog.Residue, 20, 0, nil))}
	},
	finds(there(catalog.Xid, 0, 0, nil)),
	func(in *Input) {
		in.Kernel = &gpu.KernelLog{Kills: []gpu.HostKill{{PID: 901, Cgroup: "/slurm/uid_1001/job_42/step_0"}}}
	},
	saying(itself), saying(pooled), saying(beside), saying(nobody), saying(jax(20)), saying(jax(500)), saying(says(record.KindInit, record.FromPyTorch)), saying(says(record.KindHost, record.FromOther)),
	saying(says(record.KindHost, record.FromSlurm)), saying(says(record.KindShared, "Triton")), saying(says(record.KindFault, record.FromCUDA)), saying(jax(20), itself), saying(itself, jax(20)),
	saying(says(record.KindHost, record.FromOther), itself), saying(oldTorch(30)), saying(oldTorch(30), jax(20)),
}

// Nothing is denied that nobody looked at: of whatever can be so of a job, any source may be missing, or any two of them.
func TestNeverNoWithoutEvidence(t *testing.T) {
	changes := slices.AppendSeq(slices.Clone(worlds), maps.Values(removals))
	for _, n := range []int{1, 2} {
		for i, one := range worlds {
			for _, two := range changes[i:] {
				in := well(n)
				one(&in)
				two(&in)
				if neverWithoutEvidence(t, in); t.Failed() {
					t.Fatalf("in this world of %d GPUs: %+v", n, in)
				}
			}
		}
	}
}
