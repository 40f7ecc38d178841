package config

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
)

// variablePrefix is the beginning of the variables of settings, and of those that a run sets.
const variablePrefix = "BRINGUPD_"

// maxTypos is the maximum number of mistaken characters in the name of a variable.
const maxTypos = 2

// FindIneffective returns a sentence for each variable of an environment that resembles the
// variable of a setting, or belongs to one of these settings that has none. known are the names of
// other variables.
func (all List) FindIneffective(environ, known []string) (found []string) {
	var variables []string // without the prefix
	for _, s := range all {
		if s.HasEnvVariable() && !s.Hidden {
			variables = append(variables, strings.TrimPrefix(s.EnvVariable(), variablePrefix))
		}
	}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		word, isOurs := strings.CutPrefix(name, variablePrefix)
		isKnown := slices.Contains(known, name) || slices.Contains(variables, word)
		if !isOurs || value == "" || isKnown {
			continue
		}
		isOf := func(s *Setting) bool { return s.EnvVariable() == name && !s.Hidden }
		near := textutil.NearestWord(word, variables, min(maxTypos, len(word)/3))
		if at := slices.IndexFunc(all, isOf); at >= 0 {
			found = append(found, name+" has no effect: give --"+all[at].Name+" on the command line")
		} else if near != "" {
			found = append(found, name+" has no effect; did you mean "+variablePrefix+near+"?")
		}
	}
	slices.Sort(found)
	return found
}

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
