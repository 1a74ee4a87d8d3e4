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
		parent := ""
		if i > 0 {
			parent = parts[i-1]
		}
		if name := containerOfPart(parent, part); name != "" {
			return name
		}
	}
	return ""
}

// tools call a container by a name, behind one of these prefixes in the name of its cgroup.
var tools = []struct{ parent, prefix, name string }{
	{"", "lxc.payload.", "lxc:"},
	{"", "apptainer-", "apptainer:"}, // enroot makes none
	{"", "singularity-", "singularity:"},
	{"machine.slice", "machine-", "machine:"},
	{"machine.slice", "systemd-nspawn@", "machine:"},
}

// containerOfPart reads one folder's name as a container. Docker, podman, containerd, CRI-O and Kubernetes end it with
// the container's id: docker-ID.scope, docker/ID, …:cri-containerd:ID, podUID/ID.
func containerOfPart(parent, part string) string {
	name := strings.TrimSuffix(strings.TrimSuffix(part, ".scope"), ".service")
	engine, id := "", name
	if at := strings.LastIndexAny(name, "-:"); at >= 0 {
		engine, id = name[:at], name[at+1:]
	}
	if isID(id) && !strings.HasSuffix(engine, "conmon") { // podman's monitor is outside
		return "container:" + id[:shortID]
	}
	for _, tool := range tools {
		if called, ok := strings.CutPrefix(name, tool.prefix); ok && called != "" && (tool.parent == "" || tool.parent == parent) {
			return tool.name + called
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
