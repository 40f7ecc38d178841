package ray

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// staleVariables refer to another cluster, or identify this process in one.
var staleVariables = []string{"RAY_ADDRESS", "RAY_JOB_ID", "RAY_RAYLET_PID", "RAY_NODE_ID"}

// daemonSettings are variables of Ray's daemons, which the user can override. Tunings for many
// nodes are added.
var daemonSettings = map[string]string{
	// On SIGTERM Ray waits up to 30 s for the node's tasks, as long as Slurm gives the whole job. When
	// services are ended, the driver has ended already.
	"RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
}

// findAuthToken returns the token of Ray's authentication, as Ray would find it in this
// environment. It is empty if there is none, or if authentication is off. A head enables
// authentication if it finds a token, but a worker does so only by a variable, which the caller
// must set.
func findAuthToken(environ []string) string {
	env := launcher.EnvironmentOf(environ)
	value := func(name string) string { value, _ := env(name); return value }
	if mode := value("RAY_AUTH_MODE"); mode != "" && !strings.EqualFold(mode, "token") {
		return ""
	}
	if token := value("RAY_AUTH_TOKEN"); token != "" {
		return strings.TrimSpace(token)
	}
	path, home := value("RAY_AUTH_TOKEN_PATH"), value("HOME")
	if path == "" && home != "" {
		path = filepath.Join(home, ".ray", "auth_token")
	}
	token, _ := os.ReadFile(path) // Ray itself reports a missing file
	return strings.TrimSpace(string(token))
}
