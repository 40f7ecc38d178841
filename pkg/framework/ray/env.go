package ray

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/roles"
)

// staleVariables point at another cluster, or name this process in one.
var staleVariables = []string{"RAY_ADDRESS", "RAY_JOB_ID", "RAY_RAYLET_PID", "RAY_NODE_ID"}

// daemonSettings are given to Ray's daemons unless the user sets them; tunings for many
// nodes come on top.
var daemonSettings = map[string]string{
	// On SIGTERM Ray waits up to 30 s for the node's tasks, which is as long as
	// Slurm gives the whole job. When services are ended, the driver is gone.
	"RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
}

// daemonEnv returns the environment of Ray's daemons: what the node has, without a
// cluster's address, and with what else the head tells its peers.
func daemonEnv(environ []string, settings, told map[string]string) []string {
	return framework.ServiceEnviron(environ, settings, told, staleVariables)
}

// authToken returns the token of Ray's own authentication, as Ray would find it
// with this environment, and empty where there is none or it is switched off.
// A head turns authentication on where it finds a token, but a worker does so
// only when it is told: the caller tells them all.
func authToken(environ []string) string {
	env := roles.EnvironmentOf(environ)
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
	token, _ := os.ReadFile(path) // Ray itself says what it misses
	return strings.TrimSpace(string(token))
}
