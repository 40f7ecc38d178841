package framework

import (
	"slices"
	"testing"
)

func TestRayVersion(t *testing.T) {
	if got := (Ray{}).VersionCommand(); !slices.Equal(got, []string{"ray", "--version"}) {
		t.Errorf("the command is %q", got)
	}
	if got := (Ray{Program: "/opt/ray"}).VersionCommand()[0]; got != "/opt/ray" {
		t.Errorf("the program is %q", got)
	}
	for _, tc := range []struct {
		name  string
		lines []string
		want  string
	}{
		{"as it is", []string{"ray, version 2.9.0"}, "2.9.0"},
		{"behind a warning", []string{"UserWarning: pkg_resources", "ray, version 3.0.0.dev0"}, "3.0.0.dev0"},
		{"something else", []string{"usage: ray"}, ""},
		{"nothing", nil, ""},
	} {
		if got := (Ray{}).Version(tc.lines); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}
