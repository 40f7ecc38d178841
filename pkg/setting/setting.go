// Package setting resolves settings that can be given by a flag, by an environment variable or by a
// line of a file: their precedence, their validation, and the error messages.
package setting

import (
	"flag"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// Source is the source of a setting's value. A higher source has precedence over a lower one.
type Source int

// The sources of values, from the lowest to the highest precedence.
const (
	ByDefault Source = iota
	ByFile
	ByVariable
	ByFlag
	ByCommand // the subcommand itself determines the value
)

// Setting is a single setting. It has a flag, and usually also a variable and a key of the
// configuration file.
type Setting struct {
	Name     string
	letter   string // the flag's short form; usually empty
	Category string // the heading in --help
	Usage    string
	Shape    string   // placeholder of the value in --help; empty for a switch
	Accepted []string // the accepted or suggested words, if there are such
	// Framework is the framework to which the setting applies; empty for all.
	Framework string
	Hidden    bool     // not shown by --help
	removed   bool     // known only to name its replacement
	barred    []Source // sources that must not give it
	Repeats   bool     // it may be given several times, and every value counts

	// Take sets one value. Its error states what would be accepted.
	Take func(value string) error
	// Show returns the present value, or nil if there is none.
	Show func() any
	Told
}

// Told is the value of a setting as given by a source.
type Told struct {
	Source Source
	line   string   // file:line, if the source is the file
	Given  []string // values that are not parsed yet
}

var (
	_ cli.Flag   = (*Setting)(nil)
	_ flag.Value = (*Setting)(nil)
)

// Apply registers the flag with the parser.
func (s *Setting) Apply(set *flag.FlagSet) error {
	for _, name := range s.Names() {
		set.Var(s, name, s.Usage)
	}
	return nil
}

// Names returns the flag's name, and its short form if it has one.
func (s *Setting) Names() []string {
	return slices.DeleteFunc([]string{s.Name, s.letter}, func(name string) bool { return name == "" })
}

// IsSet reports whether the value is not the default.
func (s *Setting) IsSet() bool { return s.Source != ByDefault }

// Set records a value from the command line. It is validated later, so that all sources are handled
// in one place and with the same messages.
func (s *Setting) Set(value string) error {
	if s.Source != ByFlag || !s.Repeats {
		s.Given = nil
	}
	s.Source, s.Given = ByFlag, append(s.Given, value)
	return nil
}

// String returns the last value, because the parser copies it from the flag's short form to its
// name.
func (s *Setting) String() string {
	if s.letter == "" || len(s.Given) == 0 {
		return ""
	}
	return s.Given[len(s.Given)-1]
}

// IsBoolFlag reports whether the flag is a switch, which needs no value.
func (s *Setting) IsBoolFlag() bool { return s.Shape == "" }

// InHelp returns the flag as --help shows it.
func (s *Setting) InHelp() string {
	switch {
	case s.Shape != "":
		return "--" + s.Name + "=" + s.Shape
	case s.letter != "":
		return "-" + s.letter + ", --" + s.Name
	default:
		return "--" + s.Name
	}
}

// Unbroken is a non-breaking space.
const Unbroken = "\u00a0"

// DefaultText returns the default value, unless the usage text already has it.
func (s *Setting) DefaultText() string {
	value := s.Show()
	if value == nil || s.Shape == "" || s.Repeats || value == "" {
		return ""
	}
	return fmt.Sprintf(" (default:"+Unbroken+"%v)", value)
}

// Under assigns settings to a heading of --help.
func Under(category string, all ...*Setting) List {
	for _, s := range all {
		s.Category = category
	}
	return all
}

// Not excludes sources for the setting.
func (s *Setting) Not(barred ...Source) *Setting {
	s.barred = append(s.barred, barred...)
	return s
}

// Hide hides the setting from --help.
func (s *Setting) Hide() *Setting {
	s.Hidden = true
	return s
}

// Short adds a short form of one letter to the setting.
func (s *Setting) Short(letter string) *Setting {
	s.letter = letter
	return s
}

// Variable returns the name of the setting's environment variable.
func (s *Setting) Variable() string {
	return "BRINGUPD_" + strings.ToUpper(strings.ReplaceAll(s.Name, "-", "_"))
}

// Offer records values from a source, unless a source with higher precedence has given some.
func (s *Setting) Offer(from Source, line string, values ...string) {
	if from > s.Source {
		s.Told = Told{from, line, values}
	}
}

// Settle parses the values from the source with the highest precedence.
func (s *Setting) Settle() error {
	for _, value := range s.Given {
		if err := s.Take(value); err != nil {
			return Usagef("cannot use %s: %v", s.where(value), err)
		}
	}
	return nil
}

// where returns a value as it was given, on one line.
func (s *Setting) where(value string) string {
	if s.Source == ByFile {
		return fmt.Sprintf("%s (%s: %s)", s.line, s.Name, OneLine(value))
	}
	return s.Origin() + "=" + OneLine(value)
}

// Origin names the source of the value.
func (s *Setting) Origin() string {
	switch s.Source {
	case ByFile:
		return s.line
	case ByVariable:
		return s.Variable()
	case ByFlag:
		return "--" + s.Name
	case ByCommand:
		return "bringupd local"
	default:
		return "default"
	}
}

// List has the settings of one subcommand, in the order of --help.
type List []*Setting

// Find returns the setting with the given name, or nil if there is none.
func (all List) Find(name string) *Setting {
	if at := slices.IndexFunc(all, func(s *Setting) bool { return s.Name == name }); at >= 0 {
		return all[at]
	}
	return nil
}

// Only returns the settings for which keep returns true.
func (all List) Only(keep func(*Setting) bool) List {
	return slices.DeleteFunc(slices.Clone(all), func(s *Setting) bool { return !keep(s) })
}

// IsFor reports whether the setting applies to a framework.
func (s *Setting) IsFor(framework string) bool {
	return s.Framework == "" || s.Framework == framework
}

// HasVariable reports whether the setting can be given by an environment variable.
func (s *Setting) HasVariable() bool { return !slices.Contains(s.barred, ByVariable) }

// IsMeant reports whether the setting was given for this job. A variable does not count, because it
// may be set for a whole site.
func (s *Setting) IsMeant() bool { return s.Source == ByFlag || s.Source == ByFile }

// IsKey reports whether the setting can be given by the configuration file.
func (s *Setting) IsKey() bool { return !s.Hidden && !slices.Contains(s.barred, ByFile) }

// Gather sets every setting from the source with the highest precedence. It returns the driver in
// the configuration file. Errors of read, which reads that file, are returned unchanged.
func (all List) Gather(lookup func(string) (string, bool), read func(what, path string) ([]byte, error)) (driver []string, err error) {
	for _, s := range all {
		value, _ := lookup(s.Variable())
		values := []string{value}
		if s.Repeats {
			values = strings.Split(strings.TrimSuffix(value, "\n"), "\n")
		}
		if value != "" && s.HasVariable() {
			s.Offer(ByVariable, "", values...)
		}
	}
	if config := all.Find("config"); config != nil && len(config.Given) > 0 && config.Given[0] != "" {
		if driver, err = readConfig(config.Given[0], read, all); err != nil {
			return nil, err
		}
	}
	for _, s := range all {
		if err := s.Settle(); err != nil {
			return nil, err
		}
	}
	return driver, nil
}

// Flags returns the settings as flags for the command line parser.
func (all List) Flags() (flags []cli.Flag) {
	for _, s := range all {
		flags = append(flags, s)
	}
	return flags
}

// OneLine escapes line ends, so that a text is printed on one line.
func OneLine(text string) string { return strings.ReplaceAll(text, "\n", `\n`) }
