package maintenance

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"bookend/internal/child"
	"bookend/internal/gpu"
	"bookend/internal/node"
	"bookend/internal/record"
	"bookend/internal/slurm"
	"bookend/internal/slurmcmd"
	"bookend/internal/state"
	"bookend/test/must"
	"bookend/test/onrecord"
)

// slurmOfTwo stands for Slurm's programs on a node of two GPUs. New jobs are 11, 12 and so on, and get GPU 0, 1 and so on;
// job 5 has GPU 1. Its directory has each older job's state in jobN, the ids of running jobs in "running", how many GPUs
// they have in "used", "silent" if slurmctld does not answer, and what was asked for in "log".
const slurmOfTwo = `#!/bin/sh
cd "$(dirname "$0")"
[ ! -e silent ] || { echo "scontrol: error: Unable to contact slurm controller" >&2; exit 1; }
case ${0##*/} in
sbatch) n=$(($(cat jobs 2>/dev/null || echo 10) + 1)); echo $n >jobs; echo $n; echo sbatch >>log; exit;;
squeue) [ ! -e running ] || cat running; exit;;
scancel) echo "scancel $*" >>log; for id; do [ ! -e keep$id ] || exit 1; echo CANCELLED >job$id; done; exit;;
esac
for id; do :; done
case $* in
*"show node"*) printf 'NodeName=n1 Arch=x\n   Gres=gpu:2\n   GresUsed=gpu:%s\n   State=IDLE X=\n   Partitions=a \n' $(cat used 2>/dev/null || echo 0);;
*"show partition"*) printf 'PartitionName=a\n   X=1 PriorityTier=1 OverSubscribe=NO\n   X=NO PreemptMode=OFF\n   State=UP X=\n';;
*"show job"*) [ $id -gt 10 ] || [ -e job$id ] || { echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1; }
	user='root(0)'; [ $id != 5 ] || [ ! -e users ] || user='alice(1000)'
	on=n1; [ $id != 5 ] || [ ! -e another ] || on=n2
	gpu=$((id - 11)); [ $id != 5 ] || gpu=1
	printf 'JobId=%s JobName=bookend-quarantine\n   UserId=%s GroupId=x\n   JobState=%s Reason=x X=\n   ReqNodeList=%s ExcNodeList=\n     Nodes=n1 CPU_IDs=0 Mem=1 GRES=gpu:1(IDX:%s)\n' $id "$user" "$(cat job$id 2>/dev/null || echo RUNNING)" $on $gpu;;
*TimeLimit*) echo "$*" >>log;;
esac
`

// quarantined is a node with such a Slurm, whose last health check saw GPU-a as 0 and GPU-b as 1.
func quarantined(t *testing.T) (a *node.Access, dir string) {
	a, _ = onrecord.Node(t, slurm.HealthCheck)
	a.Env.EUID = 1 // the programs need not be trusted
	a.Config.Paths.Var, dir = filepath.Join(must.RootsDir(t), "var"), t.TempDir()
	for _, program := range []string{"scontrol", "sbatch", "squeue", "scancel"} {
		must.Do(t, os.WriteFile(filepath.Join(dir, program), []byte(slurmOfTwo), 0o755))
	}
	a.Config.Slurm.Scontrol = filepath.Join(dir, "scontrol")
	cards := []record.Assigned{{Index: 0, Device: gpu.Device{ID: "GPU-a"}}, {Index: 1, Device: gpu.Device{ID: "GPU-b"}}}
	must.Do(t, state.LastCheck.Save(a.Store, &record.Check{Cards: cards}))
	return a, dir
}

// A GPU that an admin wants in quarantine is held again once its job has ended, but not another GPU that has its number
// now, not for longer, and not while it is not known whether a job holds it.
func TestRemake(t *testing.T) {
	here := node.ReadEpoch(node.Unconfigured(child.Env{Clock: child.SystemClock()}, slurm.Epilog, 0).Config.Paths).Boot
	at := time.Now().Add(-time.Hour)
	const again, unlimited = "sbatch\nsbatch\nupdate JobId=12 TimeLimit=", "UNLIMITED\nscancel 11\n"
	for name, tt := range map[string]struct {
		files   map[string]string
		edit    func(q *state.Quarantine)
		check   *record.Check // if not the last
		log     string
		problem string
		job     int
	}{
		"held":                         {map[string]string{"job5": "RUNNING", "used": "1", "running": "5"}, nil, nil, "", "", 5},
		"held, which GPU is known now": {nil, func(q *state.Quarantine) { q.UUID, q.Job = "", 11 }, nil, "", "", 11},
		"suspended":                    {map[string]string{"job5": "SUSPENDED"}, nil, nil, "", "", 5},
		"scancelled":                   {map[string]string{"job5": "CANCELLED"}, nil, nil, again + unlimited, "", 12},
		"forgotten":                    {nil, nil, nil, again + unlimited, "", 12},
		"its number is a user's job":   {map[string]string{"job5": "RUNNING", "users": ""}, nil, nil, again + unlimited, "", 12},
		"its number is another node's": {map[string]string{"job5": "RUNNING", "another": ""}, nil, nil, again + unlimited, "", 12},
		"the node failed":              {map[string]string{"job5": "NODE_FAIL"}, nil, nil, again + unlimited, "", 12},
		"slurmctld is silent":          {map[string]string{"silent": ""}, nil, nil, "", "", 5},
		"after a reboot":               {map[string]string{"job5": "NODE_FAIL"}, func(q *state.Quarantine) { q.Boot = "b0" }, nil, again + unlimited, "", 12},
		"Slurm does not know of the reboot": {map[string]string{"job5": "RUNNING", "used": "2", "running": "5 6", "job6": "RUNNING"},
			func(q *state.Quarantine) { q.Boot = "b0" }, nil, again + unlimited, "", 12},
		"another GPU": {nil, func(q *state.Quarantine) { q.Boot, q.UUID = "b0", "GPU-c" }, nil, "",
			"that number was GPU-c and is GPU-b now: bookend release 1", 5},
		"another GPU in one boot":  {nil, func(q *state.Quarantine) { q.UUID = "GPU-c" }, nil, "", "that number was GPU-c", 5},
		"which GPU is not known":   {nil, func(q *state.Quarantine) { q.Boot = "b0" }, &record.Check{}, "", "is not known", 5},
		"which GPU was not known":  {nil, func(q *state.Quarantine) { q.Boot, q.UUID = "b0", "" }, nil, "", "is not known", 5},
		"lost, in one boot":        {nil, nil, &record.Check{}, again + unlimited, "", 12},
		"never known, in one boot": {nil, func(q *state.Quarantine) { q.UUID = "" }, nil, again + unlimited, "", 12},
		"in no partition":          {nil, func(q *state.Quarantine) { q.Partition, q.Vain = "none", 1 }, nil, "", "no partition", 5},
		"often in vain":            {nil, func(q *state.Quarantine) { q.Tried, q.Vain, q.Problem = time.Now(), tries, "only 1 of 2" }, nil, "", "only 1 of 2", 5},
		"in vain":                  {nil, func(q *state.Quarantine) { q.Tried, q.Vain = time.Now(), tries-1 }, nil, again + unlimited, "", 12},
		"long ago":                 {nil, func(q *state.Quarantine) { q.Tried, q.Vain = time.Now().Add(-time.Hour), tries }, nil, again + unlimited, "", 12},
		"over":                     {nil, func(q *state.Quarantine) { q.Until = at.Add(time.Minute) }, nil, "", "", 5},
		"for a while":              {nil, func(q *state.Quarantine) { q.Until = at.Add(2 * time.Hour) }, nil, again + "60\nscancel 11\n", "", 12},
		"the clock is wrong": {nil, func(q *state.Quarantine) {
			q.Since, q.Until = at.Add(24*time.Hour), at.Add(25*time.Hour)
		}, nil, again + "60\nscancel 11\n", "", 12},
		"a job has it": {map[string]string{"job5": "CANCELLED", "used": "1", "running": "12"}, nil, nil, "", "a job has the GPU", 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, dir := quarantined(t)
			if tt.check != nil {
				must.Do(t, state.LastCheck.Save(a.Store, tt.check))
			}
			q := state.Quarantine{Job: 5, GPU: 1, UUID: "GPU-b", Boot: here, Since: at, Reason: "ticket 17"}
			if tt.edit != nil {
				tt.edit(&q)
			}
			disk := node.Journal[[]state.Quarantine](a, "quarantines")
			must.Do(t, disk.Write([]state.Quarantine{q}))
			must.Do(t, a.Store.Quarantine(state.Quarantine{GPU: 1, UUID: q.UUID, Since: at}, []slurm.JobID{q.Job}))
			for file, text := range tt.files {
				must.Do(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644))
			}
			must.Do(t, RestoreQuarantines(a))
			log, _ := os.ReadFile(filepath.Join(dir, "log"))
			must.Be(t, "log", strings.ReplaceAll(string(log), "scancel 11 12\n", ""), tt.log)
			now := must.Have(disk.Read())(t)
			must.Not(t, len(now) != 1, "%+v", now)
			must.Be(t, "job", int(now[0].Job), tt.job)
			must.Not(t, !strings.Contains(now[0].Problem, tt.problem) || tt.problem == "" && now[0].Problem != "", "problem %q", now[0].Problem)
			must.Be(t, "failed once more", name != "in no partition" || now[0].Vain == 2 && time.Since(now[0].Tried) < time.Minute, true)
			must.Be(t, "since", now[0].Since.Equal(q.Since), true)
			held := ""
			for _, q := range state.Quarantines.Peek(a.Store) {
				if q.GPU >= 0 {
					held += fmt.Sprintln(q.Job, q.GPU, q.UUID)
				}
			}
			want := ""
			if tt.job == 12 || slices.Contains([]string{"held", "held, which GPU is known now", "suspended", "slurmctld is silent"}, name) {
				want = fmt.Sprintln(tt.job, 1, now[0].UUID) // the same UUID, or metrics show two GPUs
				must.Be(t, "boot", now[0].Boot, here)
			}
			must.Be(t, "held", held, want)
		})
	}
}

// What an admin asks for is on disk until its release: then nothing remakes it. One program at a time does either.
func TestQuarantineAndRelease(t *testing.T) {
	a, dir := quarantined(t)
	s := slurmcmd.Scontrol{Path: a.Config.Slurm.Scontrol, Time: func() time.Duration { return time.Minute }}
	disk := node.Journal[[]state.Quarantine](a, "quarantines")
	past := state.Quarantine{Job: 3, GPU: 0, Until: time.Now().Add(-time.Hour)}
	must.Do(t, disk.Write([]state.Quarantine{past, {Job: 4, GPU: 1, Reason: "older"}}))
	job := must.Have(Quarantine(a, slurmcmd.Quarantine{Slurm: s, GPUs: []int{1}, For: 72 * time.Hour, Partition: "a"}, 0, "ticket 17"))(t)
	must.Be(t, "job", int(job[0].Job), 12)
	wanted := must.Have(Wanted(a))(t)
	must.Not(t, len(wanted) != 1, "%+v", wanted)
	w := wanted[0]
	must.Be(t, "until", w.Until.Sub(w.Since), 72*time.Hour)
	must.Be(t, "wanted", fmt.Sprintln(w.Job, w.GPU, w.UUID, w.Reason, w.Partition), "12 1 GPU-b ticket 17 a\n")

	done := must.Have(a.Store.Turns.Quarantine(0))(t)
	must.Not(t, RestoreQuarantines(a) == nil, "two at once")
	done()
	if found, err := Release(a, s, "0"); found || err != nil {
		t.Errorf("GPU 0: %v, %v", found, err)
	}
	if found, err := Release(a, s, "-1"); found || err != nil {
		t.Errorf("GPU -1: %v, %v", found, err)
	}
	if found, err := Release(a, s, "1"); !found || err != nil {
		t.Errorf("GPU 1: %v, %v", found, err)
	}
	must.Be(t, "wanted", len(must.Have(Wanted(a))(t)), 0)
	must.Do(t, RestoreQuarantines(a))
	log := must.Read(t, filepath.Join(dir, "log"))
	must.Be(t, "log", log, "sbatch\nsbatch\nupdate JobId=12 TimeLimit=4320\nscancel 11\nscancel 12\n")
	for _, q := range state.Quarantines.Peek(a.Store) { // hooks know the jobs until their epilogs
		must.Be(t, "GPU of a job", q.GPU, -1)
	}

	// after a reboot only the disk has it; its job's number may be another's job
	w.Job, w.Boot = 7, "b0"
	must.Do(t, disk.Write([]state.Quarantine{w}))
	if found, err := Release(a, s, "1"); !found || err != nil {
		t.Errorf("GPU 1 after a reboot: %v, %v", found, err)
	}
	must.Be(t, "log", must.Read(t, filepath.Join(dir, "log")), log)

	// the node's state was lost, and Slurm still has the job
	must.Do(t, os.WriteFile(filepath.Join(dir, "job7"), []byte("RUNNING"), 0o644))
	must.Do(t, disk.Write([]state.Quarantine{w}))
	if found, err := Release(a, s, "1"); !found || err != nil {
		t.Errorf("GPU 1 without the node's state: %v, %v", found, err)
	}
	must.Be(t, "log", must.Read(t, filepath.Join(dir, "log")), log+"scancel 7\n")
}

// All GPUs of a node are held by one fill of it, and so they are again once their jobs have ended. What a job has is not
// held, and what could be had stays.
func TestAllGPUs(t *testing.T) {
	a, dir := quarantined(t)
	s := slurmcmd.Scontrol{Path: a.Config.Slurm.Scontrol, Time: func() time.Duration { return time.Minute }}
	world := func(file, text string) { must.Do(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644)) }
	jobs := func(all []state.Quarantine) (text string) {
		for _, q := range all {
			text += fmt.Sprintf("%d:%d %s;", q.GPU, q.Job, q.UUID)
		}
		return text
	}
	world("jobs", "11")
	world("used", "1")
	world("running", "11") // a user's
	held, err := Quarantine(a, slurmcmd.Quarantine{Slurm: s}, 0, "ticket 17")
	must.Not(t, !strings.Contains(fmt.Sprint(err), "GPU 0 is not held: a job has the GPU"), "got %v", err)
	must.Be(t, "held", jobs(held), "1:12 GPU-b;")

	world("jobs", "10") // the job has ended: GPU 0 is free, and the next job is given that
	world("running", "12")
	held = must.Have(Quarantine(a, slurmcmd.Quarantine{Slurm: s}, 0, "ticket 17"))(t)
	must.Be(t, "held", jobs(held), "1:12 GPU-b;0:11 GPU-a;")
	must.Be(t, "held already", jobs(must.Have(Quarantine(a, slurmcmd.Quarantine{Slurm: s}, 0, "ticket 18"))(t)), "0:11 GPU-a;1:12 GPU-b;")

	for file, text := range map[string]string{"jobs": "10", "used": "0", "running": "", "log": "", "job11": "RUNNING", "job12": "RUNNING"} {
		world(file, text)
	}
	disk := node.Journal[[]state.Quarantine](a, "quarantines")
	wanted := must.Have(disk.Read())(t)
	for i := range wanted {
		wanted[i].Job = 3 // Slurm has no such job
	}
	must.Do(t, disk.Write(wanted))
	must.Do(t, RestoreQuarantines(a))
	must.Be(t, "held again", jobs(must.Have(disk.Read())(t)), "1:12 GPU-b;0:11 GPU-a;")
	const limit = "update JobId=%d TimeLimit=UNLIMITED\n"
	must.Be(t, "one fill", must.Read(t, filepath.Join(dir, "log")), "sbatch\nsbatch\n"+fmt.Sprintf(limit+limit, 11, 12))

	world("keep12", "") // cannot be cancelled now
	found, err := Release(a, s, "")
	must.Not(t, !found || err == nil, "released: %v, %v", found, err)
	must.Be(t, "wanted", jobs(must.Have(Wanted(a))(t)), "1:12 GPU-b;")
	must.Do(t, os.Remove(filepath.Join(dir, "keep12")))
	must.Be(t, "released", must.Have(Release(a, s, ""))(t), true)
	must.Be(t, "wanted", jobs(must.Have(Wanted(a))(t)), "")
	must.Be(t, "in none", must.Have(Release(a, s, ""))(t), false)
}
