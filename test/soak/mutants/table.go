package main

// mutant is one plausible mistake in one line of the judgement.
type mutant struct {
	name string
	file string
	old  string // found exactly once
	new  string
}

// mutants are the mistakes that a soak must notice.
var mutants = []mutant{
	{
		"no settle: one look is judged", "internal/settle/settle.go",
		"Steady: observed(rule.Flat, looks[first:]),",
		"Steady: true,",
	},
	{
		"settle too short for workers", "internal/config/default.go",
		"Epilog: SettleTimes{Max: seconds(6), Flat: seconds(3.5)},",
		"Epilog: SettleTimes{Max: seconds(6), Flat: seconds(0.5)},",
	},
	{
		"no second look", "internal/look/look.go",
		"\to.confirm(e, &side, looks, least)\n",
		"\t_, _ = looks, least\n",
	},
	{
		"PID reuse ignored", "internal/look/look.go",
		`stranger := known && lists(r, p) && now.Why == "" && (now.Start != start || now.Gone && !lists(r, p, sameBytes))`,
		`stranger := known && lists(r, p) && now.Why == "" && now.Gone != (start == 0)`,
	},
	{
		"sighting of another start time counted", "internal/attrib/decide.go",
		"if seen.PID == p.PID && seen.Start == p.Start {",
		"if seen.PID == p.PID {",
	},
	{
		"baseline explains memory without a holder", "internal/finding/baseline.go",
		"\tif b.Holder != \"\" {\n",
		"\tif b.Holder != \"-\" {\n",
	},
	{
		"epilog without prolog judged", "internal/finding/certain.go",
		`return []string{"there is no record of the job's start"}`,
		`return nil`,
	},
	{
		"dirty start judged", "internal/finding/certain.go",
		`return []string{"the GPU was not clean when the job started"}`,
		`return nil`,
	},
	{
		"memory without a process ignored", "internal/settle/look.go",
		"case processes == no || memory == no:",
		"case processes == no:",
	},
	{
		"live job's process taken for an ended one's", "internal/attrib/decide.go",
		"\tcase r.Live():\n\t\to.Whose = LiveJob\n",
		"\tcase r.Live():\n\t\to.Whose = EndedJob\n",
	},
	{
		"blame by time alone, whoever the user", "internal/attrib/decide.go",
		"if r.Alone && r.UID == p.UID && slices.Contains(r.GPUs, s.GPU) && s.during(r, p.Start) {",
		"if r.Alone && slices.Contains(r.GPUs, s.GPU) && s.during(r, p.Start) {",
	},
	{
		"epoch ignored in the ledger", "internal/ledger/book.go",
		"if !r.Epoch.Same(epoch) {",
		"if r.Epoch == (gpu.Epoch{}) {",
	},
	{
		"doubtful memory counted towards a drain", "internal/finding/certain.go",
		`case f.Unknown != "" || len(f.Doubts) > 0:`,
		`case f.Unknown != "":`,
	},
	{
		"legal sharing not doubted", "internal/finding/certain.go",
		"if s.Shared != \"\" {\n\t\td = append(d, \"this GPU may be shared: \"+s.Shared)",
		"if s.Shared == \"\" && s.Doubt != \"\" {\n\t\td = append(d, \"this GPU may be shared: \"+s.Shared)",
	},
}
