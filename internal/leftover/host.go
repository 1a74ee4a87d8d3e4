package leftover

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"bookend/internal/slurm"
)

// Host is a node's memory at one moment, in bytes.
type Host struct {
	Total     uint64        `json:"total"`
	Available uint64        `json:"available"`       // for new processes; the page cache counts
	Cache     uint64        `json:"cache,omitempty"` // what ZFS would give back, which Linux does not count
	In        [kinds]uint64 `json:"in"`
}

// The kinds of memory that does not come back by itself.
const (
	Shared    = iota // files of every tmpfs, System V segments, anonymous shared memory
	HugePages        // reserved, used or not
	Kernel           // slab that cannot be reclaimed
	Users            // private memory of users' processes
	System           // resident memory of system services, which may map files
	kinds
)

var kindNames = [kinds]string{"shared memory", "huge pages", "unreclaimable kernel memory", "processes of users",
	"system services"}

// table returns a table of the kernel's by name: "MemTotal: 123 kB", or "size 4 123" of ZFS.
func table(text string) map[string]uint64 {
	all := map[string]uint64{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 3 && !strings.HasSuffix(f[0], ":") { // without the type
			f = []string{f[0], f[2]}
		}
		if len(f) < 2 {
			continue
		}
		if n, err := strconv.ParseUint(f[1], 10, 53); err == nil {
			all[strings.TrimSuffix(f[0], ":")] = n
		}
	}
	return all
}

// ParseHost reads /proc/meminfo and, if there is ZFS, its arcstats.
func ParseHost(meminfo, arcstats string) (h Host, err error) {
	of, arc := table(meminfo), table(arcstats)
	for _, name := range []string{"MemTotal", "MemAvailable", "Shmem", "SUnreclaim"} {
		if _, read := of[name]; !read {
			return Host{}, fmt.Errorf("parse meminfo: no %s", name)
		}
	}
	h = Host{Total: of["MemTotal"] << 10, Available: of["MemAvailable"] << 10, Cache: grown(arc["size"], arc["c_min"])}
	h.In = [kinds]uint64{Shared: of["Shmem"] << 10, HugePages: of["Hugetlb"] << 10, Kernel: of["SUnreclaim"] << 10}
	return h, nil
}

func grown(now, then uint64) uint64 { return now - min(now, then) }

func (h Host) free() uint64 { return h.Available + h.Cache }

// HostLooks is what health checks saw of the node's memory in one boot while no job was there.
type HostLooks struct {
	Boot string `json:"boot"`
	// Best are the two looks with the most memory. Later ones are compared with the second: that much was there twice.
	Best  []Host    `json:"best,omitempty"`
	Short *Shortage `json:"short,omitempty"` // found by the last look, nil for none
}

// Shortage is memory that is not available any more although no job is on the node.
type Shortage struct {
	Bytes uint64 `json:"bytes"`
	Look  Host   `json:"look"`
	Brief string `json:"brief"` // what takes it, without anything that a user named
	Text  string `json:"-"`     // the same for admins
	// System means that services or root's huge pages have most of it, Unexplained that most of it was not found.
	System      bool `json:"system,omitempty"`
	Unexplained bool `json:"-"`
}

// After returns the looks with one more, and what that one found. When memory was added or removed they begin again.
func (l HostLooks) After(boot string, now HostUse) HostLooks {
	if l.Boot != boot || len(l.Best) > 0 && l.Best[0].Total != now.Total {
		l = HostLooks{Boot: boot}
	}
	l.Short = nil
	if len(l.Best) == 2 {
		l.Short = now.shortOf(l.Best[1])
	}
	l.Best = append(slices.Clone(l.Best), now.Host)
	slices.SortStableFunc(l.Best, func(a, b Host) int { return cmp.Compare(b.free(), a.free()) })
	l.Best = l.Best[:min(len(l.Best), 2)]
	return l
}

func (u HostUse) shortOf(then Host) *Shortage {
	s := Shortage{Bytes: grown(then.free(), u.free()), Look: u.Host}
	least := min(u.Total/20, 16<<30)
	if s.Bytes < least || s.Bytes == 0 {
		return nil
	}
	var brief, text []string
	var sum uint64
	details := [kinds]string{Shared: u.shared(), Users: u.largest(false), System: u.largest(true)}
	for kind, name := range kindNames {
		bytes := grown(u.In[kind], then.In[kind])
		if sum += bytes; bytes >= s.Bytes/10 {
			brief = append(brief, name+" "+size(bytes))
			text = append(text, brief[len(brief)-1]+details[kind])
		}
	}
	system := grown(u.In[System], then.In[System]) + grown(u.In[HugePages], then.In[HugePages])
	s.System, s.Unexplained = system >= s.Bytes/2 && sum-system < least, sum < s.Bytes/2
	if s.Unexplained {
		const unknown = "most of it in nothing that Bookend can see"
		brief, text = append(brief, unknown), append(text, unknown)
	}
	s.Brief = fmt.Sprintf("%s of the node's %s of memory were taken while no job was on it: %s", size(s.Bytes),
		size(u.Total), strings.Join(brief, ", "))
	s.Text = fmt.Sprintf("%s less host memory is available than earlier in this boot (%s of %s), without a job: %s",
		size(s.Bytes), size(u.free()), size(u.Total), strings.Join(text, ", "))
	return &s
}

// Stands reports whether the shortage that the last look found is still there, as far as meminfo tells. What system
// services have is not missing. What processes have may be another job's by now, unless this one is exclusive.
func (l HostLooks) Stands(boot string, now Host, exclusive bool) bool {
	s := l.Short
	if s == nil || s.System || l.Boot != boot || s.Look.Total != now.Total || len(l.Best) < 2 {
		return false
	}
	seen := func(h Host) uint64 { return h.In[Shared] + h.In[Kernel] }
	there := now.Available <= s.Look.Available+s.Bytes/4 && seen(now)+s.Bytes/4 >= seen(s.Look)
	return there && (exclusive || grown(seen(s.Look), seen(l.Best[1])) >= s.Bytes/2)
}

// HostUse is a node's memory with what takes it.
type HostUse struct {
	Host
	Files     []OwnedFiles  `json:"files,omitempty"`     // in /dev/shm, the owner of the most first
	Mounts    []Mount       `json:"mounts,omitempty"`    // each other tmpfs, the fullest first
	Processes []HostProcess `json:"processes,omitempty"` // some of the largest, in order
	Earlier   []string      `json:"earlier,omitempty"`   // jobs on record that left files which are still there
}

// OwnedFiles are a user's files in a directory.
type OwnedFiles struct {
	UID     uint32 `json:"uid"`
	Files   int    `json:"files"`
	Bytes   uint64 `json:"bytes"`
	Pattern string `json:"pattern,omitempty"` // of the names of those that have most of it
}

// Mount is a tmpfs.
type Mount struct {
	Path  string `json:"path"`
	Bytes uint64 `json:"bytes"`
}

// HostProcess is a process by its memory.
type HostProcess struct {
	PID     int    `json:"pid"`
	UID     uint32 `json:"uid"`
	Bytes   uint64 `json:"bytes"`
	Name    string `json:"name"`              // chosen by the process
	Service string `json:"service,omitempty"` // the systemd service that it is of, whichever user that runs as
}

// ParseProcess reads the texts of /proc/PID/status and /proc/PID/cgroup.
func ParseProcess(pid int, status, cgroup string) HostProcess {
	of := table(status)
	name, _, _ := strings.Cut(strings.TrimPrefix(status, "Name:\t"), "\n")
	p := HostProcess{PID: pid, UID: uint32(of["Uid"]), Bytes: of["RssAnon"] << 10, Name: name}
	p.Service, _ = slurm.UnitOfCgroup(cgroup)
	if p.OfSystem() { // GPFS pins its pages in a mapping
		p.Bytes = of["VmRSS"] << 10
	}
	return p
}

// OfSystem reports whether a process is a service's or a system user's; systemd's dynamic users and uid 65534 are.
func (p HostProcess) OfSystem() bool {
	return p.Service != "" || p.UID < 1000 || p.UID >= 61184 && p.UID <= 65534
}

func Sum(uid uint32, files []Item) OwnedFiles {
	slices.SortFunc(files, func(a, b Item) int { return cmp.Compare(b.Bytes, a.Bytes) })
	o := OwnedFiles{UID: uid, Files: len(files), Bytes: Remains{Files: files}.Bytes()}
	most, n := files[0].Bytes, 1
	for ; n < len(files) && most <= o.Bytes/2; n++ {
		most += files[n].Bytes
	}
	o.Pattern = pattern(files[:n])
	return o
}

const worthNaming = 64 << 20

func (u HostUse) shared() string {
	var all []string
	rest := u.In[Shared]
	for _, o := range u.Files {
		rest -= min(rest, o.Bytes)
		if o.Bytes >= worthNaming && len(all) < 3 {
			const has = "uid %d has %s in %s in /dev/shm, most in%s"
			all = append(all, fmt.Sprintf(has, o.UID, size(o.Bytes), count(o.Files, "file"), cmp.Or(o.Pattern, " one")))
		}
	}
	if n := len(u.Earlier); n > 0 {
		all = append(all, "reported there at the end of job "+strings.Join(u.Earlier[:min(n, 3)], " and "))
	}
	for i, m := range u.Mounts {
		rest -= min(rest, m.Bytes)
		if m.Bytes >= worthNaming && i < 3 && strings.Trim(m.Path, plain+"/") == "" {
			all = append(all, size(m.Bytes)+" in "+m.Path)
		}
	}
	if rest >= worthNaming {
		all = append(all, size(rest)+" in no file there: mapped, System V, or deleted and open")
	}
	return inBrackets(all)
}

func (u HostUse) largest(system bool) string {
	var all []string
	for _, p := range u.Processes {
		if p.OfSystem() == system && p.Bytes >= worthNaming && len(all) < 2 {
			name := pattern([]Item{{Name: p.Name}})
			all = append(all, fmt.Sprintf("%s in PID %d%s of uid %d", size(p.Bytes), p.PID, name, p.UID))
		}
	}
	return inBrackets(all)
}

func inBrackets(all []string) string {
	if len(all) == 0 {
		return ""
	}
	return " (" + strings.Join(all, "; ") + ")"
}

func size(bytes uint64) string {
	if bytes < 1<<30 {
		return fmt.Sprintf("%d MiB", bytes>>20)
	}
	return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30))
}
