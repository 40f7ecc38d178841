package ray

import (
	"strings"

	"github.com/bringupd/bringupd/pkg/process"
)

// rule knows a failure of "ray start" by words of Ray's own.
type rule struct {
	words     string // in one line
	transient bool
}

// rules are tried in order on all lines: what will not mend itself comes
// first, as a start that was refused may have waited for something before.
var rules = []rule{
	{"Version mismatch: ", false},
	{"No such option", false},
	{"Invalid value for ", false},
	{"Missing argument", false},
	{"Got unexpected extra argument", false},
	{"is trying to use a port number", false},
	{"AF_UNIX path length cannot exceed", false},
	{"no authentication token was found", false},
	{"InvalidAuthToken", false},
	{"Invalid address format", false},
	{"Cannot canonicalize address", false},
	{"is a required flag", false},
	{"should only be specified when starting head node", false},
	{"System config parameters can only be set on the head node", false},
	{"is not a valid JSON string", false},
	{"is not a valid string of key-value pairs", false},
	{"cannot be a custom resource", false},
	{"Ray Client requires pip package", false},
	{"must be absolute path", false},
	{"No module named", false},
	{"cannot import name", false},
	{"cannot open shared object file", false},
	{"No space left on device", false},
	{"Permission denied", false},
	{"Read-only file system", false},
	{"Failed to resolve hostname", false},

	// Somebody was faster on a port. The next start looks for the holder first.
	{"Address already in use", true},
	{"Failed to bind to", true},
	{"Failed to start the grpc server. The specified port is", true},
	{"does not match persisted value", true},
	{"but is already running at", true},
	// The other side was slow, or out of reach for a moment.
	{"one Ray agent failed", true},
	{"The current node timed out during startup", true},
	{"Timed out while waiting for GCS to become available", true},
	{"Failed to connect to GCS", true},
	{"No node info found for head node in GCS", true},
	{"Failed to get cluster ID from GCS server", true},
}

// transient tells from how "ray start" ended, from its last lines and from
// what Ray's logs say, whether the same start may succeed a moment later. What
// is not known is not tried again: it would fail as often as it is tried, and
// its last lines tell why.
func transient(exit process.Exit, lines []string) bool {
	if exit.Signal != 0 || exit.Code == 126 || exit.Code == 127 {
		return false
	}
	for _, rule := range rules {
		for _, line := range lines {
			if strings.Contains(line, rule.words) {
				return rule.transient
			}
		}
	}
	return false
}
