package main

import "bookend/test/mutant"

// The files of the judgement that mistakes are planted in.
const (
	certain  = "internal/finding/certain.go"
	compare  = "internal/finding/compare.go"
	holders  = "internal/finding/holders.go"
	decide   = "internal/attrib/attrib.go"
	looking  = "internal/judge/look.go"
	judgings = "internal/judge/"
)

// mutants are the mistakes that a soak must notice.
var mutants = []mutant.Mutant{
	{
		Name: "no settle: one look is judged", File: "internal/settle/settle.go", Func: "JudgeDevice",
		Old: "observed(rule.Flat, looks[first:])", New: "true",
	},
	{
		Name: "settle too short for workers", File: "internal/config/default.go", Func: "Default",
		Old: "Flat: seconds(3.5)", New: "Flat: seconds(0.5)",
	},
	{
		Name: "no second look", File: looking, Func: "Look",
		Old: "o.confirm(e, &side, looks, least)", New: "_, _ = looks, least",
	},
	{
		Name: "PID reuse ignored", File: looking, Func: "Order.dropStrangers",
		Old: "now.Start != start || now.Gone && !sameBytes(r.Processes[i], p)", New: "now.Gone != (start == 0 && i >= 0)",
	},
	{
		Name: "sighting of another start time counted", File: decide, Func: "Scene.sighted",
		Old: "seen.PID == p.PID && seen.Start == p.Start", New: "seen.PID == p.PID",
	},
	{
		Name: "baseline explains memory without a holder", File: "internal/finding/baseline.go", Func: "Scene.Learn",
		Old: "b.Holder != \"\" {", New: "b.Holder != \"-\" {",
	},
	{
		Name: "epilog without prolog judged", File: certain, Func: "Scene.startDoubts",
		Old: "if s.Before == nil {", New: "if s.Before == nil {\nreturn nil\n}\nif s.Before == nil {",
	},
	{
		Name: "dirty start judged", File: certain, Func: "Scene.startDoubts",
		Old: "s.startedAtRest(id)", New: "true",
	},
	{
		Name: "a start that moved judged", File: certain, Func: "Scene.startDoubts",
		Old: "curve.State == settle.Flat && s.startedAtRest(id)", New: "true",
	},
	{
		Name: "memory without a process ignored", File: "internal/settle/settle.go", Func: "look.clean",
		Old: "stranger || !within && why == \"\"", New: "stranger || !within && why == \"-\"",
	},
	{
		Name: "live job's process taken for an ended one's", File: decide, Func: "Scene.owner",
		Old: "case r.Live():\n\t\to.Whose = LiveJob", New: "case r.Live():\n\t\to.Whose = EndedJob",
	},
	{
		Name: "blame by time alone, whoever the user", File: decide, Func: "Scene.exclusive",
		Old: "r.UID == p.UID && ", New: "",
	},
	{
		Name: "a run of before the driver was loaded counts", File: "internal/ledger/book.go", Func: "Now.counts",
		Old: "r.Epoch.Same(n.Epoch)", New: "r.Epoch != (gpu.Epoch{})",
	},
	{
		Name: "doubtful memory counted towards a drain", File: certain, Func: "Limits.tooLittle",
		Old: " || len(f.Doubts) > 0", New: "",
	},
	{
		Name: "who stays on a GPU that moves is not named", File: compare, Func: "Scene.moving",
		Old: "case stayed:", New: "case stayed && s.between() && s.ending():",
	},
	{
		Name: "a container's user taken for who started it", File: decide, Func: "Record.mayHaveStarted",
		New: "return r.UID == p.UID",
	},
	{
		Name: "a heterogeneous job's leader taken for another job", File: decide, Func: "Record.named",
		New: "return id != 0 && id == r.Job",
	},
	{
		Name: "legal sharing not doubted", File: certain, Func: "Scene.doubts",
		Old: "doubt{s.Shared != \"\",", New: "doubt{s.Shared == \"\" && s.Doubt != \"\",",
	},
	{
		Name: "processes with another GPU not doubted", File: holders, Func: "Scene.bystanders",
		Old: "!s.leftBehind(o) && !nobodys || o.Rival != 0", New: "o.Rival != 0 && !nobodys",
	},
	{
		Name: "baselines of another driver's life believed", File: judgings + "judge.go", Func: "BaselinesOf",
		Old: "b.Epoch.Same(epoch)", New: "b.Epoch != (gpu.Epoch{})",
	},
	{
		Name: "recorded on a GPU that its job had too", File: judgings + "recorded.go", Func: "Case.recorded",
		Old: "c.known(p) && !c.hadToo(p)", New: "c.known(p)",
	},
	{
		Name: "records not asked where a GPU is not clean", File: judgings + "judge.go", Func: "Case.asks",
		Old: "return !side.AtRest(c.Seen.Cards)", New: "return side.AtRest(c.Seen.Cards)",
	},
	{
		Name: "a health check judges GPUs that jobs have", File: judgings + "check.go", Func: "taken",
		New: "return false",
	},
}
