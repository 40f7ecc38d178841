//go:build race

package schedules

const (
	// usual is the number of schedules that CI runs with the race detector, which finds more if
	// goroutines run in parallel.
	usual      = 1_000
	usualJobs  = 50 // with roles
	processors = "2"
)
