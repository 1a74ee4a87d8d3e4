module bookend

go 1.26.0

// Hooks start for every job and end at once: their runtime need not read all mounts to find its cgroup, nor keep files
// of it open.
godebug (
	containermaxprocs=0
	updatemaxprocs=0
)

require (
	github.com/NVIDIA/go-nvml v0.13.3-1
	github.com/cpuguy83/go-md2man/v2 v2.0.6
	github.com/rogpeppe/go-internal v1.14.1
	github.com/sirupsen/logrus v1.10.2
	github.com/spf13/cobra v1.10.2
	github.com/spf13/pflag v1.0.9
	golang.org/x/net v0.62.0
	golang.org/x/sys v0.49.0
	gopkg.in/yaml.v3 v3.0.1
)

require (
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/russross/blackfriday/v2 v2.1.0 // indirect
	golang.org/x/tools v0.26.0 // indirect
)
