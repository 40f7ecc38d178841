package dask

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The bytes are those of Python's msgpack 1.2.4.
func TestDecode(t *testing.T) {
	for _, tc := range []struct {
		name    string
		message string
		want    any
	}{
		{"nil", "\xc0", nil},
		{"false", "\xc2", false},
		{"true", "\xc3", true},
		{"small", "\x7f", int64(127)},
		{"small and negative", "\xe0", int64(-32)},
		{"1 byte", "\xcc\xff", int64(255)},
		{"2 bytes", "\xcd\xff\xff", int64(65535)},
		{"4 bytes", "\xce\xff\xff\xff\xff", int64(1<<32 - 1)},
		{"8 bytes", "\xcf\x00\x00\x00\x01\x00\x00\x00\x00", int64(1 << 32)},
		{"beyond int64", "\xcf\xff\xff\xff\xff\xff\xff\xff\xff", float64(1 << 64)},
		{"1 byte with a sign", "\xd0\x80", int64(-128)},
		{"2 bytes with a sign", "\xd1\x80\x00", int64(-32768)},
		{"4 bytes with a sign", "\xd2\x80\x00\x00\x00", int64(-1 << 31)},
		{"8 bytes with a sign", "\xd3\x80\x00\x00\x00\x00\x00\x00\x00", int64(-1 << 63)},
		{"float of 4 bytes", "\xca\x3f\xc0\x00\x00", 1.5},
		{"float of 8 bytes", "\xcb\xbf\xf8\x00\x00\x00\x00\x00\x00", -1.5},
		{"text", "\xa2ab", "ab"},
		{"longer text", "\xd9\x02ab", "ab"},
		{"text with a long length", "\xda\x00\x02ab", "ab"},
		{"text with the longest length", "\xdb\x00\x00\x00\x02ab", "ab"},
		{"bytes", "\xc4\x02ab", "ab"},
		{"bytes with the longest length", "\xc6\x00\x00\x00\x02ab", "ab"},
		{"extension of 1 byte", "\xd4\x05a", "\x05a"},
		{"extension of 16 bytes", "\xd8\x05" + strings.Repeat("a", 16), "\x05" + strings.Repeat("a", 16)},
		{"extension of 3 bytes", "\xc7\x03\x05abc", "\x05abc"},
		{"list", "\x92\x01\xa1a", []any{int64(1), "a"}},
		{"list with a long length", "\xdc\x00\x01\x01", []any{int64(1)}},
		{"map", "\x82\xa1a\x01\x02\xc0", map[string]any{"a": int64(1), "2": nil}},
		{"map with a long length", "\xdf\x00\x00\x00\x01\xa1a\x01", map[string]any{"a": int64(1)}},
		{"what follows", "\x01\xc1", int64(1)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := decode([]byte(tc.message))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	for _, tc := range []struct{ name, message string }{
		{"nothing", ""},
		{"no kind", "\xc1"},
		{"a number cut short", "\xcd\x01"},
		{"a text cut short", "\xa2a"},
		{"a length cut short", "\xdb\x00\x00"},
		{"a list cut short", "\x92\x01"},
		{"a list of too many", "\xdd\xff\xff\xff\xff\x01"},
		{"a map cut short", "\x81\xa1a"},
		{"too deep", strings.Repeat("\x91", 1<<20)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if value, err := decode([]byte(tc.message)); err == nil {
				t.Errorf("it is %v", value)
			}
		})
	}
}
