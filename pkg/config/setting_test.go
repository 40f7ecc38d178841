package config

import (
	"os"
	"path/filepath"
	"testing"
)

// TestSources sets one setting by several sources: the one with the highest precedence counts, and
// the others may be invalid.
func TestSources(t *testing.T) {
	path := filepath.Join(t.TempDir(), "some.yaml")
	if err := os.WriteFile(path, []byte("number: 3\ndriver: [a, b]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name           string
		file, variable string
		flag           string
		want           any
		origin, err    string
	}{
		{name: "none", origin: "default"},
		{name: "file", file: path, want: 3, origin: path + ":1"},
		{name: "variable over file", file: path, variable: "4", want: 4, origin: "BRINGUPD_NUMBER"},
		{name: "flag over all", file: path, variable: "x", flag: "5", want: 5, origin: "--number"},
		{name: "wrong", variable: "x", origin: "BRINGUPD_NUMBER", err: "cannot use BRINGUPD_NUMBER=x: give a whole number from 1 to 9"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			all := examples()
			if tc.flag != "" {
				_ = all.FindSetting("number").Set(tc.flag)
			}
			driver, err := all.ResolveAll(func(name string) (string, bool) {
				value, set := map[string]string{"BRINGUPD_NUMBER": tc.variable, "BRINGUPD_CONFIG": tc.file}[name]
				return value, set
			}, readFile)
			number := all.FindSetting("number")
			if number.SourceName() != tc.origin || (err == nil) != (tc.err == "") || err != nil && (err.Error() != tc.err || !IsUsageError(err)) {
				t.Fatalf("it is given by %s, and the error is %v", number.SourceName(), err)
			}
			if got := number.CurrentValue(); err == nil && got != tc.want {
				t.Errorf("got %v, not %v", got, tc.want)
			}
			if (tc.file != "") != (len(driver) == 2) {
				t.Errorf("the driver is %q", driver)
			}
		})
	}
}

// TestRemoved sets a removed setting by each source: it is refused with its replacement, and
// neither suggested nor documented as a key.
func TestRemoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "some.yaml")
	if err := os.WriteFile(path, []byte("old: 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ name, file, variable, flag, err string }{
		{name: "none"},
		{name: "file", file: path, err: "cannot use " + path + ":1 (old: 3): this flag was removed: give --number"},
		{name: "variable", variable: "4", err: "cannot use BRINGUPD_OLD=4: this flag was removed: give --number"},
		{name: "flag", flag: "5", err: "cannot use --old=5: this flag was removed: give --number"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			old := NewRemoved("old", "N", "give --number")
			all := append(examples(), old)
			if tc.flag != "" {
				_ = old.Set(tc.flag)
			}
			_, err := all.ResolveAll(func(name string) (string, bool) {
				value, set := map[string]string{"BRINGUPD_OLD": tc.variable, "BRINGUPD_CONFIG": tc.file}[name]
				return value, set
			}, readFile)
			if (err == nil) != (tc.err == "") || err != nil && (err.Error() != tc.err || !IsUsageError(err)) {
				t.Errorf("the error is %v, not %s", err, tc.err)
			}
			if old.IsFileKey() || !old.Hidden {
				t.Error("a removed setting is documented")
			}
		})
	}
}
