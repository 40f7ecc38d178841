//go:build race

package rendezvous

// usual is how many schedules of each carrier TestSchedules goes through: few, as the race detector
// itself fails in about one bubble of testing/synctest in a thousand (https://go.dev/issue/78156).
const usual = 3
