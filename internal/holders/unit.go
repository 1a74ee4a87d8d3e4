package holders

import "strings"

// shortID is how many digits of a container's id its own tools show.
const shortID = 12

// maxUnit bounds the name of a unit or a container; the kernel bounds a folder's at 255.
const maxUnit = 128

// parseUnit names the systemd unit of the system manager and the container that the text of a /proc/PID/cgroup
// without a job belongs to. A process in a container is not its engine's unit, and one in user.slice is no service
// whatever another hierarchy of cgroup v1 says. Below a user's own manager (user@UID.service) every name is the
// user's choice, and none counts.
func parseUnit(text string) (service, container string) {
	users := false
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), deleted)
		_, rest, _ := strings.Cut(line, ":")   // hierarchy
		_, below, ok := strings.Cut(rest, ":") // controllers
		if !ok || !strings.HasPrefix(below, "/") {
			continue
		}
		parts := strings.Split(below[1:], "/")
		if container == "" {
			container = containerOf(parts)
		}
		if service == "" {
			service = serviceOf(parts)
		}
		users = users || parts[0] == "user.slice"
	}
	switch {
	case container != "":
		return "", clip(container, maxUnit)
	case users:
		return "", ""
	}
	return clip(service, maxUnit), ""
}

// serviceOf returns the unit that systemd put a process into: the first below system.slice and its own slices.
func serviceOf(parts []string) string {
	if len(parts) < 2 || parts[0] != "system.slice" {
		return ""
	}
	for _, part := range parts[1:] {
		if strings.HasSuffix(part, ".slice") {
			continue
		}
		if strings.HasSuffix(part, ".service") && !ofUsers(part) {
			return part
		}
		return ""
	}
	return ""
}

// ofUsers reports whether a unit runs what users tell it to, so that being in it says nothing of a process: Slurm's
// own, where a job lies that no cgroup of its own was made for, users' managers, and those that let users in.
func ofUsers(unit string) bool {
	name, _, _ := strings.Cut(strings.TrimSuffix(unit, ".service"), "@")
	switch name {
	case "user", "ssh", "sshd", "cron", "crond", "anacron", "atd":
		return true
	}
	return strings.Contains(unit, "slurmd") || strings.Contains(unit, "slurmstepd")
}

// containerOf returns the outermost container of a path.
func containerOf(parts []string) string {
	for i, part := range parts {
		if strings.HasPrefix(part, "user@") && strings.HasSuffix(part, ".service") {
			return ""
		}
		if name := containerOfPart(parts[:i], part); name != "" {
			return name
		}
	}
	return ""
}

// engines are the folder names that a container's engine makes: its prefix, then the id. The longer come first.
var engines = []struct{ prefix, name string }{
	{"docker-", "docker:"},
	{"libpod-", "podman:"},
	{"cri-containerd-", "containerd:"},
	{"cri-containerd:", "containerd:"},
	{"nerdctl-", "containerd:"},
	{"crio-", "cri-o:"},
}

// containerOfPart reads one folder's name as a container:
//
//	docker, systemd      docker-ID.scope             cgroupfs   docker/ID
//	podman               libpod-ID.scope             cgroupfs   libpod-ID
//	Kubernetes           cri-containerd-ID.scope, crio-ID.scope, …:cri-containerd:ID
//	                     cgroupfs   kubepods/…/podUID/ID
//	LXC                  lxc.payload.NAME            old        lxc/NAME
//	systemd-machined     machine.slice/machine-NAME.scope, systemd-nspawn@NAME.service
//	Apptainer            apptainer-PID.scope, singularity-PID.scope; enroot makes none
func containerOfPart(above []string, part string) string {
	name := strings.TrimSuffix(part, ".scope")
	for _, e := range engines {
		if at := strings.LastIndex(name, e.prefix); at == 0 || at > 0 && strings.HasSuffix(e.prefix, ":") {
			if id := name[at+len(e.prefix):]; isID(id) {
				return e.name + id[:shortID]
			}
		}
	}
	parent := ""
	if len(above) > 0 {
		parent = above[len(above)-1]
	}
	switch {
	case parent == "docker" && isID(name):
		return "docker:" + name[:shortID]
	case strings.HasPrefix(parent, "pod") && strings.HasPrefix(above[0], "kubepods") && isID(name):
		return "kubernetes:" + name[:shortID]
	}
	return namedContainer(parent, part)
}

// namedContainer is for the tools that call a container by a name instead of an id.
func namedContainer(parent, part string) string {
	for _, tool := range []struct{ parent, prefix, suffix, name string }{
		{"", "lxc.payload.", "", "lxc:"},
		{"", "apptainer-", ".scope", "apptainer:"},
		{"", "singularity-", ".scope", "singularity:"},
		{"lxc", "", "", "lxc:"},
		{"machine.slice", "machine-", ".scope", "machine:"},
		{"machine.slice", "systemd-nspawn@", ".service", "machine:"},
	} {
		name, ok := strings.CutPrefix(part, tool.prefix)
		name, has := strings.CutSuffix(name, tool.suffix)
		if ok && has && name != "" && (tool.parent == "" || tool.parent == parent) {
			return tool.name + name
		}
	}
	return ""
}

// isID reports whether s is a container's whole id: 64 hexadecimal digits.
func isID(s string) bool { return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == "" }

// clip shortens s to max bytes, and shows that it did.
func clip(s string, max int) string {
	if len(s) <= max {
		return s
	}
	return s[:max-len("...")] + "..."
}
