package faults

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/test/hostile"
)

// TestForgottenLogs checks that the daemons' logs and event logs are continued to the end after the
// share has forgotten every open file, like a server that was replaced.
func TestForgottenLogs(t *testing.T) {
	j := newJob(t, func(int) hostile.Knobs { return hostile.Knobs{} })
	for _, p := range phases {
		if p != driver {
			j.free(p)
		}
	}
	j.start(driversCode)
	j.await(driver)
	// A log is opened when its first line is written.
	logs := []string{"logs/daemon-0000.log", "logs/daemon-0002.log", "events/0000.jsonl",
		"events/0002.jsonl"}
	j.shows(logs...)
	before := make(map[string]int)
	for _, log := range logs {
		before[log] = len(j.text(log))
	}
	for _, m := range j.mounts {
		j.must(m.Set(hostile.Knobs{Forgets: 1}))
	}
	j.free(driver)
	j.endTurn()
	j.allGone()
	for _, log := range logs {
		later := j.text(log)[before[log]:]
		if want := map[string]string{"logs": "the driver has ended",
			"events": `"event":"end"`}[filepath.Dir(log)]; !strings.Contains(later, want) {
			t.Errorf("%s does not say %q after the share has forgotten it: %q", log, want, later)
		}
	}
	j.nothingLeft()
}

// text returns the content of a file of the run directory.
func (j *job) text(name string) string {
	j.t.Helper()
	data, err := os.ReadFile(filepath.Join(j.runDir(), name))
	j.must(err)
	return string(data)
}
