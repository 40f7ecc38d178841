package pmi

import (
	"encoding/hex"
	"fmt"
	"strings"
)

// secretSeparator separates the public part of a job's name from the secret part.
const secretSeparator = "."

// maxPublicLength is the maximum length of the public part of a job's name in bytes. PMIx accepts
// 255 bytes for the whole name.
const maxPublicLength = 128

// NewJobName returns the name of a job for MPI: a public part and a secret. A process that knows
// the name could impersonate one of the job's ranks, so the full name must not appear in logs,
// arguments or public files. MPI libraries publish hashes of the name, of 31 and 32 bits, in
// /dev/shm; the secret is long enough to remain unknown in spite of them.
func NewJobName(shown string, secret [24]byte) string {
	return shown[:min(len(shown), maxPublicLength)] + secretSeparator + hex.EncodeToString(secret[:])
}

// spawnedJobName returns the name of the number-th job that a world spawns.
func spawnedJobName(world string, number int) string {
	shown := PublicName(world)
	return fmt.Sprintf("%s-%d%s", shown, number, strings.TrimPrefix(world, shown))
}

// PublicName returns the public part of a job's name.
func PublicName(name string) string {
	if at := strings.LastIndex(name, secretSeparator); at >= 0 {
		return name[:at]
	}
	return name
}
