package envlist

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWith(t *testing.T) {
	for _, tc := range []struct {
		name    string
		environ []string
		set     map[string]string
		want    []string
	}{
		{"nothing to set", []string{"B=1", "A=2"}, nil, []string{"B=1", "A=2"}},
		{"new ones, in order", []string{"X=0"}, map[string]string{"B": "1", "A": "2"}, []string{"X=0", "A=2", "B=1"}},
		{"one that is there", []string{"A=0", "X=0"}, map[string]string{"A": "1"}, []string{"X=0", "A=1"}},
		{"one that is there twice", []string{"A=0", "X=0", "A=2"}, map[string]string{"A": "1"}, []string{"X=0", "A=1"}},
		{"an empty one is taken out", []string{"A=0", "X=0"}, map[string]string{"A": ""}, []string{"X=0"}},
		{"a name that begins like it", []string{"AB=0"}, map[string]string{"A": "1"}, []string{"AB=0", "A=1"}},
		{"an entry that is no variable", []string{"A"}, map[string]string{"A": "1"}, []string{"A=1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := slices.Clone(tc.environ)
			if diff := cmp.Diff(tc.want, With(tc.environ, tc.set)); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(before, tc.environ); diff != "" {
				t.Errorf("the caller's was changed: %s", diff)
			}
		})
	}
}
