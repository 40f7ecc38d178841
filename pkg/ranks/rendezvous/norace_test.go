//go:build !race

package rendezvous

// usual is the number of schedules that TestSchedules runs for each transport.
const usual = 200
