package check

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"
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
// Its error says what would be accepted.
func ParseRule(s string) (Rule, error) {
	pattern, effect, found := strings.Cut(s, "=")
	rule := Rule{Pattern: pattern, Effect: Effect(effect)}
	_, malformed := path.Match(pattern, "")
	switch {
	case !found || pattern == "" || strings.ContainsFunc(pattern, unlikeID):
		return Rule{}, errors.New("give ID=fail, ID=warn or ID=off, with an id that \"bringupd check --verbose\" shows, or a pattern of ids as in net.*=off")
	case malformed != nil:
		return Rule{}, fmt.Errorf("give a pattern as the shell has them for files, as in net.* or gpu.[bp]*: %q is none", pattern)
	case !slices.Contains([]Effect{EffectFail, EffectWarn, EffectOff}, rule.Effect):
		return Rule{}, fmt.Errorf("give %s=fail, %s=warn or %s=off", pattern, pattern, pattern)
	}
	return rule, nil
}

// unlikeID tells what no id has in it, nor a pattern of ids: several rules in
// one word are a mistake.
func unlikeID(r rune) bool {
	return r == ',' || r == ';' || unicode.IsSpace(r) || !unicode.IsPrint(r)
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
