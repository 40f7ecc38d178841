package stackdump

import (
	"encoding/json"
	"strings"
	"testing"
)

func atStep(step float64) func(*ChildReport) { return func(s *ChildReport) { s.Step = &step } }

// TestSteps verifies which ranks are named as those that are behind, also in a snapshot that was read
// from JSON.
func TestSteps(t *testing.T) {
	busy := func(rank int, more ...func(*ChildReport)) ChildReport {
		return aSeen(rank, Process{PID: 9, Name: "python3", State: "R", Cores: 1}, more...)
	}
	asleep := func(rank int, more ...func(*ChildReport)) ChildReport {
		return aSeen(rank, inCall("futex", ""), more...)
	}
	const file = "/home/me/train.py"
	loop := at(Frame{Func: "spin", File: file, Line: 8}, Frame{Func: "main", File: file, Line: 20})
	ended := func(s *ChildReport) { s.Process, s.Ended = nil, "exit code 0" }
	for _, tc := range []struct {
		name         string
		seen         []ChildReport
		steps, ranks string
	}{
		{"no steps", []ChildReport{busy(0), busy(1)}, "", "ranks 0-1 on n0: busy"},
		{
			"one is behind", []ChildReport{asleep(0, atStep(3)), busy(1, loop, atStep(2)), asleep(2, atStep(3))},
			"1 of 3 ranks is behind step 3: rank 1 on n0 at step 2 (busy at train.py:8)",
			"rank 1 on n0: busy at train.py:8; ranks 0,2 on n0: asleep in futex",
		},
		{
			"many are behind", []ChildReport{
				busy(0, atStep(9)), busy(1, atStep(5)), busy(2, atStep(2)), busy(3, atStep(1)), busy(10, atStep(1)),
			},
			"4 of 5 ranks are behind step 9: rank 3 on n0 at step 1 (busy), rank 10 on n1 at step 1 (busy), " +
				"rank 2 on n0 at step 2 (busy), and 1 more",
			"5 ranks 0-3,10 on n0, n1: busy",
		},
		{
			"none is behind", []ChildReport{asleep(0, atStep(1250)), busy(1, loop, atStep(1250)), asleep(2)},
			"2 of 3 ranks report steps, and are at step 1250",
			"rank 1 on n0: busy at train.py:8; ranks 0,2 on n0: asleep in futex",
		},
		{
			"rank 0 alone reports steps", []ChildReport{asleep(0, atStep(0)), busy(1, loop)},
			"only rank 0 reports steps, and is at step 0: steps do not show which ranks are behind",
			"rank 0 on n0: asleep in futex; rank 1 on n0: busy at train.py:8",
		},
		{
			"there is one rank", []ChildReport{busy(0, atStep(0.25))},
			"1 of 1 ranks report steps, and are at step 0.25", "rank 0 on n0: busy",
		},
		{
			"ranks that have ended, and the driver", []ChildReport{
				busy(0, atStep(7)), busy(1, atStep(7)), busy(2, atStep(9), ended), busy(3, atStep(1), called("driver")),
			},
			"2 of 2 ranks report steps, and are at step 7",
			"rank 2 on n0: has ended: exit code 0; ranks 0-1 on n0: busy",
		},
		{
			"instances of roles", []ChildReport{
				busy(0, atStep(7), called("trainer.0.0")), busy(8, atStep(6), called("trainer.0.1")),
				asleep(0, called("judge.0")), asleep(0, called("engine.3.0")), asleep(0, called("engine.3.1")),
				asleep(0, called("engine.3.2")),
			},
			"1 of 2 ranks is behind step 7: rank 1 of trainer.0 on n1 at step 6 (busy)",
			"judge.0 on n0: asleep in futex; ranks 0-1 of trainer.0 on n0, n1: busy; " +
				"3 ranks 0-2 of engine.3 on n0: asleep in futex",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			data, err := json.Marshal(NewRunSnapshot("demo", 2, tc.seen, nil))
			if err != nil {
				t.Fatal(err)
			}
			var p RunSnapshot
			if err := json.Unmarshal(data, &p); err != nil {
				t.Fatal(err)
			}
			if got, areBehind := p.DescribeSteps(); got != tc.steps ||
				areBehind != strings.Contains(got, " behind step ") {
				t.Errorf("the steps are\n%s\nwant\n%s", got, tc.steps)
			}
			if got := p.DescribeRanks(); got != tc.ranks {
				t.Errorf("the ranks are\n%s\nwant\n%s", got, tc.ranks)
			}
		})
	}
}

// TestFormatStacks verifies that one rank of each group has its stack.
func TestFormatStacks(t *testing.T) {
	p := NewRunSnapshot("demo", 2, []ChildReport{
		aSeen(0, inCall("futex", ""), at(allReduce...)), aSeen(1, inCall("futex", ""), at(allReduce...)),
		aSeen(2, inCall("read", ""), at(reads...)),
		aSeen(9, Process{State: "R", Cores: 1}, at(framesOf("poll\x1b[2J @libmpi.so.40", "??", "step", "_start")...)),
		aSeen(10, inCall("nanosleep", "")), aSeen(11, inCall("poll", ""), at(Frame{Func: "??"})),
		aSeen(12, inCall("recv", ""), func(s *ChildReport) { s.Stack = &Stack{Problem: "no gdb"} }),
		aSeen(4, inCall("read", ""), at(reads...), called("worker")),
	}, nil)
	const want = `stack of rank 2 on n0, by py-spy:
    load (data.py:88)
    main (train.py:200)
stack of rank 9 on n1, by py-spy:
    poll (libmpi.so.40)
    step (unknown file)
stack of rank 0 on n0, by py-spy:
    wrapper (c10d_logger.py:81)
    main (train.py:210)
`
	if got := p.FormatStacks(); got != want {
		t.Errorf("the stacks are\n%s\nwant\n%s", got, want)
	}
}

// TestSelectChildren verifies which children are processes of an instance, and how they are described.
func TestSelectChildren(t *testing.T) {
	var children []Child
	for _, name := range []string{"trainer.0.0", "trainer.0.1", "trainer.10.0", "judge.0", "rank 0", "trainer.1"} {
		children = append(children, Child{Name: name})
	}
	for instance, want := range map[string]string{
		"trainer.0": "ranks 0-1 of trainer.0 on n0: busy", "trainer.1": "trainer.1 on n0: busy",
		"judge.0": "judge.0 on n0: busy", "judge.1": "",
		"": "judge.0 on n0: busy; rank 0 on n0: busy; trainer.1 on n0: busy; and 2 more",
	} {
		var seen []ChildReport
		for _, child := range SelectChildren(children, instance) {
			seen = append(seen, aSeen(0, Process{State: "R", Cores: 1}, called(child.Name)))
		}
		if got := NewRunSnapshot("demo", 1, seen, nil).DescribeRanks(); got != want {
			t.Errorf("of %q: got %s, want %s", instance, got, want)
		}
	}
}
