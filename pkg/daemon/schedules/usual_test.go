//go:build !race

package schedules

const (
	// usual is how many schedules CI goes through.
	usual = 10_000
	// processors are those of a process that goes through schedules.
	processors = "1"
)
