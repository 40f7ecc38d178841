package console

import (
	"os"
	"testing"
)

func TestWantsColour(t *testing.T) {
	for _, tc := range []struct {
		noColour, term string
		want           bool
	}{{"", "xterm", true}, {"", "", true}, {"1", "xterm", false}, {"0", "xterm", false}, {"", "dumb", false}} {
		env := map[string]string{"NO_COLOR": tc.noColour, "TERM": tc.term}
		if got := wantsColour(func(name string) string { return env[name] }); got != tc.want {
			t.Errorf("%+v: got %v", tc, got)
		}
	}
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }() // it was not written
	if ShowsColour(file) {
		t.Error("what is no terminal shows colours")
	}
}
