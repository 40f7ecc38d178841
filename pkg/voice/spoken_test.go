package voice

import "testing"

func TestSpoken(t *testing.T) {
	for _, tc := range []struct {
		name, line, want string
		ok               bool
	}{
		{"a record", `{"level":"info","at":"2026-11-22T02:21:20.646000001Z","daemon":"bringupd[0 n0]","msg":"made it","b":1000000,"a":"/x","c":"x y","d":["q"],"e":""}`,
			`02:21:20.646 info made it a=/x b=1000000 c="x y" d=["q"] e=""`, true},
		{"what would end the line or look like a field", `{"level":"warn","msg":"a\nb","why":"c=d\n"}`, `warn a b why="c=d\n"`, true},
		{"no time", `{"level":"info","at":"soon","msg":"x"}`, "info x", true},
		{"JSON of somebody else's", `{"msg":"x"}`, "", false},
		{"no object", `"x"`, "", false},
		{"no JSON", "panic: x", "", false},
	} {
		if got, ok := Spoken([]byte(tc.line)); got != tc.want || ok != tc.ok {
			t.Errorf("%s: %q, %v", tc.name, got, ok)
		}
	}
}
