package config

import (
	"slices"
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
