package joblog

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bookend/internal/slurm"
	"bookend/test/must"
)

const gibi = 1 << 30

// ran is one node's file of a run of "train" that was measured and ended well.
func ran(id slurm.JobID, change func(*Spooled), gpus ...Used) Spooled {
	s := Spooled{Cluster: "a", ID: id, Job: fmt.Sprint(id), Node: "n1", At: time.Unix(int64(id)*3600, 0),
		Used: Usage{Name: "train", End: Ended, Seconds: 90, Nodes: 1, Every: 1, GPUs: gpus}}
	change(&s)
	return s
}

func on(model string, total, peak uint64) Used {
	return Used{Model: model, Total: total * gibi, Peak: peak * gibi}
}

// What runs used says at most that a GPU has room for it: all else is unknown, and no GPU is called too small.
func TestFit(t *testing.T) {
	as := func(*Spooled) {}
	other := ran(1, func(s *Spooled) { s.Used.Name = "other" }, on("small", 40, 1))
	use := func(peak uint64) Used { return on("large", 140, peak) }
	for name, c := range map[string]struct {
		runs []Spooled
		want string
	}{
		"with room":             {[]Spooled{ran(5, as, use(30))}, "fits, used 30.0 GiB"},
		"without room":          {[]Spooled{ran(5, as, use(37))}, "unknown, used 37.0 GiB, which leaves less than a tenth"},
		"takes half":            {[]Spooled{ran(5, as, use(70))}, "unknown, the program took about half of the GPU that it got, or more"},
		"more than it has":      {[]Spooled{ran(5, as, use(41))}, "may not fit, used 41.0 GiB"},
		"one run's peak":        {[]Spooled{ran(5, as, use(1)), ran(4, as, use(41))}, "may not fit, used 41.0 GiB"},
		"one GPU's peak":        {[]Spooled{ran(5, as, use(1), use(41), use(2))}, "may not fit, used 41.0 GiB"},
		"takes what it gets":    {[]Spooled{ran(5, as, use(98))}, "unknown, the program took about half of the GPU that it got, or more"},
		"took it once":          {[]Spooled{ran(5, as, use(9)), ran(4, as, on("tiny", 10, 8))}, "unknown, the program took about half of the GPU that it got, or more"},
		"ran there":             {[]Spooled{ran(5, as, use(130)), ran(4, as, on("small", 40, 39))}, "ran there, 1 of 2 runs had exit 0 there"},
		"ran out there":         {[]Spooled{ran(5, func(s *Spooled) { s.Used.RanOut = true }, on("small", 40, 17)), ran(4, as, use(30))}, "unknown, a run ran out of memory"},
		"and a larger one":      {[]Spooled{ran(5, as, on("small", 40, 4), use(41))}, "may not fit, used 41.0 GiB"},
		"and one not known":     {[]Spooled{ran(5, as, on("small", 40, 4), Used{Peak: gibi})}, "unknown, a run had a part of a GPU, or one of unknown size"},
		"of several types":      {[]Spooled{ran(5, as, on("small", 40, 4), use(5))}, "fits, used 5.0 GiB"},
		"a component there":     {[]Spooled{ran(5, func(s *Spooled) { s.Job = "5+0" }, on("small", 40, 4))}, "unknown, a run was a part of a heterogeneous job"},
		"a component":           {[]Spooled{ran(5, func(s *Spooled) { s.Job = "5+0" }, use(4))}, "unknown, a run was a part of a heterogeneous job"},
		"GPU not used":          {[]Spooled{ran(5, as, use(0)), ran(4, as, use(9))}, "unknown, a run did not use its GPUs"},
		"not used there":        {[]Spooled{ran(5, as, on("small", 40, 0))}, "unknown, a run did not use its GPUs"},
		"two clusters":          {[]Spooled{ran(5, as, use(4)), ran(5, func(s *Spooled) { s.Used.End = "unknown" }, on("small", 40, 4))}, "unknown, the last run did not end well, as far as is known"},
		"failed there":          {[]Spooled{ran(5, as, use(30)), ran(4, func(s *Spooled) { s.Used.End = "failed" }, on("small", 40, 17))}, "fits, used 30.0 GiB"},
		"had a part there":      {[]Spooled{ran(5, as, use(30)), ran(4, as, Used{Model: "small", Total: 40 * gibi, Shared: "MPS"})}, "unknown, a run had a part of a GPU, or one of unknown size"},
		"of unknown size":       {[]Spooled{ran(5, as, Used{Model: "large", Peak: gibi})}, "unknown, a run had a part of a GPU, or one of unknown size"},
		"ran out":               {[]Spooled{ran(5, as, use(1)), ran(4, func(s *Spooled) { s.Used.End, s.Used.RanOut = "failed", true }, use(1))}, "unknown, a run ran out of memory"},
		"failed":                {[]Spooled{ran(5, func(s *Spooled) { s.Used.End = "failed" }, use(1)), ran(4, as, use(1))}, "unknown, the last run did not end well, as far as is known"},
		"end unknown":           {[]Spooled{ran(5, func(s *Spooled) { s.Used.End = "unknown" }, use(1))}, "unknown, the last run did not end well, as far as is known"},
		"failed before":         {[]Spooled{ran(5, as, use(1)), ran(4, func(s *Spooled) { s.Used.End = "failed" }, use(20))}, "fits, used 20.0 GiB"},
		"gaps":                  {[]Spooled{ran(5, as, use(1)), ran(4, func(s *Spooled) { s.Used.Unmeasured = "gaps" }, use(1))}, "unknown, gaps"},
		"a node without file":   {[]Spooled{ran(5, func(s *Spooled) { s.Used.Nodes = 2 }, use(1))}, "unknown, reports came from 1 of 2 nodes"},
		"a node without hooks":  {[]Spooled{ran(5, func(s *Spooled) { s.Used.Nodes = 2 }, use(1)), ran(5, func(s *Spooled) { s.Used.Nodes, s.Used.Name, s.Used.End = 2, "", "unknown" }, use(30))}, "fits, used 30.0 GiB"},
		"one node failed":       {[]Spooled{ran(5, func(s *Spooled) { s.Used.Nodes = 2 }, use(1)), ran(5, func(s *Spooled) { s.Used.Nodes, s.Used.End = 2, "failed" }, use(1))}, "unknown, the last run did not end well, as far as is known"},
		"more than ten runs":    {append(many(10, use(1)), ran(2, as, use(60))), "fits, used 1.0 GiB"},
		"a part was enough":     {[]Spooled{ran(5, as, use(41)), ran(4, as, Used{Model: "MIG", Total: 20 * gibi, Peak: gibi, Shared: "MIG"})}, "unknown, a run had a part of a GPU, or one of unknown size"},
		"a like one was enough": {[]Spooled{ran(5, as, use(41)), ran(4, as, on("alike", 40, 15))}, "unknown, used 41.0 GiB, which leaves less than a tenth"},
		"a part failed":         {[]Spooled{ran(5, as, use(41)), ran(4, func(s *Spooled) { s.Used.End = "failed" }, Used{Model: "MIG", Total: 20 * gibi, Peak: gibi, Shared: "MIG"})}, "may not fit, used 41.0 GiB"},
		"a part of unknown":     {[]Spooled{ran(5, as, use(41)), ran(4, as, Used{Model: "MIG", Peak: gibi, Shared: "MIG"})}, "may not fit, used 41.0 GiB"},
		"two runs of one id":    {[]Spooled{ran(5, func(s *Spooled) { s.Restart = 1 }, use(1)), ran(5, func(s *Spooled) { s.Used.End = "failed" }, use(1))}, "fits, used 1.0 GiB"},
	} {
		p := NewPeaks(2, "spool", "train", append(c.runs, other))
		got := ""
		for _, m := range p.Models {
			if m.Name == "small" {
				got += m.Answer + ", " + m.Why
			}
		}
		must.Be(t, name, got, c.want)
	}
}

func many(n int, u Used) (all []Spooled) {
	for i := range n {
		all = append(all, ran(slurm.JobID(90+i), func(*Spooled) {}, u))
	}
	return all
}

// A job's start reads of its GPUs what the spool says of them, of the same cluster, if that is bad: one plain, short line.
func TestMayNotFit(t *testing.T) {
	small := Model{Name: "small", Total: 40 * gibi}
	as := func(*Spooled) {}
	const line = `bookend: your last run of "train" peaked at 61.0 GiB on one GPU; here a GPU has 40.0 GiB: it may not fit. See: bookend peaks NAME`
	for name, c := range map[string]struct {
		runs []Spooled
		of   FitRequest
		want string
	}{
		"none":            {nil, FitRequest{}, ""},
		"smaller":         {[]Spooled{ran(5, as, on("large", 140, 61))}, FitRequest{}, line},
		"some":            {append(many(12, on("large", 140, 3)), ran(99, as, on("large", 140, 61))), FitRequest{}, strings.Replace(line, "run", "10 runs", 1)},
		"large enough":    {[]Spooled{ran(5, as, on("large", 140, 30))}, FitRequest{}, ""},
		"nearly":          {[]Spooled{ran(5, as, on("large", 140, 39))}, FitRequest{}, ""},
		"takes half":      {[]Spooled{ran(5, as, on("large", 140, 90))}, FitRequest{}, ""},
		"of unknown size": {[]Spooled{ran(5, as, on("large", 0, 61))}, FitRequest{}, ""},
		"ran there":       {[]Spooled{ran(6, as, on("large", 140, 61)), ran(5, as, on("small", 40, 30))}, FitRequest{}, ""},
		"another name":    {[]Spooled{ran(5, as, on("large", 140, 61))}, FitRequest{Name: "trai"}, ""},
		"another cluster": {[]Spooled{ran(5, func(s *Spooled) { s.Cluster = "b" }, on("large", 140, 61))}, FitRequest{}, ""},
		"cluster unknown": {[]Spooled{ran(5, func(s *Spooled) { s.Cluster = "" }, on("large", 140, 61))}, FitRequest{}, ""},
		"no name":         {[]Spooled{ran(5, func(s *Spooled) { s.Used.Name = "wrap" }, on("large", 140, 61))}, FitRequest{Name: "wrap"}, ""},
		"odd": {[]Spooled{ran(5, func(s *Spooled) { s.Used.Name = "a\x1b[2J\n\u202e'é" }, on("large", 1<<33, 1<<31))}, FitRequest{Name: "a\x1b[2J\n\u202e'é"},
			`bookend: your last run of "a\x1b[2J\n\u202e'\u00e9" peaked at 2147483648.0 GiB on one GPU; here a GPU has 40.0 GiB: it may not fit. See: bookend peaks NAME`},
		"long": {[]Spooled{ran(5, func(s *Spooled) { s.Used.Name = strings.Repeat("n", 256) }, on("large", 140, 61))}, FitRequest{Name: strings.Repeat("n", 256)},
			`bookend: your last run of "` + strings.Repeat("n", 34) + `... peaked at 61.0 GiB on one GPU; here a GPU has 40.0 GiB: it may not fit. See: bookend peaks NAME`},
	} {
		dir := t.TempDir()
		for i, s := range c.runs {
			s.Version = 1
			text := must.Have(json.Marshal(s))(t)
			must.Do(t, os.WriteFile(fmt.Sprintf("%s/%d.n%d.json", dir, s.ID, i), text, 0o600))
		}
		c.of.Dir, c.of.UID, c.of.Cluster, c.of.GPU = "%h/spool", uint32(os.Getuid()), "a", small
		c.of.Home, c.of.Name = filepath.Dir(dir), cmp.Or(c.of.Name, "train")
		must.Do(t, os.Rename(dir, c.of.Home+"/spool"))
		got, err := fitOf(c.of)
		must.Do(t, err)
		must.Be(t, name, got, c.want)
		must.Not(t, len(got) > 160, "%d bytes", len(got))
		must.Do(t, os.RemoveAll(c.of.Home+"/spool"))
	}
	_, err := fitOf(FitRequest{Dir: "%h/spool", Home: t.TempDir(), Name: "train", GPU: small})
	must.Not(t, err == nil, "a user without a spool")
}

func TestPeaksText(t *testing.T) {
	t.Setenv("TZ", "UTC")
	busy := on("NVIDIA H200", 140, 41)
	busy.Busy = new(86)
	old := Spooled{ID: 1, Job: "1"}
	odd := ran(8, func(s *Spooled) { s.Used.Name = "odd"; s.Used.Unmeasured = "gaps"; s.Used.End = "failed" })
	all := []Spooled{ran(7, func(s *Spooled) { s.Job = "6_1" }, busy, on("NVIDIA H200", 140, 3), on("A", 40, 4)), odd, old}
	for name, want := range map[string]string{
		"train": `JOB  NAME   ENDED        RAN    END  PEAK               BUSY  GPUS
6_1  train  01-01 07:00  1m30s  ok   41.0 of 140.0 GiB  86 %  1 A, 2 NVIDIA H200
Sampled every 1 s: a shorter peak may be missing.

What these runs of train mean for the GPUs that your jobs have had:
NVIDIA H200  140.0 GiB  fits         used 41.0 GiB
A            40.0 GiB   may not fit  used 41.0 GiB
fits: a tenth of it stays free, with as many GPUs as these runs had. Other input may
need more, and the same input on another type of GPU too. All other types: unknown.
A program that takes a fixed share of its GPU, as JAX does, has less on a smaller one.
`,
		"": `JOB  NAME   ENDED        RAN    END     PEAK               BUSY  GPUS
8    odd    01-01 08:00  1m30s  failed  unknown            -     -
6_1  train  01-01 07:00  1m30s  ok      41.0 of 140.0 GiB  86 %  1 A, 2 NVIDIA H200
Sampled every 1 s: a shorter peak may be missing.
>= means that the peak may have been higher: gaps.
`,
	} {
		var b strings.Builder
		NewPeaks(2, "spool", name, all).Text(&b)
		must.Be(t, name, b.String(), want)
	}
}

// The lines are those of sacct 22.05: steps follow their job, and have no TRES of their own but what they used.
func TestAccounted(t *testing.T) {
	here := time.Local
	t.Cleanup(func() { time.Local = here })
	time.Local = time.FixedZone("CET", 3600)
	got := Accounted("7|COMPLETED|2026-11-30T03:00:00|60|billing=1,cpu=1,gres/gpu=1,node=1||a|b\n" +
		"7.batch|COMPLETED|2026-11-30T03:00:00|60|cpu=1|cpu=00:00:01,gres/gpumem=36266M|batch\n" +
		"7.0|COMPLETED|2026-11-30T03:00:00|60|cpu=1|gres/gpumem=1G|x\n" +
		"8_3|OUT_OF_MEMORY|2026-11-30T04:00:00|61|cpu=1,gres/gpu:a100=1||a|b\n" +
		"9|RUNNING|Unknown|61|cpu=1,gres/gpu=1||a|b\n9.0|RUNNING|Unknown|61||gres/gpumem=9G|x\n" +
		"10|COMPLETED|2026-11-30T03:00:00|60|cpu=1||a|b\n10.0|COMPLETED|2026-11-30T03:00:00|60|cpu=1||x\n" +
		"11|COMPLETED|2026-11-30T02:00:00|60|gres/gpu=2||a|b\n11.0|COMPLETED|2026-11-30T02:00:00|60||gres/gpumem=150G|x\ngarbage\n")
	must.Be(t, "time", got[0].At, time.Date(2026, 11, 30, 3, 0, 0, 0, time.UTC)) // sacct is run in UTC
	p := NewPeaks(2, "sacct", "a|b", got)
	text := ""
	for _, r := range p.Runs {
		text += fmt.Sprintln(r.Job, r.End, r.RanOut, r.Seconds, strings.ReplaceAll(r.cells(), "\t", " "))
	}
	must.Be(t, "runs", text, "8_3 failed true 61 unknown - -\n7 ok false 60 >= 35.4 GiB - 1 ?\n11 ok false 60 unknown - -\n")
	must.Be(t, "models", len(p.Models), 0)
}
