package ray

import (
	"context"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"

	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// Ray's own variables for it, and the mode with a token. Ray supports them since 2.52.
const (
	authModeVariable  = "RAY_AUTH_MODE"
	tokenVariable     = "RAY_AUTH_TOKEN"
	tokenPathVariable = "RAY_AUTH_TOKEN_PATH"
	tokenMode         = "token"
)

const tokenFile = "ray-token"

// NodeCredentials returns a token of this run, unless the user's variables decide. A token in the
// home directory is ignored, because Ray leaves one there itself, unless the user requests tokens.
func (r Cluster) NodeCredentials(node framework.Node, secret []byte) (framework.Credentials, error) {
	env := launcher.EnvironmentOf(node.Environ)
	value := func(name string) string { value, _ := env(name); return value }
	// Ray itself fails if tokens are requested and there is none.
	needsToken := strings.EqualFold(value(authModeVariable), tokenMode) && findAuthToken(node.Environ) == ""
	switch {
	case r.Auth == framework.AuthOff:
		return framework.Credentials{Env: map[string]string{authModeVariable: "disabled"}}, nil
	case r.Auth == framework.AuthOwn || value(tokenVariable) != "" || value(tokenPathVariable) != "",
		value(authModeVariable) != "" && !needsToken:
		return framework.Credentials{Env: map[string]string{}}, nil
	}
	return framework.Credentials{
		Files: map[string][]byte{tokenFile: []byte(hex.EncodeToString(secret))},
		Env: map[string]string{authModeVariable: tokenMode,
			tokenPathVariable: filepath.Join(node.TempDir, tokenFile)},
	}, nil
}

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

// WarnIfOpen requests the nodes from the GCS without a token, and warns if it answers although the
// run has one.
func (r Cluster) WarnIfOpen(ctx context.Context, head framework.Node, endpoint framework.Endpoint,
	tell func(sentence string)) {
	if findAuthToken(head.Environ) == "" {
		return // the user wants open access
	}
	if _, err := (gcsServer{address: endpoint.Address}).nodeTable(ctx, "none"); err == nil {
		tell("anyone who can connect to Ray at " + endpoint.Address +
			" can run programs as you: this version of Ray does not check tokens (2.52 and later do)")
	}
}
