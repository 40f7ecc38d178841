package ray

import (
	"encoding/hex"
	"path/filepath"
	"slices"

	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/roles"
)

// Who is let into the cluster.
const (
	authAuto = "auto" // who has this run's token, unless the user's variables say something else
	authOwn  = "own"  // who they say
	authOff  = "off"  // anybody
)

// Ray's own variables for it, and the mode in which it wants a token. Ray knows them
// from 2.52 on.
const (
	authModeVariable = "RAY_AUTH_MODE"
	tokenVariable    = "RAY_AUTH_TOKEN"
	pathVariable     = "RAY_AUTH_TOKEN_PATH"
	tokenMode        = "token"
)

// tokenFile is the token's name in a node's private directory.
const tokenFile = "ray-token"

// Credentials returns a token that is this run's alone, unless the user has said who
// is let in. One in the home directory says nothing: Ray leaves one there itself.
func (r Cluster) Credentials(node framework.Node, secret []byte) (framework.Credentials, error) {
	switch {
	case r.Auth == authOff:
		return framework.Credentials{Env: map[string]string{authModeVariable: "disabled"}}, nil
	case r.Auth == authOwn || ownAuth(node.Environ):
		return framework.Credentials{Env: map[string]string{}}, nil
	}
	return framework.Credentials{
		Files: map[string][]byte{tokenFile: []byte(hex.EncodeToString(secret))},
		Env:   map[string]string{authModeVariable: tokenMode, pathVariable: filepath.Join(node.TempDir, tokenFile)},
	}, nil
}

// ownAuth tells whether the user's environment says who is let in.
func ownAuth(environ []string) bool {
	env := roles.EnvironmentOf(environ)
	return slices.ContainsFunc([]string{authModeVariable, tokenVariable, pathVariable}, func(name string) bool {
		value, _ := env(name)
		return value != ""
	})
}
