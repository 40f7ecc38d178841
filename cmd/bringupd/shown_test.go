package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestRefusalAsJSON verifies that a refusal is JSON if standard error is.
func TestRefusalAsJSON(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		code int
	}{
		{"no launcher", []string{"--log-format=json"}, 65},
		{"what makes no sense together", []string{"--log-format=json", "--head-ready=tcp:1"}, 64},
		{"the same of a local job", []string{"local", "--log-format=json", "--head-ready=tcp:1"}, 64},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := call(t, nil, tc.args...)
			var line struct {
				Level, Daemon, Msg string
				Code               int
			}
			if err := json.Unmarshal([]byte(got.err), &line); err != nil || line.Level != "error" ||
				line.Daemon != "bringupd" ||
				!strings.HasPrefix(line.Msg, "cannot ") || line.Code != tc.code || got.code != tc.code {
				t.Errorf("got %+v: %v", got, err)
			}
		})
	}
}
