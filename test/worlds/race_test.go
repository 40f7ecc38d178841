//go:build race

package worlds

const race = true
