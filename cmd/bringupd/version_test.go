package main

import (
	"encoding/json"
	"runtime"
	"testing"

	"github.com/bringupd/bringupd/internal/buildinfo"
)

func TestVersionJSON(t *testing.T) {
	got := call(t, nil, "version", "--json")
	var b buildinfo.Report
	if err := json.Unmarshal([]byte(got.out), &b); err != nil || got.code != 0 || b.Version != programVersion() || b.Go != runtime.Version() || b.OS != "linux" {
		t.Errorf("got %+v, %v", got, err)
	}
}
