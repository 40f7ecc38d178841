//go:build !race

package local

const race = false
