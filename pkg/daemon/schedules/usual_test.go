//go:build !race

package schedules

const (
	// usual is the number of schedules that CI runs.
	usual     = 10_000
	usualJobs = 500 // with roles
	// processors is the GOMAXPROCS of a process that runs schedules.
	processors = "1"
)
