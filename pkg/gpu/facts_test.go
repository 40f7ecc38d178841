package gpu

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// load returns the facts of testdata/facts. They are made by hand, after nvml.h
// and the reports of others, until somebody records some on hardware.
func load(t testing.TB, name string) Facts {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "facts", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var f Facts
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&f); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return f
}

// fixtures are the names of all of them.
func fixtures(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "facts", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no facts: %v", err)
	}
	var names []string
	for _, file := range files {
		name := filepath.Base(file)
		names = append(names, name[:len(name)-len(".json")])
	}
	return names
}
