package ray

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/framework"
)

// FuzzRayArgv builds command lines with any arguments of the user, one per line, and determines the
// ports of those that are accepted.
func FuzzRayArgv(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string, head bool) {
		node := framework.Node{RunName: "job.0", Address: "192.0.2.1", TempDir: "/tmp/bu-1", CPUs: 16, GPUs: 8}
		var args []string
		if text != "" {
			args = strings.Split(text, "\n")
		}
		argv, err := Cluster{}.startArgv(node, placeOf(head), args)
		if err != nil {
			if argv != nil || !strings.HasPrefix(err.Error(), "cannot ") {
				t.Errorf("%q with the error %v", argv, err)
			}
			return
		}
		flags, err := parseFlags(argv[2:])
		if err != nil {
			t.Fatalf("%q can't be read again: %v", argv, err)
		}
		checkFlags(t, head, flags)
		ports, err := fixedPorts(flags)
		if err != nil && !strings.HasPrefix(err.Error(), "cannot ") {
			t.Errorf("the ports: %v", err)
		}
		for _, port := range ports {
			if port.Number < 1 || port.Number > 65535 {
				t.Errorf("the ports of %q: %v", argv, ports)
			}
		}
	})
}

// checkFlags verifies that a command line contains everything that the daemon must know.
func checkFlags(t *testing.T, head bool, flags framework.Arguments) {
	t.Helper()
	times := make(map[string]int)
	for _, flag := range flags {
		times[framework.FlagName(flag)]++
	}
	for name := range reservedFlags {
		if times[name] > 1 {
			t.Errorf("%s is there %d times: %q", name, times[name], flags)
		}
	}
	name, _ := flags.LastValue("--node-name")
	if name != "job.0-0" || !flags.HasFlag("--block") || flags.HasFlag("--head") != head || flags.HasFlag("--address") == head {
		t.Errorf("what the daemon needs is not there: %q", flags)
	}
	text, _ := flags.LastValue(resourcesFlag)
	var resources map[string]float64
	if err := json.Unmarshal([]byte(text), &resources); err != nil {
		t.Errorf("resources %q: %v", text, err)
	}
	if _, there := resources["worker_units"]; !there || times[resourcesFlag] != 1 {
		t.Errorf("resources of our own are missing in %q", flags)
	}
}
