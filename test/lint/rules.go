package main

import (
	"regexp"
	"slices"
)

// rule is one law of the tree: a mark that must not be. Without tests it is of what ships alone.
type rule struct {
	name  string
	mark  *regexp.Regexp
	only  []string // folders and bands where it holds; empty: all
	but   []string // folders and bands where it does not
	tests bool     // holds in _test.go files of what ships too
	why   string
}

func (r rule) holds(b bands, f file) bool {
	band := b.of(f.dir)
	in := func(list []string) bool { return slices.Contains(list, f.dir) || slices.Contains(list, band) }
	return band != testTree && (r.tests || !f.test) && (len(r.only) == 0 || in(r.only)) && !in(r.but)
}

// what matches marks of one kind: its pattern is of the whole text behind the kind.
func what(kind, pattern string) *regexp.Regexp {
	return regexp.MustCompile(`^` + kind + ` (?:` + pattern + `)$`)
}

const (
	needed    = "hooks start for every job: each library has one package that needs it"
	tables    = "values and pure packages know no file, environment, clock or goroutine, so that their tests are tables"
	atOnce    = "hooks start for every job, most of them without GPUs: nothing is prepared before it is needed"
	pastDefer = "it ends the process past every deferred call and the verdict reached"
)

var rules = []rule{
	{
		name: "vendor", mark: what("import", `C|github\.com/(NVIDIA|ROCm)/.*`), but: []string{"cuda", "internal/allocation"}, tests: true,
		why: "a vendor's library can hang and crash: only a backend, a process of its own, is linked with it",
	},
	{name: "library", mark: what("import", `github\.com/sirupsen/logrus`), but: []string{"internal/publish"}, why: needed},
	{name: "library", mark: what("import", `gopkg\.in/yaml\.v3`), but: []string{"internal/config"}, why: needed},
	{name: "library", mark: what("import", `github\.com/spf13/.*`), but: []string{"admin"}, why: needed},
	{
		name: "exec", but: []string{"internal/child"},
		mark: what("use", `os/exec\..*|os\.StartProcess|syscall\.(Exec|ForkExec|StartProcess)|golang\.org/x/sys/unix\.Exec`),
		why:  "a child needs its own group, only the descriptors it uses, bounds and a deadline: internal/child sees to all",
	},
	{
		name: "process", but: []string{"mains"},
		mark: what("use", `os\.(Getenv|LookupEnv|Environ|ExpandEnv|Setenv|Unsetenv|Clearenv|Exit)|`+
			`(syscall|golang\.org/x/sys/unix)\.(Getenv|Environ|Exit)`),
		why: "environment and exit belong to mains, which pass them on as values",
	},
	{
		name: "clock", but: []string{"internal/child"},
		mark: what("use", `time\.(Now|Since|Until)|golang\.org/x/sys/unix\.ClockGettime|.*\.Gettimeofday`),
		why:  "time comes from a child.Clock that mains hand over: boot time for durations, and tests that need not wait",
	},
	{
		name: "system clock", mark: what("use", `bookend/internal/child\.SystemClock`), but: []string{"mains", "internal/hook"},
		why: "only mains choose the machine's clock, and hook for its mains",
	},
	{
		name: "go", mark: what("go", "statement"), but: []string{"internal/child"},
		why: "a panic in a goroutine no one recovers ends the hook with exit code 2 and drains the node: use child.Go",
	},
	{name: "fatal", mark: what("use", `(log|.*/logrus)\.(Fatal|Panic|Exit)(f|ln)?`), why: pastDefer},
	{
		name: "fatal", only: []string{"internal/publish"}, why: pastDefer,
		mark: what("use", `value\.(Fatal|Panic|Exit)(f|ln)?`),
	},
	{
		name: "pure", only: []string{"values", "pure"}, why: tables,
		mark: what("import", `(context|crypto/rand|embed|io/ioutil|log|math/rand|net|os|path/filepath|plugin|runtime|sync|`+
			`syscall|unsafe|golang\.org/x/sys)(/.*)?`),
	},
	{
		name: "pure", only: []string{"values", "pure"}, why: tables,
		mark: what("use", `time\.(Sleep|After|AfterFunc|Tick|NewTimer|NewTicker|LoadLocation)`),
	},
	{
		name: "root", mark: what("string", `/(proc|sys|dev|run|var|etc|tmp|usr|bin|sbin|lib|opt|home|root)(/.*)?`),
		but: []string{"internal/config"},
		why: "roots of the file system are values from the configuration; what is meant has an exception in test/lint",
	},
	{name: "init", mark: what("at start", `func init|MustCompile.*`), but: []string{"mains"}, why: atOnce},
	{name: "length", mark: what("long", ".*"), why: "a function over 60 lines or a file over 400 is several"},
}

type exception struct {
	rule, dir string
	mark      *regexp.Regexp
	why       string
}

// exceptions are the breaches that are meant, each with its reason. One that is no longer needed is a breach.
var exceptions = []exception{
	{"root", "internal/child", what("string", "/proc"), "its own children's pids, which only the running kernel knows"},
	{"root", "internal/child", what("string", "/proc/self/(exe|fd/?)"), "starts this very binary again, closes descriptors"},
	{"root", "internal/safefile", what("string", "/proc/self/(fd|fdinfo)/"), "opens what its own descriptor pins"},
	{"root", "internal/child", what("string", "(/usr)?/bin/(id|getent)"), "hooks have no PATH to search"},
	{"root", "internal/child", what("string", "/proc/self/task/?"), "proves on its own threads that the rights are gone"},
	{"fatal", "internal/publish", what("use", `value\.Exit`), "a child ends by the Exit that its main handed over; nothing of logrus does"},
	{"root", "cuda", what("string", "/dev"), "the vendor's libraries open the device nodes there, whatever is configured"},
	{"root", "internal/slurmconf", what("string", "/(etc|usr/libexec)/bookend/.*"), "where the package installs it, as slurm.conf names it"},
	{"root", "internal/slurmconf", what("string", "/run/slurm/conf|/etc/slurm.*|/var/spool/.*|/usr/local/etc"), "where packages install Slurm's files"},
	{"root", "internal/compare", what("string", "/usr/bin"), "where the driver's package installs MPS: only root can replace it there"},
	{"system clock", "internal/backendkit", what("use", `bookend/internal/child\.SystemClock`), "is a backend's main"},
	{"process", "internal/backendkit", what("use", `os\.Exit`), "is a backend's main"},
	{"init", "internal/nogpu", what("at start", "func init"), "ends a hook of a job without GPUs before all else"},
	{"process", "internal/nogpu", what("use", `os\.(Getenv|Exit)`), "ends a hook of a job without GPUs before all else"},
	{"pure", "internal/oomlog", what("import", "sync|embed"), "its forms and the file of its words are read at their first use, and never at start"},
	{"pure", "internal/catalog", what("import", "sync|embed"), "its tables of errors and pasted texts are files within the program, read at their first use"},
	{"pure", "internal/diagnosis", what("import", "sync|embed"), "its tables of faults and advice are files within the program, read at their first use"},
	{"pure", "internal/condition", what("import", "sync|embed"), "its table of facts is a file within the program, read at its first use"},
	{"pure", "internal/gpu", what("import", "sync|embed"), "its forms of kernel lines and its file of return codes are read at their first use"},
}
