package ray

import (
	"encoding/hex"
	"path/filepath"

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

// tokenFile is the token's name in a node's private directory.
const tokenFile = "ray-token"

// NodeCredentials returns a token of this run, unless the user's variables decide. A token in the
// home directory is ignored, because Ray leaves one there itself.
func (r Cluster) NodeCredentials(node framework.Node, secret []byte) (framework.Credentials, error) {
	env := launcher.EnvironmentOf(node.Environ)
	isSet := func(name string) bool { value, _ := env(name); return value != "" }
	switch {
	case r.Auth == framework.AuthOff:
		return framework.Credentials{Env: map[string]string{authModeVariable: "disabled"}}, nil
	case r.Auth == framework.AuthOwn || isSet(authModeVariable) || isSet(tokenVariable) || isSet(tokenPathVariable):
		return framework.Credentials{Env: map[string]string{}}, nil
	}
	return framework.Credentials{
		Files: map[string][]byte{tokenFile: []byte(hex.EncodeToString(secret))},
		Env: map[string]string{authModeVariable: tokenMode,
			tokenPathVariable: filepath.Join(node.TempDir, tokenFile)},
	}, nil
}
