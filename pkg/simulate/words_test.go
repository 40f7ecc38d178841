package simulate

import (
	"testing"
)

func TestWords(t *testing.T) {
	for _, tc := range []struct{ got, want string }{
		{rate(0.246), "0.25"},
		{rate(9.994), "9.99"},
		{rate(10), "10"},
		{rate(2047.6), "2,048"},
		{size(0), "0 MiB"},
		{size(3 << 19), "2 MiB"},
		{size(2 << 30), "2,048 MiB"},
		{percent(0.256), "26 %"},
	} {
		t.Run(tc.want, func(t *testing.T) {
			if tc.got != tc.want {
				t.Errorf("got %q, want %q", tc.got, tc.want)
			}
		})
	}
}
