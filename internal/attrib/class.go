package attrib

// Class is what kind of holder a process is. A holder may be of several.
type Class string

// The classes of holders.
const (
	Orphan    Class = "orphan"    // its job has ended
	Phantom   Class = "phantom"   // the driver lists it, but it is gone
	Exported  Class = "exported"  // may hold an exported handle: it has the driver open and nothing that explains why
	Stopped   Class = "stopped"   // state T or t: SIGKILL ends it
	Dying     Class = "dying"     // a zombie whose threads live on, or in uninterruptible sleep
	MPS       Class = "mps"       // NVIDIA's Multi-Process Service: its server, its daemon or a client
	Container Class = "container" // in a container, or in another PID namespace
	System    Class = "system"    // a service of the system manager: not a job's
)
