package catalog

import "strings"

// HolderKind is a kind of process that keeps GPU memory although the script that used it has ended.
type HolderKind struct {
	Name  string // as bookend explain takes it
	Shown string // next to the process, in a job's log
	Why   string // the end of a script does not end it
	Fix   string // for the process's owner; ID stands for a container's id, HOST for the job's first node
}

var holderKinds = []HolderKind{
	{"docker", "in a Docker container", "The Docker daemon started it, outside the job.",
		`docker stop ID; in your script: trap "docker stop NAME" EXIT`},
	{"podman", "in a Podman container", "A container outlives the script that started it in the background.",
		`podman stop ID; in your script: trap "podman stop NAME" EXIT`},
	{"container", "in a container", "A daemon, or another session, started it outside the job.",
		"stop the container with the tool that started it (nerdctl stop NAME, apptainer instance stop NAME)"},
	{"mps", "of CUDA MPS", "MPS is a daemon, which outlives the script. If the site starts it: nvidia.mps_uids.",
		"echo quit | nvidia-cuda-mps-control, before the script ends"},
	{"ray", "of Ray", "Ray's workers belong to a daemon of its own (raylet).", "ray stop, before the script ends"},
	{"notebook", "of a notebook", "A kernel keeps its memory until it is shut down, not only until a cell ends.",
		"shut down the notebook's kernel (Kernel > Shut Down), or jupyter server stop"},
	{"ssh", "started over ssh", "An ssh session is in the job, but not in its script.",
		"end what you start over ssh before the job ends"},
	{"rank", "of a job on several nodes", "Its launcher runs on another node and did not end it.",
		"start ranks with srun, which ends them on each node; mpirun and torchrun on HOST do not after a crash"},
}

// HolderKindOf returns a kind by its name, in any case; false if there is none.
func HolderKindOf(name string) (HolderKind, bool) {
	for _, k := range holderKinds {
		if strings.EqualFold(name, k.Name) {
			return k, true
		}
	}
	return HolderKind{}, false
}

// Topic explains what has a name and no code: expedited requeue, and kinds of holders. It is empty if there is none.
func Topic(name string) string {
	k, is := HolderKindOf(name)
	switch {
	case strings.EqualFold(name, "requeue"), strings.EqualFold(name, "expedited requeue"):
		return requeueFile
	case is:
		shown := "a process " + k.Shown + " that keeps GPU memory"
		return Paragraph(k.Name, shown, [2]string{"means", k.Why}, [2]string{"do", k.Fix})
	}
	return ""
}
