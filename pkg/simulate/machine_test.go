package simulate

import (
	"testing"
	"time"
)

func TestParseTicks(t *testing.T) {
	for _, tc := range []struct {
		name, line string
		want       cpuTicks
	}{
		{"what Linux says", "cpu  100 20 30 4000 500 6 7 8 90 10", cpuTicks{busy: 100 + 20 + 30 + 6 + 7 + 8, all: 4671}},
		{"an old one", "cpu  1 2 3 4", cpuTicks{busy: 6, all: 10}},
		{"nothing", "", cpuTicks{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := parseTicks(tc.line); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestOthersPart(t *testing.T) {
	for _, tc := range []struct {
		name   string
		passed cpuTicks
		own    time.Duration
		want   float64
	}{
		{"all ours", cpuTicks{busy: 100, all: 200}, time.Second, 0},
		{"half of it ours", cpuTicks{busy: 100, all: 200}, 500 * time.Millisecond, 0.25},
		{"none ours", cpuTicks{busy: 100, all: 200}, 0, 0.5},
		{"counted a little late", cpuTicks{busy: 99, all: 200}, time.Second, 0},
		{"no time passed", cpuTicks{}, time.Second, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := cpuTicks{busy: 1000, all: 5000}
			after := cpuTicks{busy: before.busy + tc.passed.busy, all: before.all + tc.passed.all}
			if got := othersFraction(before, after, tc.own); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestMachineIsRead(t *testing.T) {
	if got := readTicks(); got.busy <= 0 || got.all <= got.busy {
		t.Errorf("/proc/stat gives %+v", got)
	}
	if got := peakMemory(); got < 1<<20 {
		t.Errorf("this process was %d bytes at most", got)
	}
	if processorTime() <= 0 {
		t.Error("this process has used no processor time")
	}
}
