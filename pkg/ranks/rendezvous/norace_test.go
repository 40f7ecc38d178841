//go:build !race

package rendezvous

// usual is how many schedules of each carrier TestSchedules goes through.
const usual = 200
