package pmi

import (
	"encoding/hex"
	"fmt"
	"strings"
)

// secretMark begins the part of a job's name that nobody else may know.
const secretMark = "."

// longestShown bounds the part of a job's name that people see, in bytes: PMIx accepts 255 for all.
const longestShown = 128

// NewName returns the name of a job for MPI: the part that people see, and a secret. Whoever knows
// the name could pass for one of the job's ranks, so it is in no log, argument or public file.
// MPIs publish hashes of it, of 31 and 32 bits, in /dev/shm: the secret has these bits to spare.
func NewName(shown string, secret [24]byte) string {
	return shown[:min(len(shown), longestShown)] + secretMark + hex.EncodeToString(secret[:])
}

// spawnedName returns the name of the job that a world spawns as the one of that number.
func spawnedName(world string, number int) string {
	shown := Shown(world)
	return fmt.Sprintf("%s-%d%s", shown, number, strings.TrimPrefix(world, shown))
}

// Shown returns the part of a job's name that people may see.
func Shown(name string) string {
	if at := strings.LastIndex(name, secretMark); at >= 0 {
		return name[:at]
	}
	return name
}
