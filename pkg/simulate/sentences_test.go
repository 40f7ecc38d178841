package simulate

import (
	"testing"
)

func TestWords(t *testing.T) {
	for _, tc := range []struct{ got, want string }{
		{formatRate(0.246), "0.25"},
		{formatRate(9.994), "9.99"},
		{formatRate(10), "10"},
		{formatRate(2047.6), "2,048"},
		{formatMiB(0), "0 MiB"},
		{formatMiB(3 << 19), "2 MiB"},
		{formatMiB(2 << 30), "2,048 MiB"},
		{formatPercent(0.256), "26 %"},
	} {
		t.Run(tc.want, func(t *testing.T) {
			if tc.got != tc.want {
				t.Errorf("got %q, want %q", tc.got, tc.want)
			}
		})
	}
}
