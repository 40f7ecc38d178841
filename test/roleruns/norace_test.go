//go:build !race

package roleruns

const race = false
