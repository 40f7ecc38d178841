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

// GPUMode defines how strictly the GPUs of a node are checked.
type GPUMode string

// The modes of --gpu-check.
const (
	ModeOff     GPUMode = "off"     // GPUs are not checked
	ModeAuto    GPUMode = "auto"    // GPUs are checked if there are any or should be
	ModeRequire GPUMode = "require" // GPUs must be present, and all must be known to work
	// like require, and strict warnings are failures: for acceptance tests
	ModeStrict GPUMode = "strict"
)

// ModeNames lists the values that --gpu-check accepts.
var ModeNames = []string{string(ModeOff), string(ModeAuto), string(ModeRequire), string(ModeStrict)}

// Effect defines how a rule changes the verdict of a finding.
type Effect string

// The effects of rules.
const (
	EffectFail Effect = "fail" // problems are failures
	EffectWarn Effect = "warn" // problems are warnings
	EffectOff  Effect = "off"  // the check is not run
)

// Rule changes the verdict of the checks that it matches.
type Rule struct {
	Pattern string // pattern for check ids, in the syntax of path.Match: gpu.busy, net.*
	Effect  Effect
}

// Policy decides what findings mean for the job. If several rules match a finding, the last one
// applies.
type Policy struct {
	Mode  GPUMode
	Rules []Rule
}

// ParseRule parses ID=fail, ID=warn or ID=off. ID may be a pattern, as in net.*=off. The error
// describes the accepted syntax.
func ParseRule(s string) (Rule, error) {
	pattern, effect, found := strings.Cut(s, "=")
	rule := Rule{Pattern: pattern, Effect: Effect(effect)}
	_, malformed := path.Match(pattern, "")
	switch {
	case !found || pattern == "" || strings.ContainsFunc(pattern, isInvalidIDRune):
		return Rule{}, errors.New("give ID=fail, ID=warn or ID=off; ID is a check id as listed by " +
			"\"bringupd check --verbose\", or a pattern such as net.*")
	case malformed != nil:
		return Rule{}, fmt.Errorf("%q is not a valid pattern; "+
			"give a shell pattern such as net.* or gpu.[bp]*", pattern)
	case !slices.Contains([]Effect{EffectFail, EffectWarn, EffectOff}, rule.Effect):
		return Rule{}, fmt.Errorf("give %s=fail, %s=warn or %s=off", pattern, pattern, pattern)
	}
	return rule, nil
}

// isInvalidIDRune reports whether a character cannot be part of an id or a pattern. It detects
// several rules in one argument, which are a mistake.
func isInvalidIDRune(r rune) bool {
	return r == ',' || r == ';' || unicode.IsSpace(r) || !unicode.IsPrint(r)
}

// String returns the rule in the syntax of ParseRule.
func (r Rule) String() string { return r.Pattern + "=" + string(r.Effect) }

// Matches reports whether the rule matches any of the ids.
func (r Rule) Matches(ids ...string) bool {
	return slices.ContainsFunc(ids, func(id string) bool {
		match, _ := path.Match(r.Pattern, id)
		return match
	})
}

// IsOff reports whether the check with that id is turned off.
func (p Policy) IsOff(id string) bool {
	effect := p.lastRule(id).Effect
	return effect == EffectOff || effect == "" && p.Mode == ModeOff && isGPUCheck(id)
}

func (p Policy) lastRule(id string) Rule {
	for _, rule := range slices.Backward(p.Rules) {
		if rule.Matches(id) {
			return rule
		}
	}
	return Rule{}
}

func isGPUCheck(id string) bool {
	return strings.HasPrefix(id, "gpu.") || strings.HasPrefix(id, "cuda.")
}

// Apply returns the findings with the verdicts that the policy assigns. It removes findings of
// checks that are off. A Wait stays a Wait, unless a rule makes it a warning. The caller is
// expected to check again and to pass the final result once more.
func (p Policy) Apply(findings []Finding) []Finding {
	var applied []Finding
	for _, f := range findings {
		if p.IsOff(f.ID) {
			continue
		}
		if verdict, by := p.decideVerdict(f); verdict != f.Verdict {
			// an unknown result is no evidence against the node
			if f.Verdict == Unknown && f.Class != ClassUser {
				f.Class = ClassEnvironment
			}
			f.Verdict, f.ChangedBy = verdict, by
		}
		applied = append(applied, f)
	}
	return applied
}

// decideVerdict returns the verdict of a finding under the policy, and the setting that has changed
// it. The setting is empty if the verdict is unchanged.
func (p Policy) decideVerdict(f Finding) (verdict Verdict, by string) {
	rule := p.lastRule(f.ID)
	wrong := slices.Contains([]Verdict{Warn, Unknown, Fail}, f.Verdict)
	demanding := p.Mode == ModeRequire || p.Mode == ModeStrict
	switch {
	case rule.Effect == EffectWarn && (wrong || f.Verdict == Wait): // a wait would be useless
		return Warn, rule.String()
	case !wrong:
		return f.Verdict, ""
	case rule.Effect == EffectFail:
		return Fail, rule.String()
	case f.Verdict == Unknown && isGPUCheck(f.ID) && demanding,
		f.Strict && p.Mode == ModeStrict:
		return Fail, "gpu-check=" + string(p.Mode)
	default:
		return f.Verdict, ""
	}
}

// verdictOrder lists the verdicts from best to worst.
var verdictOrder = []Verdict{Pass, Skip, Warn, Unknown, Wait, Fail}

// severity returns the position of a verdict in [verdictOrder]. Verdicts that this version does not
// know have the position of Unknown.
func (v Verdict) severity() int {
	if i := slices.Index(verdictOrder, v); i >= 0 {
		return i
	}
	return Unknown.severity()
}

// WorstVerdict returns the worst verdict of the findings. It returns Pass if there are none or if
// all others were skipped.
func WorstVerdict(findings []Finding) Verdict {
	worst := Skip.severity()
	for _, f := range findings {
		worst = max(worst, f.Verdict.severity())
	}
	if verdictOrder[worst] == Skip {
		return Pass
	}
	return verdictOrder[worst]
}

// Config holds the user's settings for the checks of a node.
type Config struct {
	Policy Policy
	// ActiveCommands are the site's own shell commands, which run in this order.
	ActiveCommands []string
	ActiveTimeout  time.Duration // for each command
	// Timeout limits how long the checks wait for what is not ready yet.
	Timeout time.Duration
}

// DefaultConfig returns the settings that apply if the user sets nothing.
func DefaultConfig() Config {
	return Config{Policy: Policy{Mode: ModeAuto}, Timeout: 3 * time.Minute}
}
