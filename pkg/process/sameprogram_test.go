package process

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/bringupd/bringupd/test/twin"
)

func TestRunsProgram(t *testing.T) {
	sleep := exec.Command("sleep", "300")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	ended := exec.Command("/proc/self/exe", "-test.run=^$")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = sleep.Process.Kill()
		_ = sleep.Wait()
	})
	own, now := twin.Start(t), time.Now().Add(time.Second)
	for _, tc := range []struct {
		name   string
		pid    int
		before time.Time
		want   bool
	}{
		{"the same program", own, now, true},
		{"its number belonged to another process then", own, now.Add(-time.Hour), false},
		{"another program", sleep.Process.Pid, now, false},
		{"one that has ended", ended.Process.Pid, now, false},
		{"this process", os.Getpid(), now, false},
	} {
		if got := RunsSameProgram(tc.pid, tc.before); got != tc.want {
			t.Errorf("%s: got %t, want %t", tc.name, got, tc.want)
		}
	}
}
