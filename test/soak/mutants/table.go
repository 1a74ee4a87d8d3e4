package main

import "bookend/test/mutant"

// mutants are the mistakes that a soak must notice.
var mutants = []mutant.Mutant{
	{
		Name: "no settle: one look is judged", File: "internal/settle/settle.go",
		Old: "Steady: observed(rule.Flat, looks[first:]),",
		New: "Steady: true,",
	},
	{
		Name: "settle too short for workers", File: "internal/config/default.go",
		Old: "Epilog: SettleTimes{Max: seconds(6), Flat: seconds(3.5)},",
		New: "Epilog: SettleTimes{Max: seconds(6), Flat: seconds(0.5)},",
	},
	{
		Name: "no second look", File: "internal/look/look.go",
		Old: "\to.confirm(e, &side, looks, least)\n",
		New: "\t_, _ = looks, least\n",
	},
	{
		Name: "PID reuse ignored", File: "internal/look/look.go",
		Old: "another := now.Start != start || now.Gone && !lists(r, p, sameBytes)",
		New: "another := now.Gone != (start == 0)",
	},
	{
		Name: "sighting of another start time counted", File: "internal/attrib/decide.go",
		Old: "if seen.PID == p.PID && seen.Start == p.Start {",
		New: "if seen.PID == p.PID {",
	},
	{
		Name: "baseline explains memory without a holder", File: "internal/finding/baseline.go",
		Old: "\tif b.Holder != \"\" {\n",
		New: "\tif b.Holder != \"-\" {\n",
	},
	{
		Name: "epilog without prolog judged", File: "internal/finding/certain.go",
		Old: `return []string{"there is no record of the job's start"}`,
		New: `return nil`,
	},
	{
		Name: "dirty start judged", File: "internal/finding/certain.go",
		Old: `return []string{"the GPU was not clean when the job started"}`,
		New: `return nil`,
	},
	{
		Name: "memory without a process ignored", File: "internal/settle/look.go",
		Old: "case processes == no || memory == no:",
		New: "case processes == no:",
	},
	{
		Name: "live job's process taken for an ended one's", File: "internal/attrib/decide.go",
		Old: "\tcase r.Live():\n\t\to.Whose = LiveJob\n",
		New: "\tcase r.Live():\n\t\to.Whose = EndedJob\n",
	},
	{
		Name: "blame by time alone, whoever the user", File: "internal/attrib/decide.go",
		Old: "if r.Alone && r.UID == p.UID && slices.Contains(r.GPUs, s.GPU) && s.during(r, p.Start) {",
		New: "if r.Alone && slices.Contains(r.GPUs, s.GPU) && s.during(r, p.Start) {",
	},
	{
		Name: "a run of before the driver was loaded counts", File: "internal/ledger/book.go",
		Old: "return unknown || r.Epoch.Same(n.Epoch)",
		New: "return unknown || r.Epoch != (gpu.Epoch{})",
	},
	{
		Name: "doubtful memory counted towards a drain", File: "internal/finding/certain.go",
		Old: `case f.Unknown != "" || len(f.Doubts) > 0:`,
		New: `case f.Unknown != "":`,
	},
	{
		Name: "who stays on a GPU that moves is not named", File: "internal/finding/compare.go",
		Old: "\t\tcase stayed:\n",
		New: "\t\tcase stayed && s.between() && s.ending():\n",
	},
	{
		Name: "a container's user taken for who started it", File: "internal/attrib/decide.go",
		Old: "return r.UID == p.UID || p.Apart()",
		New: "return r.UID == p.UID",
	},
	{
		Name: "a heterogeneous job's leader taken for another job", File: "internal/attrib/decide.go",
		Old: "return id != 0 && (id == r.Job || id == r.Het)",
		New: "return id != 0 && id == r.Job",
	},
	{
		Name: "legal sharing not doubted", File: "internal/finding/certain.go",
		Old: "if s.Shared != \"\" {\n\t\td = append(d, \"this GPU may be shared: \"+s.Shared)",
		New: "if s.Shared == \"\" && s.Doubt != \"\" {\n\t\td = append(d, \"this GPU may be shared: \"+s.Shared)",
	},
	{
		Name: "processes with another GPU not doubted", File: "internal/finding/holders.go",
		Old: "if !s.leftBehind(o) && !nobodys || o.Rival != 0 {",
		New: "if o.Rival != 0 {\n\t\t\t_ = nobodys",
	},
}
