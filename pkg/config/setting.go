package config

import (
	"flag"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/internal/textutil"
)

// Source is the source of a setting's value. A higher source has precedence over a lower one.
type Source int

// The sources of values, from the lowest to the highest precedence.
const (
	SourceDefault Source = iota
	SourceSite
	SourceFile
	SourceVariable
	SourceFlag
	SourceCommand // the subcommand itself determines the value
)

// Setting is a single setting. It has a flag, and usually also a variable and a key of the
// configuration file. It is a [cli.Flag] and its own [flag.Value].
type Setting struct {
	cli.GenericFlag          // name, aliases, category and usage text
	Placeholder     string   // placeholder of the value in --help; empty for a switch
	AcceptedWords   []string // the accepted or suggested words, if there are such
	Frameworks      []string // those to which the setting applies; nil: all
	IsRepeatable    bool     // it may be given several times, and every value counts
	IsUnlisted      bool     // a subcommand accepts it without effect, and does not show it

	// SetValue sets one value. Its error states what would be accepted.
	SetValue func(value string) error
	// CurrentValue returns the present value, or nil if there is none.
	CurrentValue func() any

	Source     Source
	RawValues  []string // values of the source, not parsed yet
	fileLine   string   // file:line, if the source is a file
	site       siteValues
	noVariable bool // no variable can give it
	noFile     bool // no file can give it
	isRemoved  bool // known only to name its replacement
}

// Names returns the names of the flag. The library asks each flag for them once per flag, and its
// own method evaluates a regular expression for each name.
func (s *Setting) Names() []string { return append([]string{s.Name}, s.Aliases...) }

// Apply registers the flag with the parser.
func (s *Setting) Apply(set *flag.FlagSet) error {
	for _, name := range s.Names() {
		set.Var(s, name, s.Usage)
	}
	return nil
}

// IsSet reports whether the value is not the default.
func (s *Setting) IsSet() bool { return s.Source != SourceDefault }

// Set records a value from the command line. It is validated later, so that all sources are handled
// in one place and with the same messages.
func (s *Setting) Set(value string) error {
	if s.Source != SourceFlag || !s.IsRepeatable {
		s.RawValues = nil
	}
	s.Source, s.RawValues = SourceFlag, append(s.RawValues, value)
	return nil
}

// String returns the last value, because the parser copies it from the flag's short form to its
// name.
func (s *Setting) String() string {
	if len(s.Aliases) == 0 || len(s.RawValues) == 0 {
		return ""
	}
	return s.RawValues[len(s.RawValues)-1]
}

// IsBoolFlag reports whether the flag is a switch, which needs no value.
func (s *Setting) IsBoolFlag() bool { return s.Placeholder == "" }

// HelpSyntax returns the flag as --help shows it.
func (s *Setting) HelpSyntax() string {
	switch {
	case s.Placeholder != "":
		return "--" + s.Name + "=" + s.Placeholder
	case len(s.Aliases) > 0:
		return "-" + s.Aliases[0] + ", --" + s.Name
	default:
		return "--" + s.Name
	}
}

// HelpText returns the usage text with the default and the environment variable.
func (s *Setting) HelpText() string {
	if s.HasEnvVariable() {
		return s.UsageText() + " [" + s.EnvVariable() + "]"
	}
	return s.UsageText()
}

// UsageText returns the usage text with the default.
func (s *Setting) UsageText() string {
	text, value := s.Usage, s.CurrentValue()
	if value != nil && s.Placeholder != "" && !s.IsRepeatable && value != "" && !strings.Contains(text, "(default:") {
		text += fmt.Sprintf(" (default: %v)", value)
	}
	return text
}

// AssignCategory assigns settings to a heading of --help.
func AssignCategory(category string, all ...*Setting) List {
	for _, s := range all {
		s.Category = category
	}
	return all
}

// FlagsOnly permits to give the settings only by flags.
func FlagsOnly(all ...*Setting) List {
	for _, s := range all {
		s.noVariable, s.noFile = true, true
	}
	return all
}

// WithoutVariable permits no environment variable to give the setting.
func (s *Setting) WithoutVariable() *Setting {
	s.noVariable = true
	return s
}

// WithoutFile permits no configuration file to give the setting.
func (s *Setting) WithoutFile() *Setting {
	s.noFile = true
	return s
}

// WithWords sets the accepted or suggested words.
func (s *Setting) WithWords(words ...string) *Setting {
	s.AcceptedWords = words
	return s
}

// WithCheck refuses values for which check returns an error, before they are parsed.
func (s *Setting) WithCheck(check func(value string) error) *Setting {
	parse := s.SetValue
	s.SetValue = func(value string) error {
		if err := check(value); err != nil {
			return err
		}
		return parse(value)
	}
	return s
}

// WithShortName adds a short form of one letter to the flag.
func (s *Setting) WithShortName(letter string) *Setting {
	s.Aliases = []string{letter}
	return s
}

// EnvVariable returns the name of the setting's environment variable.
func (s *Setting) EnvVariable() string {
	return "BRINGUPD_" + strings.ToUpper(strings.ReplaceAll(s.Name, "-", "_"))
}

// OfferValues records values from a source, unless a source with higher precedence has given some.
func (s *Setting) OfferValues(from Source, line string, values ...string) {
	if from > s.Source {
		s.Source, s.fileLine, s.RawValues = from, line, values
	}
}

// ApplyValues parses the values that count.
func (s *Setting) ApplyValues() error {
	for _, value := range s.site.values {
		if err := s.SetValue(value); err != nil {
			return NodeUsageErrorf(
				"cannot use %s (%s: %s): %v", s.site.line, s.Name, EscapeLineEnds(value), err)
		}
	}
	own := s.RawValues
	if s.dropsSite() {
		own = own[1:]
	}
	for _, value := range own {
		if err := s.SetValue(value); err != nil {
			return UsageErrorf("cannot use %s: %v", s.describeGiven(value), err)
		}
	}
	return nil
}

// describeGiven returns a value as it was given, on one line.
func (s *Setting) describeGiven(value string) string {
	if s.Source == SourceFile {
		return fmt.Sprintf("%s (%s: %s)", s.fileLine, s.Name, EscapeLineEnds(value))
	}
	return s.SourceName() + "=" + EscapeLineEnds(value)
}

// SourceName names the source of the value.
func (s *Setting) SourceName() string {
	switch s.Source {
	case SourceFile, SourceSite:
		return s.fileLine
	case SourceVariable:
		return s.EnvVariable()
	case SourceFlag:
		return "--" + s.Name
	case SourceCommand:
		return "bringupd local"
	default:
		return "default"
	}
}

// GivenName names the setting as its source has it: the flag, the variable, or the key of a line.
func (s *Setting) GivenName() string {
	if s.Source == SourceFile || s.Source == SourceSite {
		return s.Name + " in " + s.fileLine
	}
	return s.SourceName()
}

// FileReader reads a file that the user names. what describes it in errors.
type FileReader func(what, path string) ([]byte, error)

// List has the settings of one subcommand, in the order of --help.
type List []*Setting

// FindSetting returns the setting with the given name, or nil if there is none.
func (all List) FindSetting(name string) *Setting {
	if at := slices.IndexFunc(all, func(s *Setting) bool { return s.Name == name }); at >= 0 {
		return all[at]
	}
	return nil
}

// NameSources adds to an error that names flags the variables and the lines of the site's file that
// have set them, which may be for another job.
func (all List) NameSources(err error) error {
	flags := strings.FieldsFunc(err.Error(), func(r rune) bool { return r != '-' && (r < 'a' || r > 'z') })
	var sources []string
	newError := UsageErrorf
	for _, s := range all {
		isNamed := slices.Contains(flags, "--"+s.Name)
		if isNamed && s.Source == SourceVariable {
			sources = append(sources, s.EnvVariable())
		}
		isSites := func(value string) bool { return strings.Contains(err.Error(), value) }
		if isNamed && s.site.line != "" && (!s.IsRepeatable || slices.ContainsFunc(s.site.values, isSites)) {
			sources, newError = append(sources, s.site.line), NodeUsageErrorf
		}
	}
	if sources == nil {
		return UsageErrorf("%v", err)
	}
	return newError("%v (set by %s: override it if it is not for this job)", err,
		strings.Join(sources, ", "))
}

// IsForFramework reports whether the setting applies to a framework.
func (s *Setting) IsForFramework(framework string) bool {
	return s.Frameworks == nil || slices.Contains(s.Frameworks, framework)
}

// HasEnvVariable reports whether the setting can be given by an environment variable.
func (s *Setting) HasEnvVariable() bool { return !s.noVariable }

// IsGivenForJob reports whether the setting was given for this job. A variable does not count,
// because it may be set for a whole site.
func (s *Setting) IsGivenForJob() bool { return s.Source == SourceFlag || s.Source == SourceFile }

// IsFileKey reports whether the setting can be given by the configuration file.
func (s *Setting) IsFileKey() bool { return !s.Hidden && !s.noFile }

// ResolveAll sets every setting from the source with the highest precedence. It returns the driver
// in the configuration file, which may also have blocks. Errors of read, which reads that file, are
// returned unchanged.
func (all List) ResolveAll(
	lookup func(string) (string, bool), read FileReader, blocks ...Block,
) (driver []string, err error) {
	for _, s := range all {
		value, _ := lookup(s.EnvVariable())
		switch {
		case value == "" || s.noVariable:
		case s.IsRepeatable:
			values := strings.Split(strings.TrimSuffix(value, "\n"), "\n")
			s.OfferValues(SourceVariable, "", values...)
		default:
			s.OfferValues(SourceVariable, "", value)
		}
	}
	config := all.FindSetting("config")
	if config != nil && len(config.RawValues) > 0 && config.RawValues[0] != "" {
		if driver, err = readConfig(SourceFile, config.RawValues[0], read, all, blocks); err != nil {
			return nil, err
		}
	}
	// In a run, a subcommand without such a file is for that run, whose log directory is known.
	if run, _ := lookup(variablePrefix + "RUN_DIR"); config != nil || run == "" {
		if err := all.OfferSite(SitePath); err != nil {
			return nil, err
		}
	}
	for _, s := range all {
		if err := s.ApplyValues(); err != nil {
			return nil, err
		}
	}
	return driver, nil
}

// CLIFlags returns the settings as flags for the command line parser.
func (all List) CLIFlags() []cli.Flag {
	return textutil.MapSlice(all, func(s *Setting) cli.Flag { return s })
}

// EscapeLineEnds escapes line ends, so that a text is printed on one line.
func EscapeLineEnds(text string) string { return strings.ReplaceAll(text, "\n", `\n`) }
