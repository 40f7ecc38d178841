//go:build !race

package meeting

// usual is how many schedules of each carrier TestSchedules goes through.
const usual = 200
