package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// showsColour reports whether the output supports colours and the user wants them.
func showsColour(file *os.File) bool {
	return isTerminal(file) && wantsColour(os.Getenv)
}

func isTerminal(file *os.File) bool {
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return err == nil
}

// wantsColour applies the conventions of https://no-color.org.
func wantsColour(get func(name string) string) bool {
	return get("NO_COLOR") == "" && get("TERM") != "dumb"
}
