package framework

import "strings"

// Versioned is a framework whose program tells its version.
type Versioned interface {
	// VersionCommand is the command that tells it.
	VersionCommand() []string
	// Version finds it among the lines that the command has said; empty where
	// there is none.
	Version(lines []string) string
}

var _ Versioned = Ray{}

// VersionCommand returns ray --version.
func (r Ray) VersionCommand() []string { return []string{r.start(Node{}).Program, "--version"} }

// Version understands "ray, version 2.9.0", among whatever warnings.
func (Ray) Version(lines []string) string {
	for _, line := range lines {
		if version, ok := strings.CutPrefix(strings.TrimSpace(line), "ray, version "); ok {
			return version
		}
	}
	return ""
}
