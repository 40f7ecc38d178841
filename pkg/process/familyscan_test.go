package process

import (
	"os/exec"
	"slices"
	"testing"
	"time"
)

// TestOnlookerUsed verifies that the CPU time of processes that a child has waited for is counted,
// and that an ended child has no family.
func TestOnlookerUsed(t *testing.T) {
	s, o := newSupervisor(t), NewFamilyScanner()
	c := start(t, s, shell("sh -c 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done'; sleep 3600"))
	until(t, "time of a child that has ended", func() (bool, any) {
		families, err := o.ScanFamilies([]int{c.PID()})
		leader := slices.IndexFunc(families[c.PID()], func(m FamilyMember) bool { return m.PID == c.PID() })
		return err == nil && leader >= 0 && families[c.PID()][leader].ReapedCPUTime >= 20*time.Millisecond, families
	})
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	if families, err := o.ScanFamilies([]int{gone.Process.Pid}); err != nil || len(families) != 0 {
		t.Errorf("of one that is gone there is %+v, %v", families, err)
	}
}
