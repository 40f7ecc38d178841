package config

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// readFile reads a configuration file of a test.
func readFile(_, path string) ([]byte, error) { return os.ReadFile(path) }

// allocated returns the number of bytes that the process allocates while f runs.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// examples returns settings of all kinds.
func examples() List {
	var (
		text, word string
		n          int
		on         bool
		several    []string
		time       time.Duration
	)
	hidden := NewNumber("secret", &n, 0, 1, "")
	hidden.Hidden = true
	return append(AssignCategory("Some", NewText("text", "TEXT", &text, ""),
		NewChoice("word", []string{"one", "two"}, &word, ""), NewNumber("number", &n, 1, 9, "")),
		NewSwitch("on", &on, ""), NewWordList("words", "WORD", &several, ""), NewDuration("wait", &time, ""),
		NewText("config", "FILE", &text, "").WithoutFile(), hidden)
}

func FuzzReadConfig(f *testing.F) {
	path := filepath.Join(f.TempDir(), "job.yaml")
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		all := examples()
		var driver []string
		var err error
		took := allocated(func() { driver, err = readConfig(SourceFile, path, readFile, all, nil) })
		if most := uint64(1<<20 + 2048*len(text)); took > most {
			t.Errorf("%d bytes make %d, and %d is the most", len(text), took, most)
		}
		for _, s := range all {
			if err == nil {
				err = s.ApplyValues()
			}
		}
		if err != nil {
			if !strings.HasPrefix(err.Error(), "cannot read the configuration") &&
				!strings.HasPrefix(err.Error(), "cannot use "+path+":") || strings.Contains(err.Error(), "\n") {
				t.Errorf("the error is %v", err)
			}
			return
		}
		if len(strings.Join(driver, "")) > len(text) && !strings.Contains(string(text), "*") {
			t.Errorf("%q names the driver %q", text, driver)
		}
		for _, s := range all {
			if _, line, _ := strings.Cut(s.fileLine, path+":"); s.Source > SourceFile ||
				(s.Source == SourceFile) != (strings.Trim(line, "0123456789") == "" &&
					line != "") || s.Source == SourceFile && !s.IsFileKey() {
				t.Errorf("%s is given by %d, %q", s.Name, s.Source, s.fileLine)
			}
		}
	})
}
