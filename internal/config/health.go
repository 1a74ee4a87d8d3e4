package config

// Health says what the health check runs besides its own checks.
type Health struct {
	External External `yaml:"external"`
}

// External is a check of the site's own, such as NVIDIA Health Validation, which the health check runs as root.
type External struct {
	Program   string   `yaml:"program" allow:"path or empty"`
	Arguments []string `yaml:"arguments" allow:"line"`
	Limit     Duration `yaml:"limit" allow:"100ms to 30s"`
	// DrainOn are the exit statuses that count as CRITICAL if the output has no verdict. From 126 on, shells use them.
	DrainOn []int `yaml:"drain_on" allow:"1 to 125"`
}

// Repair lets the health check reset a GPU by itself.
type Repair struct {
	// Enabled is for a GPU on which memory is left that no process holds, once Bookend has drained the node for that.
	Enabled bool `yaml:"enabled"`
}

// Reset says what "bookend reset" may stop, and where its programs are.
type Reset struct {
	Stop      []string `yaml:"stop" allow:"unit"` // services that hold GPUs: stopped for a reset, if they are active
	NVIDIASMI string   `yaml:"nvidia_smi" allow:"path"`
	Systemctl string   `yaml:"systemctl" allow:"path"`
}
