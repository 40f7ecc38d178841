package ray

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/pkg/roles"
)

// staleVariables point at another cluster, or name this process in one.
var staleVariables = []string{"RAY_ADDRESS", "RAY_JOB_ID", "RAY_RAYLET_PID", "RAY_NODE_ID"}

// daemonSettings are given to Ray's daemons unless the user sets them.
var daemonSettings = map[string]string{
	// On SIGTERM Ray waits up to 30 s for the node's tasks, which is as long as
	// Slurm gives the whole job. When services are ended, the driver is gone.
	"RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
}

// daemonEnv returns the environment of Ray's daemons: what the node has,
// without what its launcher tells MPI, for Ray's workers inherit it, and without
// another cluster's address, and with more.
func daemonEnv(environ []string, more map[string]string) []string {
	set := maps.Clone(daemonSettings)
	var out []string
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if roles.Private(name) || slices.Contains(staleVariables, name) {
			continue
		}
		if _, replaced := more[name]; replaced {
			continue
		}
		delete(set, name)
		out = append(out, entry)
	}
	maps.Copy(set, more)
	for _, name := range slices.Sorted(maps.Keys(set)) {
		out = append(out, name+"="+set[name])
	}
	return out
}

// driverEnv returns what the driver is told of the cluster, and no more: it
// keeps all that the launcher says. Without RAY_ADDRESS, ray.init would start a
// cluster of its own where it finds none.
func driverEnv(address string) map[string]string {
	return map[string]string{"RAY_ADDRESS": address}
}

// authToken returns the token of Ray's own authentication, as Ray would find it
// with this environment, and empty where there is none or it is switched off.
// A head turns authentication on where it finds a token, but a worker does so
// only when it is told: the caller tells them all.
func authToken(environ []string, readFile func(string) ([]byte, error)) string {
	mode := environValue(environ, "RAY_AUTH_MODE")
	if mode != "" && !strings.EqualFold(mode, "token") {
		return ""
	}
	if token := environValue(environ, "RAY_AUTH_TOKEN"); token != "" {
		return strings.TrimSpace(token)
	}
	path := environValue(environ, "RAY_AUTH_TOKEN_PATH")
	if home := environValue(environ, "HOME"); path == "" && home != "" {
		path = filepath.Join(home, ".ray", "auth_token")
	}
	if path == "" {
		return ""
	}
	token, err := readFile(path)
	if err != nil {
		return "" // Ray itself says what it misses
	}
	return strings.TrimSpace(string(token))
}

// environValue returns the value that getenv would.
func environValue(environ []string, name string) string {
	for _, entry := range environ {
		if value, found := strings.CutPrefix(entry, name+"="); found {
			return value
		}
	}
	return ""
}
