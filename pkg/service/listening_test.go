package service

import (
	"testing"
)

func TestDescribeListening(t *testing.T) {
	for _, tc := range []struct {
		ports []int
		want  string
	}{
		{nil, ""}, {[]int{8000, 9000}, ""}, {[]int{8001}, "its processes listen on port 8001 instead"},
		{[]int{8001, 8002, 9000}, "its processes listen on ports 8001-8002,9000 instead"},
	} {
		if got := describeListening(tc.ports, 8000); got != tc.want {
			t.Errorf("%v: got %q, want %q", tc.ports, got, tc.want)
		}
	}
}
