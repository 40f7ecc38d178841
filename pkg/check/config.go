package check

import "time"

// Config is what the user has told about the checks of a node.
type Config struct {
	Policy Policy
	// Active are shell commands of the site's own, run in their order.
	Active        []string
	ActiveTimeout time.Duration // for each of them
	// Timeout is for how long may be waited for what is not ready yet.
	Timeout   time.Duration
	XidPolicy string // file; empty: what is built in alone
	NVML      string // file; empty: where the linker finds it
}

// DefaultConfig returns what counts where the user tells nothing.
func DefaultConfig() Config {
	return Config{Policy: Policy{Mode: ModeAuto}, ActiveTimeout: 2 * time.Minute, Timeout: 3 * time.Minute}
}
