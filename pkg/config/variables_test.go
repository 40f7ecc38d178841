package config

import (
	"slices"
	"strings"
	"testing"
)

func TestResolveVariables(t *testing.T) {
	t.Setenv("SET_HERE", "value")
	for _, tc := range []struct {
		entries, want []string
		refusal       string
	}{
		{[]string{"A=1", "SET_HERE", "B=", "C=x=y"}, []string{"A=1", "SET_HERE=value", "B=", "C=x=y"}, ""},
		{[]string{"=1"}, nil, "cannot use --env==1: give NAME or NAME=VALUE"},
		{[]string{"NOT_SET_HERE"}, nil, "cannot use --env=NOT_SET_HERE: it is not set here"},
	} {
		got, err := ResolveVariables("env", tc.entries)
		if !slices.Equal(got, tc.want) || tc.refusal == "" != (err == nil) || err != nil && err.Error() != tc.refusal {
			t.Errorf("%q: got %q, %v", tc.entries, got, err)
		}
	}
}

// TestFindIneffective verifies that variables which look like those of settings are found.
func TestFindIneffective(t *testing.T) {
	var text string
	all := List{
		NewText("framework", "WORD", &text, ""), NewText("log-dir", "DIR", &text, ""),
		NewText("ranks-per-node", "N", &text, "").WithoutVariable(),
	}
	for env, want := range map[string]string{
		"BRINGUPD_FRAMWORK=ray":      "did you mean BRINGUPD_FRAMEWORK?",
		"BRINGUPD_LOGDIR=x":          "did you mean BRINGUPD_LOG_DIR?",
		"BRINGUPD_RANKS_PER_NODE=4":  "give --ranks-per-node on the command line",
		"BRINGUPD_FRAMEWORK=ray":     "",
		"BRINGUPD_FRAMWORK=":         "",
		"BRINGUPD_RUN_DIR=/logs/1.0": "",
		"BRINGUPD_LOG_DIRS=x":        "",
		"BRINGUP_LOGDIR=x":           "",
	} {
		found := all.FindIneffective([]string{"PATH=/bin", env}, []string{"BRINGUPD_LOG_DIRS"})
		if len(found) != min(len(want), 1) || want != "" && !strings.Contains(found[0], want) {
			t.Errorf("%s: %q, want %q", env, found, want)
		}
	}
}
