package config

import (
	"slices"
	"testing"
)

func TestParseCodes(t *testing.T) {
	for _, tc := range []struct {
		list string
		want []int
		back string
	}{
		{"", nil, ""},
		{"2", []int{2}, "2"},
		{"3,2,3", []int{2, 3}, "2-3"},
		{"70-73,1,255", []int{1, 70, 71, 72, 73, 255}, "1,70-73,255"},
	} {
		t.Run(tc.list, func(t *testing.T) {
			got, err := ParseCodes(tc.list)
			if err != nil || !slices.Equal(got, tc.want) || FormatCodes(got) != tc.back {
				t.Errorf("got %v (%v), back %q", got, err, FormatCodes(got))
			}
		})
	}
	for _, list := range []string{"0", "256", "-1", "1-", "3-2", "a", "1,,2", "1 2", ","} {
		t.Run("not "+list, func(t *testing.T) {
			if got, err := ParseCodes(list); err == nil {
				t.Errorf("it is read as %v", got)
			}
		})
	}
}
