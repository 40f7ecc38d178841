package check

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Mode is how much the GPUs of a node matter.
type Mode string

// The modes of --gpu-check.
const (
	ModeOff     Mode = "off"     // no GPU is looked at
	ModeAuto    Mode = "auto"    // where there are GPUs, or should be
	ModeRequire Mode = "require" // where there must be GPUs, and all must be known to be well
	ModeStrict  Mode = "strict"  // the same, and what else would only be told of fails: for acceptance
)

// Modes are what a user may ask for.
var Modes = []string{string(ModeOff), string(ModeAuto), string(ModeRequire), string(ModeStrict)}

// Effect is what a rule makes of the findings that it is for.
type Effect string

// The effects.
const (
	EffectFail Effect = "fail" // what is wrong is a Fail
	EffectWarn Effect = "warn" // what is wrong is a Warn
	EffectOff  Effect = "off"  // it is not looked at
)

// Rule changes what findings mean.
type Rule struct {
	Pattern string // of check ids, as path.Match has them: gpu.busy, net.*
	Effect  Effect
}

// Policy is what findings mean for the job. The last rule that is for a finding
// counts.
type Policy struct {
	Mode  Mode
	Rules []Rule
}

// ParseRule accepts ID=fail, ID=warn or ID=off; ID may be a pattern: net.*=off.
func ParseRule(s string) (Rule, error) {
	const give = "give ID=fail, ID=warn or ID=off, with an id as \"bringupd check\" shows it, or a pattern of ids as in net.*"
	pattern, effect, found := strings.Cut(s, "=")
	if _, err := path.Match(pattern, ""); !found || pattern == "" || err != nil {
		return Rule{}, fmt.Errorf("cannot read the rule %q: %s", s, give)
	}
	rule := Rule{Pattern: pattern, Effect: Effect(effect)}
	if !slices.Contains([]Effect{EffectFail, EffectWarn, EffectOff}, rule.Effect) {
		return Rule{}, fmt.Errorf("cannot read the rule %q: %s", s, give)
	}
	return rule, nil
}

// String returns what ParseRule accepts.
func (r Rule) String() string { return r.Pattern + "=" + string(r.Effect) }

// Off tells whether nobody wants to know of the check of that id.
func (p Policy) Off(id string) bool {
	effect, ok := p.effect(id)
	if ok {
		return effect == EffectOff
	}
	return p.Mode == ModeOff && strings.HasPrefix(id, "gpu.")
}

func (p Policy) effect(id string) (Effect, bool) {
	for _, rule := range slices.Backward(p.Rules) {
		if match, _ := path.Match(rule.Pattern, id); match {
			return rule.Effect, true
		}
	}
	return "", false
}

// Judge returns the findings with the verdicts that they have by the policy,
// without those that are off.
func (p Policy) Judge(findings []Finding) []Finding {
	var judged []Finding
	for _, f := range findings {
		if p.Off(f.ID) {
			continue
		}
		f.Verdict = p.verdict(f)
		judged = append(judged, f)
	}
	return judged
}

func (p Policy) verdict(f Finding) Verdict {
	wrong := f.Verdict == Warn || f.Verdict == Unknown || f.Verdict == Fail
	effect, ruled := p.effect(f.ID)
	switch {
	case f.Verdict == Wait && ruled && effect == EffectWarn:
		return Warn // nobody waits for what stops nobody
	case !wrong:
		return f.Verdict
	case ruled && effect == EffectFail:
		return Fail
	case ruled && effect == EffectWarn:
		return Warn
	case f.Verdict == Unknown && strings.HasPrefix(f.ID, "gpu.") && (p.Mode == ModeRequire || p.Mode == ModeStrict):
		return Fail
	case f.Strict && p.Mode == ModeStrict:
		return Fail
	default:
		return f.Verdict
	}
}

// worst has the verdicts in the order of how bad they are.
var worst = []Verdict{Pass, Skip, Warn, Unknown, Wait, Fail}

// Worst returns the verdict of them all: Pass where there are none, or where
// the others were skipped.
func Worst(findings []Finding) Verdict {
	all := Pass
	for _, f := range findings {
		if f.Verdict != Skip && slices.Index(worst, f.Verdict) > slices.Index(worst, all) {
			all = f.Verdict
		}
	}
	return all
}
