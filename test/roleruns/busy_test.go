package roleruns

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/test/jobtest"
)

// TestBusyServers runs a server whose health takes 3 s, and one that stalls for 35 s under load, with the
// default limits of their probes: both stay listed and alive.
func TestBusyServers(t *testing.T) {
	t.Parallel()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	j := newJob(t, schedule{}, "busy")
	const probes = `ready: "http://localhost:$BRINGUPD_PORT/", alive: "http://localhost:$BRINGUPD_PORT/", ` +
		"command: exec $" + programVariable
	j.Write(delayName("slow"), "3s")
	j.start("roles:\n- {name: slow, nodes: head, "+probes+"}\n- {name: busy, nodes: head, "+probes+"}\n"+
		"- {name: client, nodes: head, primary: true, ready: \"tcp:$BRINGUPD_PORT\", command: exec $"+
		programVariable+"}\n",
		[]string{programVariable + "=" + program}, "--nodes=1")
	var files map[string]string
	listed := func() (missing string) {
		for _, role := range []string{"SLOW", "BUSY"} {
			if text, _ := os.ReadFile(files[role]); strings.Count(string(text), "\n") != 1 {
				missing += " " + role
			}
		}
		return missing
	}
	isUp := j.Until(func() bool {
		facts := j.facts("client.0.0.g0")
		if facts == nil {
			return false
		}
		files = facts.Files
		return listed() == ""
	})
	if !isUp {
		t.Fatalf("the servers are not listed:\n%s", &j.Said)
	}
	// Every answer of the second one takes 35 s for a while, and none is in time for a try.
	j.Write(delayName("busy"), "35s")
	for end := time.Now().Add(45 * time.Second); time.Now().Before(end) && !t.Failed(); {
		time.Sleep(20 * time.Millisecond)
		if missing := listed(); missing != "" {
			t.Errorf("not listed:%s", missing)
		}
	}
	if j.facts("slow.0.0.g1") != nil || j.facts("busy.0.0.g1") != nil || j.HasEnded() {
		t.Errorf("a server was started again, or the run has ended:\n%s", &j.Said)
	}
	j.Write(filepath.Join(ordersDir, "client.0.0.g0"), "0")
	j.Write(delayName("busy"), "")
	j.Signal(j.facts("client.0.0.g0").PID, syscall.SIGUSR1)
	if code := j.AwaitEnd(jobtest.Ceiling); code != 0 {
		t.Errorf("the run has ended with %d:\n%s", code, &j.Said)
	}
}
