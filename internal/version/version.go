// Package version has the version of the program.
package version

import (
	"cmp"
	"runtime/debug"
	"strings"
)

// Number is the version without its commit. packaging/version.sh, and so all packages, take it from
// here.
const Number = "0.1.0-dev"

// stamped is set by make release, for example to 0.1.0-dev+0123456789ab.
var stamped string

// Program returns the stamped version, or otherwise the number with the commit that the Go command
// has recorded.
func Program() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return cmp.Or(stamped, Number)
	}
	return cmp.Or(stamped, Describe(Number, info.Settings))
}

// Describe adds the commit in the settings of a build to a number, unless that commit is the release
// of the number. packaging/version.sh does the same.
func Describe(number string, settings []debug.BuildSetting) string {
	var commit, dirty string
	for _, s := range settings {
		switch {
		case s.Key == "vcs.revision":
			commit = "+" + s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = ".dirty"
		}
	}
	if !strings.HasSuffix(number, "-dev") && dirty == "" {
		return number
	}
	return number + commit + dirty
}
