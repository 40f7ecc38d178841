package ray

import (
	"slices"
	"strings"

	"github.com/bringupd/bringupd/pkg/process"
)

// permanentMessages are messages of Ray, each in one line, for failures that would occur again.
var permanentMessages = []string{
	"Version mismatch: ",
	"No such option",
	"Invalid value for ",
	"Missing argument",
	"Got unexpected extra argument",
	"is trying to use a port number",
	"AF_UNIX path length cannot exceed",
	"no authentication token was found",
	"InvalidAuthToken",
	"Invalid address format",
	"Cannot canonicalize address",
	"is a required flag",
	"should only be specified when starting head node",
	"System config parameters can only be set on the head node",
	"is not a valid JSON string",
	"is not a valid string of key-value pairs",
	"cannot be a custom resource",
	"Ray Client requires pip package",
	"must be absolute path",
	"No module named",
	"cannot import name",
	"cannot open shared object file",
	"No space left on device",
	"Permission denied",
	"Read-only file system",
	"Failed to resolve hostname",
}

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
// whether the same start may succeed a moment later. A lasting failure has precedence over a
// passing one, because a refused start may have waited before. Unknown failures are not tried
// again: they would recur, and the last lines explain them.
func isTransient(exit process.Exit, lines []string) bool {
	if exit.Signal != 0 || exit.Code == 126 || exit.Code == 127 {
		return false
	}
	isPrinted := func(sign string) bool {
		return slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, sign) })
	}
	return !slices.ContainsFunc(permanentMessages, isPrinted) && slices.ContainsFunc(transientMessages, isPrinted)
}
