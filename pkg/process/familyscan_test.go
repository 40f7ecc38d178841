package process

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestOnlooker verifies that processes are found that have left their session and lost their
// parent, and that two families are distinguished.
func TestOnlooker(t *testing.T) {
	s, o := newSupervisor(t), NewFamilyScanner()
	for _, tc := range strays {
		if strings.Contains(tc.name, "child has gone") || strings.Contains(tc.name, "child gone") {
			continue // its family is ended, not inspected
		}
		t.Run(tc.name, func(t *testing.T) {
			arg := nap()
			killNaps(t, arg)
			c := start(t, s, shell(strings.ReplaceAll(tc.script, "%[1]s", arg)))
			other := start(t, s, shell("sleep "+nap()))
			sleepers(t, arg, tc.sleepers)
			families, err := o.ScanFamilies([]int{c.PID(), other.PID()}, true)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range naps(t, arg) {
				has := func(m FamilyMember) bool { return m.PID == p.pid && m.Start == p.start && m.Name == p.name }
				if !slices.ContainsFunc(families[c.PID()], has) || slices.ContainsFunc(families[other.PID()], has) {
					t.Errorf("%v is not in one family alone: %+v", p, families)
				}
			}
			for _, child := range []*Child{c, other} {
				if exit := child.Stop(t.Context(), 0, unix.SIGKILL); exit.Err != nil {
					t.Error(exit.Err)
				}
			}
		})
	}
}

// TestOnlookerUsed verifies that the CPU time of processes that a child has waited for is counted,
// and that an ended child has no family.
func TestOnlookerUsed(t *testing.T) {
	s, o := newSupervisor(t), NewFamilyScanner()
	c := start(t, s, shell("sh -c 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done'; sleep 3600"))
	until(t, "time of a child that has ended", func() (bool, any) {
		families, err := o.ScanFamilies([]int{c.PID()}, false)
		leader := slices.IndexFunc(families[c.PID()], func(m FamilyMember) bool { return m.PID == c.PID() })
		return err == nil && leader >= 0 && families[c.PID()][leader].ReapedCPUTime >= 20*time.Millisecond, families
	})
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	if families, err := o.ScanFamilies([]int{gone.Process.Pid}, true); err != nil || len(families) != 0 {
		t.Errorf("of one that is gone there is %+v, %v", families, err)
	}
}
