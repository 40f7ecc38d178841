//go:build race

package rendezvous

// usual is the number of schedules that TestSchedules runs for each transport. It is small, because
// the race detector itself fails in about one of a thousand bubbles of testing/synctest
// (https://go.dev/issue/78156).
const usual = 3
