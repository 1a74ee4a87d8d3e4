package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"bookend/internal/slurm"
	"golang.org/x/sys/unix"

	"bookend/test/cluster"
	"bookend/test/must"
	"bookend/test/site"
)

const (
	full  = "fallocate -l 66M /dev/shm/{job}"
	alone = "--exclusive" // which Slurm tells hooks since 23.02
)

// What a job leaves in shared memory is named, with who may have left it; what is another's, was there before or is in
// use is not.
func TestSharedMemory(t *testing.T) {
	t.Parallel()
	hasSharedMemory(t)
	s := given(t, site.Options{Track: inCgroups()})
	users := cluster.Users(4) // not those of the stories next to it: a process of the user excuses the job
	s.user, s.stranger = users[2], users[3]
	must.Do(t, os.Symlink("/dev/shm", filepath.Join(s.on.Dev("n1"), "shm")))
	told := version(t).Has(slurm.Version{23, 2})
	every := ""
	for b := 1; b < 256; b++ {
		if b != '/' {
			every += fmt.Sprintf(`\%03o`, b)
		}
	}
	for _, tt := range []struct{ title, script, args, want string }{
		{"a file of a job that has the node to itself", full, alone, "this job left 1 file job"},
		{"a file, and jobs without GPUs may have run", full, "", "job N or something else of its user left 1 file job"},
		{"too little to be told", "fallocate -l 63M /dev/shm/{job}", alone, ""},
		{"3,000 files", "cd /dev/shm; seq -f {job}.%.0f 3000 | xargs touch", alone, "this job left 3000 files job"},
		{"a name of every byte", "fallocate -l 66M \"/dev/shm/{job}$(printf '" + every[4:4*250] + "')\"", alone,
			"this job left 1 file job"},
		{"no file: a pipe, a link and a directory", "mkfifo /dev/shm/{job}p; ln -s /etc/passwd /dev/shm/{job}l; " +
			"mkdir /dev/shm/{job}d", alone, ""},
		{"removed, and still open until the job's end", full + "; exec 3</dev/shm/{job}; rm /dev/shm/{job}", alone, ""},
	} {
		s.tell(tt.title, func(s *story) {
			s.emptiesMemory()
			want := tt.want
			if !told {
				want = strings.Replace(want, "this job left", "job N or something else of its user left", 1)
			}
			job := s.runsAfter(s.user, inMemory(tt.script), append(strings.Fields(tt.args), oneGPU)...)
			s.left(job, want)
			if want != "" {
				s.removes(job, strings.Contains(want, "1 file"))
			}
		})
	}
	s.tell("removed, where nothing else can have left it", func(s *story) {
		s.emptiesMemory()
		s.adminConfigures("n1", "observe", "clean_up: {shm: true}\n")
		defer s.adminConfigures("n1", "observe", "")
		must.Do(s.t, os.WriteFile("/dev/shm/job-other", nil, 0o666))
		job := s.runsAfter(s.user, inMemory(full+"; "+full+"b"), alone, oneGPU)
		shared := s.runs(s.user, inMemory(full), oneGPU)
		s.left(shared, "job N or something else of its user left 1 file job")
		left := len(must.Have(filepath.Glob("/dev/shm/job*"))(s.t))
		if !told {
			must.Not(s.t, left != 4, "%d files are left, want all", left)
			return
		}
		text := must.Have(s.on.Output(job))(s.t)
		s.inOrder("the output", text, "this job left 2 files job", "in /dev/shm, and clean_up.shm removed 2 (132 MiB")
		must.Not(s.t, left != 2 || strings.Contains(text, "Remove:"), "%d files are left after\n%s", left, text)
	})
	s.tell("it was there before: a segment that jobs share", func(s *story) {
		s.emptiesMemory()
		s.runs(s.user, "fallocate -l 66M /dev/shm/job-shared", oneGPU)
		s.left(s.runs(s.user, "cat /dev/shm/job-shared > /dev/null; echo x >> /dev/shm/job-shared", alone, oneGPU), "")
	})
	s.tell("two users", func(s *story) {
		s.emptiesMemory()
		first := s.starts(s.user, inMemory(full)+"; echo ready; "+s.waits("go"), oneGPU)
		s.left(s.runs(s.stranger, "true", oneGPU), "")
		second := s.runs(s.stranger, inMemory(full), oneGPU)
		s.left(second, "job N or something else of its user left 1 file job")
		s.touches(s.user, "go")
		s.ends(first)
		s.left(first, "job N or something else of its user left 1 file job")
	})
	s.tell("two jobs of one user at once", func(s *story) {
		s.emptiesMemory()
		first := s.starts(s.user, "echo ready; "+s.waits("go"), oneGPU)
		second := s.runs(s.user, inMemory(full), oneGPU)
		s.left(second, "job N or "+string(first)+" or something else of its user left 1 file")
		s.touches(s.user, "go")
		s.ends(first)
		s.left(first, "job N or "+string(second)+" or something else of its user left 1 file")
	})
	s.tell("a job without GPUs next to it", func(s *story) {
		s.emptiesMemory()
		job := s.starts(s.user, "echo ready; "+s.waits("go"), oneGPU)
		s.runs(s.user, inMemory(full))
		s.touches(s.user, "go")
		s.ends(job)
		s.left(job, "job N or something else of its user left 1 file job")
	})
	s.tell("open in another mount namespace", func(s *story) {
		s.emptiesMemory()
		job := s.starts(s.user, inMemory(full)+"; echo ready; "+s.waits("go"), alone, oneGPU)
		holder := exec.Command("unshare", "-m", "sh", "-c", "mount --bind /dev/shm /mnt && exec 3</mnt/job"+string(job)+
			"; echo ready; read line")
		in, out := must.Have(holder.StdinPipe())(s.t), must.Have(holder.StdoutPipe())(s.t)
		must.Do(s.t, holder.Start())
		must.Have(out.Read(make([]byte, 6)))(s.t)
		s.touches(s.user, "go")
		s.ends(job)
		s.left(job, "")
		must.Do(s.t, in.Close())
		_ = holder.Wait()
	})
}

// hasSharedMemory waits until no other test, of another run either, has /dev/shm and its users.
func hasSharedMemory(t *testing.T) {
	turn := must.Have(os.OpenFile("/dev/shm/bookend-e2e", os.O_CREATE|os.O_RDWR, 0o600))(t)
	t.Cleanup(func() { turn.Close() })
	must.Do(t, unix.Flock(int(turn.Fd()), unix.LOCK_EX))
}

func inMemory(script string) string { return strings.ReplaceAll(script, "{job}", "job${SLURM_JOB_ID}") }

// waits is a line of a script that goes on once the file is touched.
func (s *story) waits(name string) string {
	return fmt.Sprintf("until [ -e %s/%s ]; do sleep 0.1; done", s.home(s.user), name)
}

// emptiesMemory removes now and at the end what the story leaves.
func (s *story) emptiesMemory() {
	empty := func() {
		for _, path := range must.Have(filepath.Glob("/dev/shm/job*"))(s.t) {
			_ = os.RemoveAll(path)
		}
	}
	empty()
	s.t.Cleanup(empty)
}

var removal = regexp.MustCompile(`(?m)^\| bookend:   Remove there: (.*)$`)

// left checks what a job's log says about shared memory, and that its record has it too.
func (s *story) left(job cluster.JobID, want string) {
	text := must.Have(s.on.Output(job))(s.t)
	if want == "" {
		must.Not(s.t, strings.Contains(text, "shm"), "job %s is told\n%s", job, text)
		return
	}
	want = strings.Replace(want, "job N", "job "+string(job), 1)
	s.inOrder("the output", text, "WARNING: n1: "+want, "Remove there: find ")
	s.showSays("n1", job, "BKD-SHM")
}

// removes checks that the command in a job's log removes what the job left, all of it or a part.
func (s *story) removes(job cluster.JobID, all bool) {
	text := must.Have(s.on.Output(job))(s.t)
	found := removal.FindStringSubmatch(text)
	if found == nil {
		s.t.Fatalf("the log of job %s has no command:\n%s", job, text)
	}
	command := found[1]
	before := len(must.Have(filepath.Glob("/dev/shm/job*"))(s.t))
	must.Do(s.t, exec.Command("sh", "-c", strings.ReplaceAll(command, s.on.Dev("n1"), "/dev")).Run())
	after := len(must.Have(filepath.Glob("/dev/shm/job*"))(s.t))
	must.Not(s.t, after >= before || all && after > 0, "%d files, %d after %s", before, after, command)
}
