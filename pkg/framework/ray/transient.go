package ray

import (
	"slices"
	"strings"

	"github.com/bringupd/bringupd/pkg/process"
)

// permanentMessages are messages of failures that would occur again, and before which Ray prints some
// of transientMessages.
var permanentMessages = []string{"InvalidAuthToken", "Version mismatch: "}

// transientMessages are messages for failures that may not occur again.
var transientMessages = []string{
	// Another process was faster on a port. The next start looks for its owner first.
	"Address already in use",
	"Failed to bind to",
	"Failed to start the grpc server. The specified port is",
	"does not match persisted value",
	"but is already running at",
	// The other side was slow, or temporarily unreachable.
	"one Ray agent failed",
	"The current node timed out during startup",
	"Timed out while waiting for GCS to become available",
	"Failed to connect to GCS",
	"No node info found for head node in GCS",
	"Failed to get cluster ID from GCS server",
}

// isTransient decides from the exit of "ray start", from its last lines and from Ray's logs,
// whether the same start may succeed a moment later. Unknown failures are not tried again: they
// would recur, and the last lines explain them.
func isTransient(exit process.Exit, lines []string) bool {
	if exit.Signal != 0 || exit.Code == 126 || exit.Code == 127 {
		return false
	}
	isPrinted := func(message string) bool {
		return slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, message) })
	}
	return !slices.ContainsFunc(permanentMessages, isPrinted) && slices.ContainsFunc(transientMessages, isPrinted)
}
