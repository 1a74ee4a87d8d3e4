// Package recorder records what a node's jobs use of their GPUs while they run: one process a node, left by a prolog,
// that samples the GPUs of all open runs through a backend of its own, and ends with the last run.
package recorder

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"syscall"
	"time"

	"bookend/internal/child"
	"bookend/internal/gpu"
	"bookend/internal/node"
	"bookend/internal/record"
	"bookend/internal/state"
)

// Flag starts a root program as the recorder of a node, whose name follows.
const Flag = "--record"

// Start leaves a process that records what the node's jobs use until none is open, unless there is one. No hook waits
// for it. Inside a job none is started: Slurm waits for every process that a hook leaves there.
func Start(a *node.Access) {
	if a.Config.Record.Every == 0 || a.InJob || a.Store.Turns.HasRecorder() {
		return
	}
	Leave(a, Flag)
}

// Leave leaves this program at work for the node, with this hook's configuration. No hook waits for it.
func Leave(a *node.Access, flag string) {
	var env []string
	if file := a.Env.Getenv("BOOKEND_CONFIG"); file != "" {
		env = []string{"BOOKEND_CONFIG=" + file}
	}
	if err := child.Detach(env, nil, flag, a.Job.Node); err != nil {
		fmt.Fprintf(a.Env.Stderr, "bookend: %v\n", err)
	}
}

type recorder struct {
	node     string
	env      child.Env
	a        *node.Access
	open     *state.Openings
	kept     state.RecorderState
	known    map[int]process // of the last sample
	words    Wording
	reports  map[string]string        // last report to each run's user
	searched map[string]time.Duration // each run's age when the files of its output were last searched for
	news     func() []gpu.Xid         // errors that were added to the kernel log
	logged   time.Duration            // CLOCK_BOOTTIME of the last call of news
	looks    chan taken
	ended    chan end
	sessions map[string]*session // running, by vendor
	pauses   map[string]pause
	broken   bool          // a new recorder must take over
	isOnly   func() bool   // reports whether its lock is still the node's
	config   [3]any        // identifies the configuration file that was read
	put      time.Duration // CLOCK_BOOTTIME of the last write of kept
	looked   time.Duration // CLOCK_BOOTTIME of the last check that program and configuration are unchanged
}

// process is what /proc showed of a process. Outside a job's cgroup it may be just starting: it is read again at until.
type process struct {
	record.Process
	until time.Duration
}

const (
	looksUp = 2 * time.Second  // between two checks of program and configuration
	lingers = 5 * time.Second  // without an open run: a node's next job often begins at once
	restart = 10 * time.Second // between two sessions if one failed
	// silence is how late a backend may be before it is ended. Its own alarm comes first unless it is stuck.
	silence = 5 * time.Second
	again   = time.Second // until a process in no job's cgroup is read again
	later   = time.Minute // and until each later time
	mostNew = 256         // processes looked up at once
)

// Wording returns the text about a running job for its user, and a reason to leave the node, empty for none.
type Wording func(
	a *node.Access, run record.Run, seen record.Recording, now record.Side, shared bool,
) (text, why string)

// Run records a node's jobs until none is open, or another recorder has taken over. It returns the exit code.
func Run(env child.Env, name string, words Wording) int {
	env.Confine()
	runtime.GOMAXPROCS(1) // idle threads would cost more than the work itself
	r := recorder{
		node: name, env: env, words: words, looks: make(chan taken, 16), ended: make(chan end, len(gpu.Vendors)),
		sessions: map[string]*session{}, pauses: map[string]pause{}, reports: map[string]string{},
	}
	if !r.configure() {
		return 1
	}
	r.open, r.news = r.a.Store.Openings(), r.a.KernelNews()
	for {
		is, release, err := r.a.Store.Turns.Recorder()
		if err != nil {
			return 0 // another recorder came first
		}
		r.isOnly = is
		idle := r.record()
		release()
		if !idle || len(r.open.Runs(r.env.Clock.Wall())) == 0 { // a prolog may have found this one still running
			return 0
		}
	}
}

func (r *recorder) record() (idle bool) {
	defer r.endSessions()
	r.kept = state.Recorded.Peek(r.a.Store)
	r.kept.PID, r.kept.Since, r.kept.Problem = r.env.PID, r.env.Clock.Boot(), ""
	anotherBoot := func(_ string, o record.Recording) bool { return o.To > r.kept.Since }
	maps.DeleteFunc(r.kept.Runs, anotherBoot)
	return r.run()
}

// configure reads the configuration, and reports whether it leaves anything to do.
func (r *recorder) configure() bool {
	r.config = r.configFile()
	return r.adopt(node.ForRecorder(r.env, r.node))
}

// adopt makes the recorder use a new access. If its state cannot be opened now, that which is locked stays in use.
func (r *recorder) adopt(a *node.Access) bool {
	opened, _ := a.OpenState()
	switch {
	case r.a == nil:
	case !opened:
		a.Store = r.a.Store
	case r.a.Store.Dir() != a.Store.Dir():
		return false // its lock is on the other state
	}
	r.a = a
	return a.Store != nil && a.Config.Record.Every > 0
}

// configFile identifies the content of the configuration file, to notice a change.
func (r *recorder) configFile() (is [3]any) {
	// Threat: none, it is only compared; the content is checked where it is read.
	if info, err := os.Stat(node.ConfigFile(r.env)); err == nil {
		is = [3]any{info.Sys().(*syscall.Stat_t).Ino, info.ModTime().UnixNano(), info.Size()}
	}
	return is
}

// run records until nothing is left to record (idle), or a new recorder must take over.
func (r *recorder) run() (idle bool) {
	for last := r.env.Clock.Boot(); ; {
		runs := r.open.Runs(r.env.Clock.Wall())
		if r.a.Unkept() || r.broken || !r.isOnly() || !r.current(runs) {
			return false
		}
		r.follow(runs)
		if now := r.env.Clock.Boot(); len(runs) > 0 {
			last = now
		} else if now-last > lingers {
			return true
		}
		select {
		case s := <-r.looks:
			s.of.last = r.env.Clock.Boot()
			r.take(s, runs)
		case e := <-r.ended:
			if r.leave(e) {
				return false
			}
		// a session's samples come sooner
		case <-time.After(max(time.Second, 2*time.Duration(r.a.Config.Record.Every))):
		}
		r.keepLogged(runs)
		r.noteOutputs(runs)
	}
}

// current checks now and then, and when a run began, that program and configuration were not replaced.
func (r *recorder) current(runs []record.Run) bool {
	begun := func(run record.Run) bool { _, known := r.kept.Runs[run.Name()]; return !known }
	now := r.env.Clock.Boot()
	if now-r.looked < looksUp && !slices.ContainsFunc(runs, begun) {
		return true
	}
	r.looked = now
	if child.Replaced() {
		return false
	}
	if r.configFile() != r.config {
		r.endSessions()
		return r.configure()
	}
	return true
}

func (r *recorder) endSessions() {
	for _, s := range r.sessions {
		r.endSession(s)
	}
}

// take adds a sample to the recording of each open run on its vendor's GPUs. A run on several vendors' has none.
func (r *recorder) take(s taken, runs []record.Run) {
	look := s.look
	r.kept.Problem = ""
	r.a.Store.Turns.DriverAnswered(state.Library)
	limits := record.NewLimits(r.a.Config.Thresholds.Bytes())
	seen := Sample{Look: look, Known: r.identify(look), Limits: limits}
	kept, news := record.Recordings{}, len(runs) != len(r.kept.Runs)
	due := r.env.Clock.Boot()-r.put >= record.Writes
	for _, run := range runs {
		recording := r.kept.Runs[run.Name()]
		if recording.Samples == 0 {
			recording = record.Recording{}
		}
		recording.Every = max(recording.Every, time.Duration(r.a.Config.Record.Every))
		if look.At > run.Start.At && s.of.sees(run) {
			seen.Shared = shared(run, runs)
			if seen.AddTo(&recording, run) || due {
				news = true
				r.tell(run, recording, look, seen.Shared)
			}
		}
		kept[run.Name()] = recording
	}
	maps.DeleteFunc(r.reports, func(name, _ string) bool { _, open := kept[name]; return !open })
	r.kept.Runs, r.kept.At = kept, look.At
	for _, e := range look.Events {
		news = r.keep(record.RecordedFault{Code: e.Code, Events: 1}, s.of.sampled, runs,
			func(d gpu.Device) bool { return d.ID == e.Device }) || news
	}
	s.of.sampled = look.At
	if news {
		r.put = r.env.Clock.Boot()
		_ = state.Recorded.Write(r.a.Store, r.kept) // if it cannot be stored, the end says that nothing was recorded
	}
}

// keepLogged adds the errors that are new in the kernel log to the recordings of their GPUs. It does not depend on
// samples: after an error the driver may not answer.
func (r *recorder) keepLogged(runs []record.Run) {
	news, since := false, r.logged
	r.logged = r.env.Clock.Boot()
	for _, x := range r.news() {
		news = r.keep(record.RecordedFault{Code: x.Code, Lines: 1 + x.More}, since, runs,
			func(d gpu.Device) bool { return d.BusID == x.BusID && d.BusID != "" }) || news
	}
	if news {
		_ = state.Recorded.Write(r.a.Store, r.kept) // as in take
	}
}

// keep adds an error of a GPU that occurred between since and now.
func (r *recorder) keep(f record.RecordedFault, since time.Duration, runs []record.Run, isMeant func(gpu.Device) bool,
) (added bool) {
	f.First, f.Wall = r.env.Clock.Boot(), r.env.Clock.Wall()
	f.Last = f.First
	return addFault(r.kept.Runs, f, since, isMeant, runs)
}

func (r *recorder) tell(run record.Run, recording record.Recording, look gpu.Snapshot, shared bool) {
	text, since := r.words(r.a, run, recording, record.Side{Snapshot: look}, shared)
	if text+since == r.reports[run.Name()] {
		return
	}
	r.reports[run.Name()] = text + since
	_ = r.a.Store.Users.ChangeReport(run.Job, func(kept *state.Report) { kept.Running, kept.Since = text, since })
}

func shared(run record.Run, open []record.Run) bool {
	return slices.ContainsFunc(open, func(o record.Run) bool {
		return o.Name() != run.Name() && slices.ContainsFunc(run.Devices, func(d record.Assigned) bool {
			return o.Given(d.Device.ID)
		})
	})
}

// identify reads /proc for each process in a sample, once. A process with another start time is a new one.
func (r *recorder) identify(look gpu.Snapshot) map[int]record.Process {
	var news []int
	now, known := look.At, map[int]process{}
	for _, reading := range look.Readings {
		for _, p := range reading.Processes {
			was, ok := r.known[p.PID]
			same := ok && (was.until == 0 || was.until > now) && (was.Gone || was.Why != "" ||
				child.Alive(r.a.Config.Paths.Proc, p.PID, uint64(was.Start/record.Tick)))
			if _, done := known[p.PID]; same {
				known[p.PID] = was
			} else if !done && !slices.Contains(news, p.PID) && len(news) < mostNew {
				news = append(news, p.PID)
			}
		}
	}
	read, _ := r.a.Processes(news) // not reported here: the next end says that nothing was recorded
	for pid, p := range read {
		fresh := process{Process: p}
		if _, seen := r.known[pid]; !p.Cgroup.Found() && seen {
			fresh.until = now + later
		} else if !p.Cgroup.Found() {
			fresh.until = now + again
		}
		known[pid] = fresh
	}
	r.known = known
	facts := map[int]record.Process{}
	for pid, p := range known {
		facts[pid] = p.Process
	}
	return facts
}
