package cluster

import (
	_ "embed"
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
// the network, or nothing, leaves no choice but all. So does 127.0.1.1, which Debian's installer gives a host's name:
// what comes from there comes from 127.0.0.1, and an srun that listens on its own address is called back on that one.
func loopback(hosts, host string) (address string, bound bool) {
	for line := range strings.Lines(hosts) {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) < 2 || !slices.Contains(words[1:], host) {
			continue
		}
		if net.ParseIP(words[0]).To4() != nil {
			return usualLoopback, words[0] == usualLoopback
		}
	}
	return usualLoopback, false
}

// usualLoopback is where all connections to loopback addresses come from.
const usualLoopback = "127.0.0.1"

//go:embed slurm.conf
var usual string

func (c *Cluster) slurmConf(host string) string {
	o := c.options
	values := map[string]string{"host": host, "address": c.address, "port": strconv.Itoa(c.ports[0]), "dir": c.paths.dir}
	lines := slices.Collect(strings.SplitSeq(os.Expand(usual, func(name string) string { return values[name] }), "\n"))
	if c.bound {
		lines = append(lines, "CommunicationParameters=NoInAddrAny,NoCtldInAddrAny")
	}
	if o.Track != LinuxProc {
		lines = append(lines, "ProctrackType=proctrack/cgroup", "TaskPlugin=task/cgroup")
	}
	text := joinSettings(append(lines, o.Conf...))
	return strings.Replace(text, "=SOCKET,", "=socket="+c.paths.socket()+",", 1) + c.nodeLines(host)
}

// joinSettings joins lines. The later of two equal keys wins, as Slurm only warns of duplicates; lines that Slurm lets
// repeat, some of them since 24.05, are kept, and "Include FILE" lines come last.
func joinSettings(lines []string) string {
	var settings, includes []string
	last := map[string]int{}
	for _, line := range lines {
		key, _, ok := strings.Cut(line, "=")
		switch key = strings.ToLower(strings.TrimSpace(key)); {
		case !ok:
			includes = append(includes, line)
			continue
		case last[key] > 0 && !slices.Contains(repeated, key):
			settings[last[key]-1] = ""
		}
		settings = append(settings, line)
		last[key] = len(settings)
	}
	return strings.Join(append(settings, includes...), "\n") + "\n"
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
