package version_test

import (
	"runtime/debug"
	"testing"

	"github.com/bringupd/bringupd/internal/version"
)

// TestDescribe checks when a version has the commit.
func TestDescribe(t *testing.T) {
	commit := debug.BuildSetting{Key: "vcs.revision", Value: "0123456789abcdef0123456789abcdef01234567"}
	clean := debug.BuildSetting{Key: "vcs.modified", Value: "false"}
	dirty := debug.BuildSetting{Key: "vcs.modified", Value: "true"}
	for _, tt := range []struct {
		number   string
		settings []debug.BuildSetting
		want     string
	}{
		{"0.1.0-dev", nil, "0.1.0-dev"},
		{"0.1.0-dev", []debug.BuildSetting{commit, clean}, "0.1.0-dev+0123456789ab"},
		{"0.1.0-dev", []debug.BuildSetting{commit, dirty}, "0.1.0-dev+0123456789ab.dirty"},
		{"0.1.0", []debug.BuildSetting{commit, clean}, "0.1.0"},
		{"0.1.0", []debug.BuildSetting{commit, dirty}, "0.1.0+0123456789ab.dirty"},
	} {
		if got := version.Describe(tt.number, tt.settings); got != tt.want {
			t.Errorf("%s with %v is %s: want %s", tt.number, tt.settings, got, tt.want)
		}
	}
}
