package simulate

import (
	"testing"
	"time"
)

func TestWords(t *testing.T) {
	for _, tc := range []struct{ got, want string }{
		{inWords(0), "0.0 ms"},
		{inWords(1250 * time.Microsecond), "1.2 ms"},
		{inWords(10 * time.Millisecond), "10 ms"},
		{inWords(999 * time.Millisecond), "999 ms"},
		{inWords(1234 * time.Millisecond), "1.23 s"},
		{inWords(99 * time.Second), "99.00 s"},
		{inWords(100600 * time.Millisecond), "101 s"},
		{grouped(0), "0"},
		{grouped(999), "999"},
		{grouped(1000), "1,000"},
		{grouped(-1000), "-1,000"},
		{grouped(-100), "-100"},
		{grouped(1234567), "1,234,567"},
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
