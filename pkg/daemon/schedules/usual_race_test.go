//go:build race

package schedules

const (
	// usual is how many schedules CI goes through under the race detector, which
	// sees more where goroutines run side by side.
	usual      = 1_000
	processors = "2"
)
