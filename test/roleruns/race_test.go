//go:build race

package roleruns

const race = true
