package gpu

import (
	"slices"
	"strings"
	"testing"
)

func TestParseVisible(t *testing.T) {
	const full = "GPU-5d1e0a02-1c5a-4b52-9d3e-7a60c41f0002"
	uuid := func(s string) Selector { return Selector{Index: -1, UUID: s} }
	for _, tc := range []struct {
		value string
		want  []Selector
		err   string // a part of it
	}{
		{value: "", want: []Selector{}},
		{value: " ", want: []Selector{}},
		{value: "-1", want: []Selector{}},
		{value: "NoDevFiles", want: []Selector{}},
		{value: "0", want: []Selector{{Index: 0}}},
		{value: "3, 1,0", want: []Selector{{Index: 3}, {Index: 1}, {Index: 0}}},
		{value: "0,-1,2", want: []Selector{{Index: 0}}},
		{value: full, want: []Selector{uuid(full)}},
		{value: "GPU-5d1e,1", want: []Selector{uuid("GPU-5d1e"), {Index: 1}}},
		{value: "0-3", err: "CUDA does not accept ranges"},
		{value: "-2", err: "CUDA does not accept ranges"},
		{value: "99999999999999999999", err: "is not an index"},
		{value: "0,,1", err: "empty entry"},
		{value: "0,", err: "empty entry"},
		{value: "1,1", err: "lists 1 twice"},
		{value: "GPU-", err: "is missing"},
		{value: "all", err: `"all" is not an index`},
		{value: strings.Repeat("x", 9999), err: "is not an index"},
	} {
		got, err := ParseVisibleDevices(tc.value)
		switch {
		case tc.err != "":
			if err == nil || !strings.Contains(err.Error(), tc.err) || len(err.Error()) > 400 ||
				!strings.HasPrefix(err.Error(), "cannot use CUDA_VISIBLE_DEVICES=") {
				t.Errorf("%.20q: error %v", tc.value, err)
			}
		case err != nil || got == nil || !slices.Equal(got, tc.want):
			t.Errorf("%q: %v, %v", tc.value, got, err)
		}
	}
}
