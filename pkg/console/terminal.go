package console

import (
	"os"

	"golang.org/x/sys/unix"
)

// ShowsColour reports whether the output supports colours and the user wants them.
func ShowsColour(file *os.File) bool {
	return IsTerminal(file) && wantsColour(os.Getenv)
}

// IsTerminal reports whether file is a terminal.
func IsTerminal(file *os.File) bool {
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return err == nil
}

// wantsColour applies the conventions of https://no-color.org.
func wantsColour(get func(name string) string) bool {
	return get("NO_COLOR") == "" && get("TERM") != "dumb"
}
