package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// showsColour tells whether who reads it sees colours, and wants them.
func showsColour(file *os.File) bool {
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return err == nil && wantsColour(os.Getenv)
}

// wantsColour is by the conventions that all programs share: https://no-color.org
func wantsColour(get func(name string) string) bool {
	return get("NO_COLOR") == "" && get("TERM") != "dumb"
}
