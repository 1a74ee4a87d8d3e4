package slurm

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"bookend/test/golden"
	"bookend/test/must"
)

var update = flag.Bool("update", false, "rewrite the files of testdata that say what follows")

type env map[string]string

func (e env) get(name string) string { return e[name] }

// with returns the environment with more variables; an empty value unsets one.
func (e env) with(more env) env {
	all := maps.Clone(e)
	maps.Copy(all, more)
	return all
}

// The environments of a root hook, by the version that added to them.
var (
	slurm2205 = env{
		"SLURMD_NODENAME": "n1", "SLURM_CLUSTER_NAME": "lab", "SLURM_CONF": "/etc/slurm/slurm.conf",
		"SLURM_JOB_ID": "1234", "SLURM_JOBID": "1234", "SLURM_JOB_UID": "1000", "SLURM_UID": "1000",
		"SLURM_JOB_GID": "100", "SLURM_JOB_USER": "ada", "SLURM_NODELIST": "n[1-2]",
		"SLURM_JOB_PARTITION": "main", "SLURM_JOB_CONSTRAINTS": "(null)",
		"SLURM_SCRIPT_CONTEXT": "prolog_slurmd", "CUDA_VISIBLE_DEVICES": "0,1", "GPU_DEVICE_ORDINAL": "0,1",
		"SLURM_JOB_WORK_DIR": "/home/ada", "SLURM_JOB_GPUS": "0,1", "SLURM_NODE_ALIASES": "(null)",
		"SLURM_JOB_STDOUT": "/home/ada/dir with space/out %x %j.txt", "SLURM_JOB_STDIN": "/dev/null",
		"SLURM_JOB_ACCOUNT": "acc", "SLURM_JOB_COMMENT": "it's \"raw\"", "SLURM_JOB_NUM_NODES": "2",
		"SLURM_JOB_RESTART_COUNT": "1",
	}
	slurm2302 = slurm2205.with(env{
		"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_JOB_OVERSUBSCRIBE": "OK",
		"SLURM_JOB_START_TIME": "1700000000", "SLURM_JOB_END_TIME": "1700003600",
	})
	epilog = env{
		"SLURM_SCRIPT_CONTEXT": "epilog_slurmd",
		"SLURM_JOB_EXIT_CODE":  "768", "SLURM_JOB_EXIT_CODE2": "3:0", "SLURM_JOB_DERIVED_EC": "1280",
	}
)

func parse(lines string) env {
	e := env{}
	for line := range strings.Lines(lines) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		e[name] = value
	}
	return e
}

func TestFromEnv(t *testing.T) {
	golden.Archive(t, *update, "testdata/job.txtar", func(more string) string {
		job, err := FromEnv(slurm2205.with(parse(more)).get)
		if err == nil {
			return string(must.Have(json.Marshal(job))(t))
		}
		must.Not(t, !reflect.DeepEqual(job, Job{}), "%v, and %+v", err, job)
		return err.Error()
	})
}

// The whole node is a job's if Slurm says so, as 24.11 and 26.05 were seen to.
func TestExclusive(t *testing.T) {
	for _, tt := range []struct {
		oversubscribe, exclusive string
		want                     bool
	}{
		{"", "", false}, {"OK", "", false}, {"YES", "", false}, {"USER", "", false}, {"NO", "", true},
		{"NO", "NO", false}, {"NO", "USER", false}, {"NO", "MCS", false}, {"YES", "NO", false}, {"NO", "NODE", true},
	} {
		e := slurm2302.with(env{"SLURM_JOB_OVERSUBSCRIBE": tt.oversubscribe, "SLURM_JOB_EXCLUSIVE": tt.exclusive})
		if job := must.Have(FromEnv(e.get))(t); job.Exclusive != tt.want {
			t.Errorf("%+v: %v", tt, job.Exclusive)
		}
	}
}

func TestHasGPUs(t *testing.T) {
	for name, tt := range map[string]struct {
		e   env
		has bool
	}{
		"root: job GPUs":                {env{"SLURM_SCRIPT_CONTEXT": "prolog_slurmd", "SLURM_JOB_GPUS": "0"}, true},
		"task: srun only":               {env{"SLURM_SCRIPT_CONTEXT": "prolog_task", "SLURM_STEP_GPUS": "0"}, true},
		"nothing":                       {env{}, false},
		"root: (null)":                  {env{"SLURM_SCRIPT_CONTEXT": "prolog_slurmd", "SLURM_JOB_GPUS": "(null)"}, false},
		"task: the user's own variable": {env{"SLURM_SCRIPT_CONTEXT": "epilog_task", "CUDA_VISIBLE_DEVICES": "0"}, false},
	} {
		must.Be(t, name, HasGPUs(tt.e.get), tt.has)
	}
}

func TestTaskFromEnv(t *testing.T) {
	golden.Archive(t, *update, "testdata/task.txtar", func(given string) string {
		e := parse(given)
		return fmt.Sprintf("%+v", TaskFromEnv(e.get, e["cgroup"]))
	})
}

func TestOwnerOfCgroup(t *testing.T) {
	golden.Archive(t, *update, "testdata/cgroup.txtar", func(text string) string {
		return fmt.Sprintf("%+v", OwnerOfCgroup(text))
	})
}

// What people, Slurm's lists and its programs name: references of jobs, elements of lists, versions.
func TestWords(t *testing.T) {
	golden.Lines(t, *update, "testdata/words.txt", func(given string) string {
		what, text, _ := strings.Cut(given, " ")
		var ok bool
		var got any
		switch what {
		case "job":
			ref, err := ParseRef(text)
			got, ok = fmt.Sprintf("%+v", ref), err == nil
		case "first":
			got, ok = FirstHost(text), true
		case "expand":
			got, ok = Expand(text)
		case "version":
			got, ok = ParseVersion(text)
		}
		if !ok {
			return "none"
		}
		return fmt.Sprint(got)
	})
	must.Be(t, "a name too long for a file", FirstHost(strings.Repeat("n", 300)), "")
}

func TestTaskJob(t *testing.T) {
	const sluid = "sCHNM7Y8WBK900"
	for name, tt := range map[string]struct{ task, want Owner }{
		"no cgroup names it":           {Owner{}, Owner{ID: 7}},
		"cgroups that name two":        {Owner{Conflict: "two"}, Owner{ID: 7}},
		"its cgroup has the id":        {Owner{ID: 8, Step: "batch"}, Owner{ID: 8, Step: "batch"}},
		"its cgroup has the run alone": {Owner{SLUID: sluid, Step: "0"}, Owner{ID: 7, SLUID: sluid, Step: "0"}},
	} {
		must.Be(t, name, Task{Owner: tt.task, EnvID: 7}.Job(), tt.want)
	}
	must.Be(t, "without an environment", Task{Owner: Owner{SLUID: sluid}}.Job(), Owner{SLUID: sluid})
}

// A job's values come back as they were written, or the job is refused: nothing that root will use is made up.
func FuzzFromEnv(f *testing.F) {
	f.Add("1234", "1000", "n1", "sCHNM7Y8WBK900", "0,1", "GPU-1,GPU-2", "768", "1700000000", "1")
	f.Add("1", "0", "gpu-01.hpc", "", "(null)", "MIG-GPU-1/2/3", "-1", "x", "")
	f.Add("4294967295", "4294967295", "n1/..", "sCHNM7Y8WBK90I", "0,0", "NoDevFiles", "65536", "4294967294", "01")
	f.Add("1", "1", "n1", "", "0", "/"+strings.Repeat("a", maxPath-1), "0", "1", "") // longer than a path can be
	f.Fuzz(func(t *testing.T, id, uid, node, sluid, gpus, visible, exit, start, restarts string) {
		e := slurm2302.with(epilog).with(env{
			"SLURM_JOB_ID": id, "SLURM_JOB_UID": uid, "SLURMD_NODENAME": node,
			"SLURM_JOB_SLUID": sluid, "SLURM_JOB_GPUS": gpus, "CUDA_VISIBLE_DEVICES": visible,
			"SLURM_JOB_EXIT_CODE": exit, "SLURM_JOB_START_TIME": start, "SLURM_JOB_RESTART_COUNT": restarts,
			"SLURM_JOB_PARTITION": gpus, "SLURM_JOB_STDOUT": visible, "SLURM_JOB_WORK_DIR": sluid,
		})
		job, err := FromEnv(e.get)
		if err != nil {
			must.Not(t, !printable(err.Error()) || len(err.Error()) > 1024,
				"error is not printable, or long: %q", err.Error())
			return
		}
		switch {
		case fmt.Sprint(job.ID) != id || fmt.Sprint(job.UID) != uid || job.ID == 0 || job.UID == 1<<32-1:
			t.Fatalf("job %d of user %d, not %q of %q", job.ID, job.UID, id, uid)
		case job.Node != node || !nodeForm.MatchString(node) || string(job.SLUID) != sluid || sluid != "" &&
			!sluidForm.MatchString(sluid):
			t.Fatalf("unsafe path part: %q, %q", job.Node, job.SLUID)
		case restarts != "" && fmt.Sprint(job.Restarts) != restarts:
			t.Fatalf("%d restarts, not %q", job.Restarts, restarts)
		case job.Exit.Known == (job.Exit.Why != "") || job.Exit.Known && fmt.Sprint(job.Exit.Raw) != exit:
			t.Fatalf("exit %+v of %q", job.Exit, exit)
		case !job.Start.IsZero() && fmt.Sprint(job.Start.Unix()) != start:
			t.Fatalf("start %v of %q", job.Start, start)
		case len(job.Partition) > maxName || !strings.HasPrefix(gpus, job.Partition):
			t.Fatalf("partition %q of %q", job.Partition, gpus)
		case job.Stdout != "" && job.Stdout != visible || len(job.Stdout) >= maxPath:
			t.Fatalf("a path that was cut: %q", job.Stdout)
		}
		sameLists(t, e, job)
	})
}

// sameLists: both lists hold what Slurm wrote, or neither holds anything and a problem is stated.
func sameLists(t *testing.T, e env, job Job) {
	t.Helper()
	var indexes []string
	for _, i := range job.GPUIndexes {
		indexes = append(indexes, fmt.Sprint(i))
	}
	none := job.GPUIndexes == nil && job.Visible == nil
	switch {
	case job.GPUProblem != "" && !none:
		t.Fatalf("half a list: %+v", job)
	case job.GPUProblem != "" && !printable(job.GPUProblem):
		t.Fatalf("problem %q", job.GPUProblem)
	case HasGPUs(e.get) != (job.GPUProblem != "" || !none):
		t.Fatalf("HasGPUs is %v, but the job is %+v", HasGPUs(e.get), job)
	case job.GPUProblem == "" && strings.Join(indexes, ",") != gpuValue(e.get, "SLURM_JOB_GPUS"):
		t.Fatalf("indexes %v of %q", job.GPUIndexes, e["SLURM_JOB_GPUS"])
	case job.GPUProblem == "" && !none && strings.Join(job.Visible, ",") != gpuValue(e.get, "CUDA_VISIBLE_DEVICES"):
		t.Fatalf("devices %q of %q", job.Visible, gpuValue(e.get, "CUDA_VISIBLE_DEVICES"))
	}
}

var (
	nodeForm  = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*\.?$`)
	sluidForm = regexp.MustCompile(`^s[0-9A-HJKMNP-TV-Z]{13}$`)
	jobForm   = regexp.MustCompile(`^[1-9][0-9]*$`)
	stepForm  = regexp.MustCompile(`^[A-Za-z0-9+]{1,32}$`)
)

func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

// The environment of a task hook is the user's: it changes nothing of what its cgroup says.
func FuzzTaskFromEnv(f *testing.F) {
	f.Add("prolog_task", "n1", "12", "-5", "0", "7", "3", "0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0")
	f.Add("epilog_task", "../", "0", "4294967290", "-1", "1\n2", "x", "0::/")
	f.Add("epilog_slurmd", "n1", "5", "4294967296", "2147483648", "", "4294967296",
		"3:cpu:/slurm/uid_1/job_5/step_batch\n")
	f.Fuzz(func(t *testing.T, context, node, id, step, local, master, member, cgroup string) {
		task := TaskFromEnv(env{
			"SLURM_SCRIPT_CONTEXT": context, "SLURMD_NODENAME": node, "SLURM_JOB_ID": id, "SLURM_STEP_ID": step,
			"SLURM_LOCALID": local, "SLURM_ARRAY_JOB_ID": master, "SLURM_ARRAY_TASK_ID": member,
			"SLURM_HET_JOB_ID": master,
		}.get, cgroup)
		switch {
		case task.Owner != OwnerOfCgroup(cgroup):
			t.Fatalf("owner %+v of cgroup %q", task.Owner, cgroup)
		case task.Owner.Step != "" && task.Step != task.Owner.Step || task.Step != "" &&
			!stepForm.MatchString(task.Step):
			t.Fatalf("step %q of %+v", task.Step, task.Owner)
		case task.Node != "" && (task.Node != node || !nodeForm.MatchString(node)):
			t.Fatalf("node %q of %q", task.Node, node)
		case task.EnvID != 0 && fmt.Sprint(task.EnvID) != id || task.HetID != 0 && fmt.Sprint(task.HetID) != master:
			t.Fatalf("ids %d and %d of %q and %q", task.EnvID, task.HetID, id, master)
		case task.LocalID < -1 || task.LocalID > 0 && fmt.Sprint(task.LocalID) != local:
			t.Fatalf("task %d of %q", task.LocalID, local)
		case task.Array.Master == 0 && task.Array.Task != 0:
			t.Fatalf("half an array: %+v", task.Array)
		case task.Array.Master != 0 &&
			(fmt.Sprint(task.Array.Master) != master || fmt.Sprint(task.Array.Task) != member):
			t.Fatalf("array %+v of %q, %q", task.Array, master, member)
		}
	})
}

// What is read is what was written: anything else, such as a sign or a zero in front, is refused.
func FuzzParseRef(f *testing.F) {
	for _, seed := range []string{
		"1234", "1234_7", "1234+1", "sCHNM7Y8WBK900", "1_", "+", "1_2+3", "0_1",
		"", "0", "-1", "+1", "_1", "1+", "1_2_3", "1.0", "1234.batch", "01", " 1", "1 ", "1_[1-3]",
		"4294967296", "1_4294967296", "sCHNM7Y8WBK90", "SCHNM7Y8WBK900", "../1", "1\n", strings.Repeat("1", 5000),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ref, err := ParseRef(text)
		again := string(ref.SLUID)
		if ref.SLUID == "" {
			again = fmt.Sprint(ref.ID)
		}
		if ref.Sign != "" {
			again += ref.Sign + fmt.Sprint(ref.Part)
		}
		switch {
		case err == nil && (again != text || again == "0" || ref.Text != text):
			t.Fatalf("ParseRef(%q) = %+v", text, ref)
		case err != nil && (ref != Ref{} || !printable(err.Error()) || len(err.Error()) > 400):
			t.Fatalf("ParseRef(%q) = %+v, %q", text, ref, err.Error())
		}
	})
}

// A process is never made out to be another job's, whatever folders it, or another program, has made.
func FuzzOwnerOfCgroup(f *testing.F) {
	for _, seed := range []string{
		"6:freezer:/slurm_n1/uid_5/job_1/step_batch\n0::/\n",
		"12:cpuset:/slurm/uid_1000/job_77/step_0/task_0\n11:memory:/slurm/uid_1000/job_77/step_0\n" +
			"5:devices:/slurm/uid_1000/job_77\n",
		"0::/system.slice/n1_slurmstepd.scope/sCHNM7Y8WBK900/step_0/user/task_0 (deleted)\n",
		"0::/system.slice/slurmstepd.scope/job_12/step_0+1/slurm\n0::/a/slurmstepd.scope/job_3",
		"0::/user.slice/user-1000.slice/user@1000.service/app.slice/slurmstepd.scope/job_1",
		"0::/../slurmstepd.scope/job_4294967296/step_-1\n", "\n:\n::\n0::\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		o := OwnerOfCgroup(text)
		switch {
		case o.ID != 0 && o.SLUID != "":
			t.Fatalf("both names: %+v", o)
		case o.Conflict != "" && (o.Found() || o.Step != ""):
			t.Fatalf("a job in spite of a conflict: %+v", o)
		case o.ID != 0 && !strings.Contains(text, fmt.Sprintf("/job_%d", o.ID)), o.SLUID != "" &&
			!strings.Contains(text, "/"+string(o.SLUID)):
			t.Fatalf("a job that is not in %q: %+v", text, o)
		case o.SLUID != "" && !sluidForm.MatchString(string(o.SLUID)), o.Step != "" && !stepForm.MatchString(o.Step):
			t.Fatalf("names %+v", o)
		case !o.Found() && (o.Step != "" || o.Daemon):
			t.Fatalf("a step without a job: %+v", o)
		case InJob(text) != (o.Found() || o.Conflict != ""):
			t.Fatalf("InJob is %v of %+v", InJob(text), o)
		}
		folders := strings.ReplaceAll(text, "\n", "/")
		if o := OwnerOfCgroup("0::/user.slice/user@1.service/" + folders); o.Found() {
			t.Fatalf("a user's own directory names a job: %+v", o)
		}
		if o := OwnerOfCgroup("0::/system.slice/slurmstepd.scope/job_9/step_0/user/" + folders); o.ID != 9 {
			t.Fatalf("a directory within job 9 names another: %+v", o)
		}
		whole := strings.TrimSuffix(text, "\n") + "\n0::/system.slice/slurmstepd.scope/job_9\n"
		if now := OwnerOfCgroup(whole); now.Found() && now.ID != 9 || !now.Found() && now.Conflict == "" {
			t.Fatalf("with a line of job 9 it is of %+v", now)
		}
	})
}

// What may become a path or a number is what a regular expression says too.
func FuzzGrammar(f *testing.F) {
	for _, seed := range []string{"1", "0", "01", "4294967295", "4294967296", "+1", "n1", "n1.hpc", "a..b", ".a",
		"-a", "a/b", "a\n",
		"a\x00", "sCHNM7Y8WBK900", "sCHNM7Y8WBK90I", "sCHNM7Y8WBK900\n", strings.Repeat("n", 256), "GPU-1",
		"MIG-GPU-1/2/3", "é"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := strconv.ParseUint(s, 10, 64)
		id, ok := ParseJobID(s)
		if want := jobForm.MatchString(s) && err == nil && n < 1<<32; ok != want || ok && uint64(id) != n {
			t.Errorf("job id %q: %d, %v", s, id, ok)
		}
		must.Not(t, ValidSLUID(s) != sluidForm.MatchString(s), "SLUID %q: %v", s, ValidSLUID(s))
		must.Not(t, ValidNode(s) != (nodeForm.MatchString(s) && len(s) <= 255), "node %q: %v", s, ValidNode(s))
	})
}

// What two looks said of a process's job is joined.
func TestThen(t *testing.T) {
	job := func(id JobID) Owner { return Owner{ID: id, Step: "0", Daemon: true} }
	both := Owner{Conflict: "cgroups name two jobs, 100 and 101"}
	for name, tt := range map[string]struct {
		was, now Owner
		id       JobID
		conflict bool
	}{
		"the same":                 {job(100), job(100), 100, false},
		"no longer in its cgroup":  {job(100), Owner{}, 100, false},
		"not yet in one":           {Owner{}, job(100), 100, false},
		"moved to another job's":   {job(100), job(101), 0, true},
		"two at once":              {job(100), both, 0, true},
		"two at once, then in one": {both, job(100), 0, true},
	} {
		tt.was.Step, tt.was.Daemon = "", false
		got := tt.was.Then(tt.now)
		if got.ID != tt.id || (got.Conflict != "") != tt.conflict || got.Step != "" || got.Daemon {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestGPUMemory(t *testing.T) {
	for text, want := range map[string]uint64{"gres/gpumem=0": 0, "gres/gpumem=2048": 2048, "cpu=1,gres/gpumem=1.50G": 3 << 29,
		"gres/gpumem=141T": 141 << 40, "gres/gpumem=": 0, "gres/gpumem=G": 0, "gres/gpumem=1X": 0, "gres/gpumem=1e300": 0} {
		if got := GPUMemory(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}
