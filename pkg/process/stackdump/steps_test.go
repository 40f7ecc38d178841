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
	spins := Process{PID: 9, Name: "python3", State: "R", Cores: 1}
	loop := at(Frame{Func: "spin", File: "/home/me/train.py", Line: 8}, Frame{Func: "main", File: "/home/me/train.py", Line: 20})
	ended := func(s *ChildReport) { s.Process, s.Ended = nil, "exit code 0" }
	for _, tc := range []struct {
		name         string
		seen         []ChildReport
		steps, ranks string
	}{
		{"no steps", []ChildReport{aSeen(0, spins), aSeen(1, spins)}, "", "ranks 0-1 on n0: busy"},
		{
			"one is behind", []ChildReport{aSeen(0, inCall("futex", ""), atStep(3)), aSeen(1, spins, loop, atStep(2)), aSeen(2, inCall("futex", ""), atStep(3))},
			"1 of 3 ranks is behind step 3: rank 1 on n0 at step 2 (busy at train.py:8)", "rank 1 on n0: busy at train.py:8; ranks 0,2 on n0: asleep in futex",
		},
		{
			"many are behind", []ChildReport{
				aSeen(0, spins, atStep(9)), aSeen(1, spins, atStep(5)), aSeen(2, spins, atStep(2)), aSeen(3, spins, atStep(1)), aSeen(10, spins, atStep(1)),
			},
			"4 of 5 ranks are behind step 9: rank 3 on n0 at step 1 (busy), rank 10 on n1 at step 1 (busy), rank 2 on n0 at step 2 (busy), and 1 more",
			"5 ranks 0-3,10 on n0, n1: busy",
		},
		{
			"none is behind", []ChildReport{aSeen(0, inCall("futex", ""), atStep(1250)), aSeen(1, spins, loop, atStep(1250)), aSeen(2, inCall("futex", ""))},
			"2 of 3 ranks report steps, and are at step 1250", "rank 1 on n0: busy at train.py:8; ranks 0,2 on n0: asleep in futex",
		},
		{
			"rank 0 alone reports steps", []ChildReport{aSeen(0, inCall("futex", ""), atStep(0)), aSeen(1, spins, loop)},
			"only rank 0 reports steps, and is at step 0: steps do not show which ranks are behind", "rank 0 on n0: asleep in futex; rank 1 on n0: busy at train.py:8",
		},
		{"there is one rank", []ChildReport{aSeen(0, spins, atStep(0.25))}, "1 of 1 ranks report steps, and are at step 0.25", "rank 0 on n0: busy"},
		{
			"ranks that have ended, and the driver", []ChildReport{aSeen(0, spins, atStep(7)), aSeen(1, spins, atStep(7)), aSeen(2, spins, atStep(9), ended), aSeen(3, spins, atStep(1), called("driver"))},
			"2 of 2 ranks report steps, and are at step 7", "rank 2 on n0: has ended: exit code 0; ranks 0-1 on n0: busy",
		},
		{
			"instances of roles", []ChildReport{
				aSeen(0, spins, atStep(7), called("trainer.0.0")), aSeen(8, spins, atStep(6), called("trainer.0.1")), aSeen(0, inCall("futex", ""), called("judge.0")),
				aSeen(0, inCall("futex", ""), called("engine.3.0")), aSeen(0, inCall("futex", ""), called("engine.3.1")), aSeen(0, inCall("futex", ""), called("engine.3.2")),
			},
			"1 of 2 ranks is behind step 7: rank 1 of trainer.0 on n1 at step 6 (busy)",
			"judge.0 on n0: asleep in futex; ranks 0-1 of trainer.0 on n0, n1: busy; 3 ranks 0-2 of engine.3 on n0: asleep in futex",
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
			if got, areBehind := p.DescribeSteps(); got != tc.steps || areBehind != strings.Contains(got, " behind step ") {
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
		aSeen(0, inCall("futex", ""), at(allReduce...)), aSeen(1, inCall("futex", ""), at(allReduce...)), aSeen(2, inCall("read", ""), at(reads...)),
		aSeen(9, Process{State: "R", Cores: 1}, at(Frame{Func: "poll\x1b[2J", Library: "libmpi.so.40"}, Frame{Func: "??"}, Frame{Func: "step"}, Frame{Func: "_start"})), aSeen(10, inCall("nanosleep", "")), aSeen(11, inCall("poll", ""), at(Frame{Func: "??"})),
		aSeen(12, inCall("recv", ""), func(s *ChildReport) { s.Stack = &Stack{Problem: "gdb is not installed here"} }),
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
		"trainer.0": "ranks 0-1 of trainer.0 on n0: busy", "trainer.1": "trainer.1 on n0: busy", "judge.0": "judge.0 on n0: busy", "judge.1": "",
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
