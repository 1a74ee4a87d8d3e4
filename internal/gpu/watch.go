package gpu

import "time"

// WatchRule says when watching devices may end. Package settle applies it, in the backend and in the hook.
type WatchRule struct {
	Max  time.Duration `json:"max_ns"`  // longest time to watch
	Flat time.Duration `json:"flat_ns"` // looks that stay equal this long are flat
	// SlackBytes is how far Used may lie above the expected and still be clean.
	SlackBytes uint64          `json:"slack_bytes"`
	Expect     map[ID]Expected `json:"expect,omitempty"`
}

// Expected is what a device may carry without being unclean: what it carried before the job. The zero value
// expects an idle device.
type Expected struct {
	UsedBytes uint64 `json:"used_bytes"`
	PIDs      []int  `json:"pids,omitempty"`
}
