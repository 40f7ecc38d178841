//go:build race

package jobtest

// Race reports whether the tests run with the race detector.
const Race = true
