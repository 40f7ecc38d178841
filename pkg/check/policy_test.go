package check

import (
	"testing"
)

func TestParseRule(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want Rule // none: refused
	}{
		{"gpu.busy=warn", Rule{"gpu.busy", EffectWarn}},
		{"net.*=off", Rule{"net.*", EffectOff}},
		{"gpu.[a-c]?=off", Rule{"gpu.[a-c]?", EffectOff}},
		{"", Rule{}},
		{"gpu.busy", Rule{}},
		{"=off", Rule{}},
		{"gpu.busy=", Rule{}},
		{"gpu.busy=OFF", Rule{}},
		{"gpu.busy=off=off", Rule{}},
		{"gpu.[=off", Rule{}},
		{"gpu.busy, gpu.remap=off", Rule{}},
		{"gpu.busy,gpu.remap=off", Rule{}},
		{"gpu.\x1b=off", Rule{}},
	} {
		t.Run(tc.in, func(t *testing.T) {
			got, err := ParseRule(tc.in)
			switch {
			case tc.want == Rule{}:
				if err == nil {
					t.Errorf("got %v, want an error", got)
				}
			case err != nil || got != tc.want:
				t.Errorf("got %v, %v", got, err)
			case got.String() != tc.in:
				t.Errorf("it reads as %q again", got)
			}
		})
	}
}

func TestPolicyJudges(t *testing.T) {
	rules := func(words ...string) (rules []Rule) {
		for _, word := range words {
			rule, err := ParseRule(word)
			if err != nil {
				t.Fatal(err)
			}
			rules = append(rules, rule)
		}
		return rules
	}
	const off = Verdict("off")
	for _, tc := range []struct {
		name   string
		policy Policy
		finding
		want Verdict
		by   string
	}{
		{"auto lets a warning be", Policy{Mode: ModeAuto}, finding{"gpu.remap", Warn, true}, Warn, ""},
		{"auto lets an unknown be", Policy{Mode: ModeAuto}, finding{"gpu.remap", Unknown, false}, Unknown, ""},
		{"auto fails", Policy{Mode: ModeAuto}, finding{"gpu.remap", Fail, false}, Fail, ""},
		{"require wants to know", Policy{Mode: ModeRequire}, finding{"gpu.remap", Unknown, false},
			Fail, "gpu-check=require"},
		{"of GPUs", Policy{Mode: ModeRequire}, finding{"net.ib", Unknown, false}, Unknown, ""},
		{"require lets a warning be", Policy{Mode: ModeRequire}, finding{"gpu.remap", Warn, true}, Warn, ""},
		{"strict wants to know", Policy{Mode: ModeStrict}, finding{"gpu.remap", Unknown, false},
			Fail, "gpu-check=strict"},
		{"strict fails what is marked for it", Policy{Mode: ModeStrict},
			finding{"gpu.remap", Warn, true}, Fail, "gpu-check=strict"},
		{"strict lets other warnings be", Policy{Mode: ModeStrict}, finding{"gpu.ecc_corr", Warn, false}, Warn, ""},
		{"off looks at no GPU", Policy{Mode: ModeOff}, finding{"gpu.remap", Fail, false}, off, ""},
		{"and at the rest", Policy{Mode: ModeOff}, finding{"node.shm", Fail, false}, Fail, ""},
		{"off, but for one", Policy{Mode: ModeOff, Rules: rules("gpu.env=warn")},
			finding{"gpu.env", Fail, false}, Warn, "gpu.env=warn"},
		{"a rule warns", Policy{Rules: rules("gpu.busy=warn")}, finding{"gpu.busy", Fail, false},
			Warn, "gpu.busy=warn"},
		{"a rule warns of what is unknown", Policy{Mode: ModeRequire,
			Rules: rules("gpu.busy=warn")}, finding{"gpu.busy", Unknown, false}, Warn, "gpu.busy=warn"},
		{"a rule outranks strict", Policy{Mode: ModeStrict, Rules: rules("gpu.remap=warn")},
			finding{"gpu.remap", Warn, true}, Warn, ""},
		{"a rule fails", Policy{Rules: rules("node.*=fail")}, finding{"node.shm", Warn, false}, Fail, "node.*=fail"},
		{"a rule makes nothing wrong", Policy{Rules: rules("node.*=fail")}, finding{"node.shm", Pass, false}, Pass, ""},
		{"nobody waits for what stops nobody", Policy{Rules: rules("gpu.fabric=warn")},
			finding{"gpu.fabric", Wait, false}, Warn, "gpu.fabric=warn"},
		{"who waits goes on waiting", Policy{Rules: rules("gpu.fabric=fail")},
			finding{"gpu.fabric", Wait, false}, Wait, ""},
		{"off is off", Policy{Rules: rules("gpu.fabric=off")}, finding{"gpu.fabric", Wait, false}, off, ""},
		{"the last rule counts", Policy{Rules: rules("gpu.*=off", "gpu.remap=fail")},
			finding{"gpu.remap", Warn, false}, Fail, "gpu.remap=fail"},
		{"the last rule counts, wide or not", Policy{Rules: rules("gpu.remap=fail", "gpu.*=off")},
			finding{"gpu.remap", Warn, false}, off, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := tc.policy.Apply([]Finding{{ID: tc.id, Verdict: tc.verdict, Strict: tc.strict}})
			if len(got) == 0 {
				got = []Finding{{Verdict: off}}
			}
			if got[0].Verdict != tc.want || got[0].ChangedBy != tc.by {
				t.Errorf("got %s by %q, want %s by %q", got[0].Verdict, got[0].ChangedBy, tc.want, tc.by)
			}
			if again := tc.policy.Apply(got); len(again) == 1 &&
				(again[0].Verdict != tc.want || again[0].ChangedBy != tc.by) {
				t.Errorf("judged twice, it is %s by %q", again[0].Verdict, again[0].ChangedBy)
			}
		})
	}
}

// finding is the part of a finding that the policy uses.
type finding struct {
	id      string
	verdict Verdict
	strict  bool
}

func TestWorst(t *testing.T) {
	for _, tc := range []struct {
		name     string
		verdicts []Verdict
		want     Verdict
	}{
		{"none", nil, Pass},
		{"all skipped", []Verdict{Skip, Skip}, Pass},
		{"a warning", []Verdict{Pass, Warn, Skip}, Warn},
		{"unknown is worse", []Verdict{Unknown, Warn}, Unknown},
		{"not yet is worse", []Verdict{Unknown, Wait, Warn}, Wait},
		{"fail is the worst", []Verdict{Wait, Fail, Unknown, Pass}, Fail},
		{"a word of another version", []Verdict{Pass, "PERHAPS"}, Unknown},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var findings []Finding
			for _, v := range tc.verdicts {
				findings = append(findings, Finding{Verdict: v})
			}
			if got := WorstVerdict(findings); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}
