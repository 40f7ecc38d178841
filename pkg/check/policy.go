package check

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
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

// Policy is what findings mean for the job. The last rule that is for a finding counts.
type Policy struct {
	Mode  Mode
	Rules []Rule
}

// ParseRule accepts ID=fail, ID=warn or ID=off; ID may be a pattern: net.*=off. Its error says what would be accepted.
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

// unlikeID tells whether a character is in no id and no pattern of ids: several rules in one word are a mistake.
func unlikeID(r rune) bool {
	return r == ',' || r == ';' || unicode.IsSpace(r) || !unicode.IsPrint(r)
}

// String returns what ParseRule accepts.
func (r Rule) String() string { return r.Pattern + "=" + string(r.Effect) }

// Means tells whether the rule is for any of these ids.
func (r Rule) Means(ids ...string) bool {
	return slices.ContainsFunc(ids, func(id string) bool {
		match, _ := path.Match(r.Pattern, id)
		return match
	})
}

// Off tells whether nobody wants to know of the check of that id.
func (p Policy) Off(id string) bool {
	effect := p.rule(id).Effect
	return effect == EffectOff || effect == "" && p.Mode == ModeOff && aboutGPUs(id)
}

// rule returns the last rule that is for an id; the zero Rule where none is.
func (p Policy) rule(id string) Rule {
	for _, rule := range slices.Backward(p.Rules) {
		if rule.Means(id) {
			return rule
		}
	}
	return Rule{}
}

func aboutGPUs(id string) bool {
	return strings.HasPrefix(id, "gpu.") || strings.HasPrefix(id, "cuda.")
}

// Judge returns the findings with the verdicts that they have by the policy, without those that are off. A Wait stays
// one, for whoever waits: what has become of it in the end is judged again.
func (p Policy) Judge(findings []Finding) []Finding {
	var judged []Finding
	for _, f := range findings {
		if p.Off(f.ID) {
			continue
		}
		if verdict, by := p.verdict(f); verdict != f.Verdict {
			if f.Verdict == Unknown && f.Class != User { // what is not known is no evidence
				f.Class = Environment
			}
			f.Verdict, f.By = verdict, by
		}
		judged = append(judged, f)
	}
	return judged
}

// verdict returns what a finding means, and the setting that says so.
func (p Policy) verdict(f Finding) (verdict Verdict, by string) {
	rule := p.rule(f.ID)
	wrong := slices.Contains([]Verdict{Warn, Unknown, Fail}, f.Verdict)
	demanding := p.Mode == ModeRequire || p.Mode == ModeStrict
	switch {
	case rule.Effect == EffectWarn && (wrong || f.Verdict == Wait): // nobody waits for what stops nobody
		return Warn, rule.String()
	case !wrong:
		return f.Verdict, ""
	case rule.Effect == EffectFail:
		return Fail, rule.String()
	case f.Verdict == Unknown && aboutGPUs(f.ID) && demanding, f.Strict && p.Mode == ModeStrict:
		return Fail, "gpu-check=" + string(p.Mode)
	default:
		return f.Verdict, ""
	}
}

// worst has the verdicts in the order of how bad they are.
var worst = []Verdict{Pass, Skip, Warn, Unknown, Wait, Fail}

// rank is how bad a verdict is. One that this version doesn't know is as bad as Unknown.
func (v Verdict) rank() int {
	if i := slices.Index(worst, v); i >= 0 {
		return i
	}
	return Unknown.rank()
}

// Worst returns the verdict of them all: Pass where there are none, or where the others were skipped.
func Worst(findings []Finding) Verdict {
	all := Pass
	for _, f := range findings {
		if rank := f.Verdict.rank(); rank > Skip.rank() && rank > all.rank() {
			all = worst[rank]
		}
	}
	return all
}

// Config is what the user has told about the checks of a node.
type Config struct {
	Policy Policy
	// Active are shell commands of the site's own, run in their order.
	Active        []string
	ActiveTimeout time.Duration // for each of them
	// Timeout is for how long may be waited for what is not ready yet.
	Timeout   time.Duration
	XidPolicy string // file; empty: what is built in alone
	NVML      string // file; empty: where the linker finds it
}

// DefaultConfig returns what counts where the user tells nothing.
func DefaultConfig() Config {
	return Config{Policy: Policy{Mode: ModeAuto}, ActiveTimeout: 2 * time.Minute, Timeout: 3 * time.Minute}
}
