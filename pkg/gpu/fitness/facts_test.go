package fitness

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/test/zoo"
)

// others are the nodes without any sign of an NVIDIA GPU.
var others = map[string]zoo.Node{"mi250": zoo.MI250, "mi300x": zoo.MI300X, "max1550": zoo.Max1550}

// load returns the facts of testdata/facts. Those of the healthy machines of TestZoo follow
// publications, which are named there; the others were written by hand, after nvml.h and reports of
// users, until some are recorded on hardware.
func load(t testing.TB, name string) gpu.Facts {
	t.Helper()
	if node, other := others[name]; other {
		return gpu.NonNVIDIAFacts(node.Tree(t))
	}
	text, err := os.ReadFile(filepath.Join("testdata", "facts", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var f gpu.Facts
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&f); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return f
}

// fixtures returns the names of all files in testdata/facts.
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

// read returns a reading with that value.
func read[T any](value T) gpu.Reading[T] { return gpu.Reading[T]{Value: &value} }

// unread returns a reading without a value.
func unread[T any](why gpu.NVMLReturn) gpu.Reading[T] { return gpu.Reading[T]{Reason: why} }
