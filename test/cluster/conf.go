package cluster

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"bookend/test/rig"
)

// writeConf writes the three files of Slurm's configuration.
func (c *Cluster) writeConf() {
	c.ports = freePorts(1 + len(c.options.Nodes))
	host := rig.Have(os.Hostname())
	hosts, _ := os.ReadFile("/etc/hosts") // without one the name means nothing
	c.address, c.bound = loopback(string(hosts), host)
	host, _, _ = strings.Cut(host, ".")
	for name, text := range map[string]string{
		"slurm.conf":  c.slurmConf(host),
		"gres.conf":   c.gresConf(),
		"cgroup.conf": c.cgroupConf(),
	} {
		rig.Try(os.WriteFile(c.paths.in("etc", name), []byte(text), 0o644))
	}
}

// loopback returns the daemons' address, and whether they can be bound to it. Told not to listen on all addresses,
// Slurm listens on what the host's name means, whatever its configuration says; a name that means an address of
// the network, or nothing, leaves no choice but all.
func loopback(hosts, host string) (address string, bound bool) {
	for line := range strings.Lines(hosts) {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) < 2 || !slices.Contains(words[1:], host) {
			continue
		}
		if ip := net.ParseIP(words[0]); ip.To4() != nil {
			if ip.IsLoopback() {
				return ip.String(), true
			}
			break
		}
	}
	return "127.0.0.1", false
}

func (c *Cluster) slurmConf(host string) string {
	o := c.options
	settings := c.usual(host)
	if c.bound {
		settings = append(settings, [2]string{"CommunicationParameters", "NoInAddrAny,NoCtldInAddrAny"})
	}
	if o.Configless {
		settings = append(settings, [2]string{"SlurmctldParameters", "enable_configless"})
	}
	if o.Track != LinuxProc {
		settings = append(settings, [2]string{"ProctrackType", "proctrack/cgroup"},
			[2]string{"TaskPlugin", "task/cgroup"})
	}
	for _, hook := range [][2]string{
		{"Prolog", o.Prolog}, {"Epilog", o.Epilog}, {"TaskProlog", o.TaskProlog}, {"TaskEpilog", o.TaskEpilog},
		{"HealthCheckProgram", o.HealthCheck}, {"PrologFlags", o.PrologFlags},
	} {
		if hook[1] != "" {
			settings = append(settings, hook)
		}
	}
	return strings.Replace(joinSettings(settings, o.Conf), "=SOCKET,", "=socket="+c.paths.socket()+",", 1) + c.nodeLines(host)
}

// usual are the settings of every cluster.
func (c *Cluster) usual(host string) [][2]string {
	p := c.paths
	return [][2]string{
		{"ClusterName", "bookend"},
		{"SlurmctldHost", fmt.Sprintf("%s(%s)", host, c.address)},
		{"SlurmctldPort", strconv.Itoa(c.ports[0])},
		{"SlurmUser", "root"},
		{"SlurmdUser", "root"},
		{"AuthType", "auth/munge"},
		// A prolog must end before, and a requeued job starts again only after. For less than 5 s Slurm takes two
		// minutes.
		{"AuthInfo", "SOCKET,cred_expire=10"},
		{"StateSaveLocation", p.in("state")},
		{"SlurmdSpoolDir", p.in("spool", "%n")},
		{"SlurmctldPidFile", p.pidFile("slurmctld")},
		{"SlurmdPidFile", p.pidFile("slurmd-%n")},
		{"SlurmctldLogFile", p.log("slurmctld")},
		{"SlurmdLogFile", p.log("slurmd-%n")},
		{"SlurmdDebug", "debug2"}, // below it a hook's output is lost unless it fails
		{"MpiDefault", "none"},
		{"MailProg", "/bin/true"},
		{"AccountingStorageType", "accounting_storage/none"},
		{"SelectType", "select/cons_tres"},
		{"SelectTypeParameters", "CR_CPU_Memory"},
		{"SchedulerParameters", "sched_interval=1,bf_interval=1,batch_sched_delay=0,sched_min_interval=1"},
		{"SlurmdParameters", "config_overrides"}, // two cores pose as many
		{"GresTypes", "gpu,shard"},
		{"ReturnToService", "2"},
		{"KillWait", "2"},
		{"UnkillableStepTimeout", "20"},
		{"PropagateResourceLimits", "NONE"},
		{"ProctrackType", "proctrack/linuxproc"},
		{"TaskPlugin", "task/none"},
	}
}

// joinSettings renders settings and further lines. The later of two equal keys wins, as Slurm only warns of
// duplicates; lines that Slurm lets repeat, some of them since 24.05, are kept, and "Include FILE" lines come last.
func joinSettings(settings [][2]string, further []string) string {
	var includes strings.Builder
	for _, line := range further {
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			includes.WriteString(line + "\n")
			continue
		}
		settings = append(settings, [2]string{strings.TrimSpace(key), value})
	}
	last := map[string]int{}
	for i, s := range settings {
		last[strings.ToLower(s[0])] = i
	}
	var b strings.Builder
	for i, s := range settings {
		if slices.Contains(repeated, strings.ToLower(s[0])) || last[strings.ToLower(s[0])] == i {
			fmt.Fprintf(&b, "%s=%s\n", s[0], s[1])
		}
	}
	return b.String() + includes.String()
}

var repeated = []string{"partitionname", "nodename", "prolog", "epilog"}

func (c *Cluster) nodeLines(host string) string {
	var b strings.Builder
	var names []string
	for i, n := range c.options.Nodes {
		fmt.Fprintf(&b, "NodeName=%s NodeHostname=%s NodeAddr=%s Port=%d CPUs=%d RealMemory=4000 State=UNKNOWN",
			n.Name, host, c.address, c.ports[1+i], max(8, len(n.Devices))) // a job for each GPU
		switch {
		case n.Gres != "":
			b.WriteString(" Gres=" + n.Gres)
		case len(n.Devices) > 0:
			fmt.Fprintf(&b, " Gres=gpu:%d", len(n.Devices))
		}
		b.WriteByte('\n')
		names = append(names, n.Name)
	}
	fmt.Fprintf(&b, "PartitionName=main Nodes=%s Default=YES MaxTime=60 DefMemPerCPU=50 State=UP\n",
		strings.Join(names, ","))
	return b.String()
}

func (c *Cluster) gresConf() string {
	var b strings.Builder
	for _, n := range c.options.Nodes {
		lines := n.GresConf
		if lines == nil && len(n.Devices) > 0 {
			lines = []string{"Name=gpu File=" + strings.Join(n.Devices, ",")}
		}
		for _, line := range lines {
			fmt.Fprintf(&b, "NodeName=%s %s\n", n.Name, line)
		}
	}
	return b.String()
}

func (c *Cluster) cgroupConf() string {
	// 22.05 has no "disabled", and its v1 plugin touches no cgroup until something asks it to track or limit.
	lines := []string{"CgroupPlugin=cgroup/v1"}
	if c.options.Track == CgroupV2 {
		lines = []string{"CgroupPlugin=cgroup/v2", "IgnoreSystemd=yes", "CgroupMountpoint=" + c.cgroups.v2}
	}
	if c.options.ConstrainDevices {
		lines = append(lines, "ConstrainDevices=yes")
	}
	return strings.Join(append(lines, c.options.CgroupConf...), "\n") + "\n"
}

// freePorts returns n ports that nobody listens on, below the range from which the kernel picks for clients.
func freePorts(n int) (ports []int) {
	const low, high = 20000, 32000
	for range 1000 {
		if len(ports) == n {
			return ports
		}
		port := low + rand.IntN(high-low)
		l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		if err != nil {
			continue
		}
		defer l.Close() // held until all are chosen, so that none is chosen twice
		ports = append(ports, port)
	}
	panic(fmt.Errorf("found %d free ports, want %d", len(ports), n))
}
