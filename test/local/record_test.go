package local

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// cmdJSON implements json FILE PATH [VALUE], which checks a value of a record; a path is, for
// example, cause.lost.0. Without VALUE, the path must not exist. *TEXT* must be contained in the
// value.
func cmdJSON(ts *testscript.TestScript, args []string) {
	arguments(ts, args, 2, "json FILE PATH [VALUE]")
	got := valueAt(ts, args[0], args[1])
	want := any(nil)
	if len(args) > 2 {
		want = args[2]
	}
	if !matches(got, want) {
		ts.Fatalf("%s has %s = %v, want %v; it is\n%s", args[0], args[1], got, want,
			ts.ReadFile(args[0]))
	}
}

func matches(got, want any) bool {
	if got == nil || want == nil {
		return got == want
	}
	said, text := fmt.Sprint(got), want.(string)
	if inner, ok := strings.CutPrefix(text, "*"); ok {
		return strings.Contains(said, strings.TrimSuffix(inner, "*"))
	}
	return said == text
}

// valueAt returns a value of a JSON file, or nil if the path does not exist.
func valueAt(ts *testscript.TestScript, file, path string) any {
	var value any
	decoder := json.NewDecoder(strings.NewReader(ts.ReadFile(file)))
	decoder.UseNumber()
	ts.Check(decoder.Decode(&value))
	for key := range strings.SplitSeq(path, ".") {
		switch at := value.(type) {
		case map[string]any:
			value = at[key]
		case []any:
			i, err := strconv.Atoi(key)
			if key == "length" {
				value = len(at)
			} else if err != nil || i < 0 || i >= len(at) {
				value = nil
			} else {
				value = at[i]
			}
		default:
			value = nil
		}
	}
	return value
}
