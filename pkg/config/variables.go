package config

import (
	"fmt"
	"os"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
)

// ResolveVariables resolves the variables of a flag, each in the form NAME=VALUE. An entry without a
// value gets the value in this environment.
func ResolveVariables(flag string, entries []string) (env []string, err error) {
	for _, entry := range entries {
		name, _, given := strings.Cut(entry, "=")
		if name == "" {
			return nil, fmt.Errorf(
				"cannot use --%s=%s: give NAME or NAME=VALUE", flag, EscapeLineEnds(textutil.RedactText(entry)))
		}
		if value, set := os.LookupEnv(name); !given && set {
			entry = name + "=" + value
		} else if !given {
			return nil, fmt.Errorf("cannot use --%s=%s: it is not set here", flag, EscapeLineEnds(name))
		}
		env = append(env, entry)
	}
	return env, nil
}
