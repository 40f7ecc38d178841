package main

import "runtime/debug"

// stamped is set by release builds: -ldflags "-X main.stamped=v1.2.3".
var stamped string

// version is what a release was stamped with, or the commit that it was built
// from.
func version() string {
	if stamped != "" {
		return stamped
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	settings := make(map[string]string)
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	revision := settings["vcs.revision"]
	if revision == "" {
		return info.Main.Version
	}
	text := "devel-" + revision[:min(12, len(revision))]
	if settings["vcs.modified"] == "true" {
		text += "-dirty"
	}
	return text
}
