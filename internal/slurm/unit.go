package slurm

import (
	"cmp"
	"slices"
	"strings"
)

// maxUnit bounds the name of a unit; the kernel bounds the name of a directory at 255.
const maxUnit = 128

// UnitOfCgroup returns the systemd service or the container in a /proc/PID/cgroup without a job. A process in
// user.slice is never a service, whatever another hierarchy of cgroup v1 contains, and no name below a user's manager
// counts.
func UnitOfCgroup(text string) (service, container string) {
	users := false
	for path := range CgroupPaths(text) {
		parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
		service, container = cmp.Or(service, serviceOf(parts)), cmp.Or(container, containerOf(parts))
		users = users || parts[0] == "user.slice"
	}
	switch {
	case container != "":
		return "", container
	case users:
		return "", ""
	}
	return service[:min(len(service), maxUnit)], ""
}

// serviceOf returns the unit that systemd put a process into: the first below system.slice and its sub-slices.
func serviceOf(parts []string) string {
	own := func(part string) bool { return !strings.HasSuffix(part, ".slice") }
	i := slices.IndexFunc(parts, own)
	if parts[0] != "system.slice" || i < 0 || !strings.HasSuffix(parts[i], ".service") || ofUsers(parts[i]) {
		return ""
	}
	return parts[i]
}

// ofUsers reports whether a unit runs users' programs: Slurm's own, users' managers, and login and cron services.
func ofUsers(unit string) bool {
	name, _, _ := strings.Cut(strings.TrimSuffix(unit, ".service"), "@")
	switch name {
	case "user", "ssh", "sshd", "cron", "crond", "anacron", "atd":
		return true
	}
	return strings.Contains(unit, "slurmd") || strings.Contains(unit, "slurmstepd")
}

// containerOf returns the outermost container, found by the 64 hexadecimal digits at the end of its cgroup's name.
func containerOf(parts []string) string {
	const idLen, shown = 64, 12 // length of an id, and how much of it container tools show
	above := ""
	for _, part := range parts {
		if UserManager(part) {
			return ""
		}
		name := strings.TrimSuffix(part, ".scope")
		engine, id := "", name
		if at := strings.LastIndexAny(name, "-:"); at >= 0 {
			engine, id = name[:at], name[at+1:]
		}
		isID := len(id) == idLen && strings.Trim(id, "0123456789abcdef") == ""
		if isID && !strings.HasSuffix(engine, "conmon") { // podman's monitor is outside the container
			return cmp.Or(engines[cmp.Or(engine, above)], "container") + ":" + id[:shown]
		}
		above = part
	}
	return ""
}

// engines are tools by what stands before a container's id, in the name of its cgroup or as the cgroup above it.
var engines = map[string]string{"docker": "docker", "libpod": "podman"}
