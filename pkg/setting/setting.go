// Package setting is what a program can be told by a flag, by a variable or by a
// line of a file: which of them counts, what is taken, and how a mistake is told.
package setting

import (
	"flag"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// Source tells what gave a setting its value. A higher one outranks a lower.
type Source int

// The sources that there are.
const (
	ByDefault Source = iota
	ByFile
	ByVariable
	ByFlag
	ByCommand // the subcommand itself leaves no choice
)

// Setting is one thing that the user can tell: by a flag, mostly by a variable
// or a line of the configuration file as well.
type Setting struct {
	Name     string
	letter   string // the flag's short form; mostly there is none
	Category string // the heading in --help
	Usage    string
	Shape    string   // what stands for the value in --help; empty: a switch
	Accepted []string // where only some words are, or come to mind
	// Framework that it is for; empty: all
	Framework string
	Hidden    bool     // from --help
	removed   bool     // it is known only to name its replacement
	barred    []Source // that may not give it
	Repeats   bool     // it may be given several times, and each counts

	// Take takes one value; its error says what would be accepted.
	Take func(value string) error
	// Show returns the value as it is now, nil where there is none.
	Show func() any
	Told
}

// Told is what a source says of a setting.
type Told struct {
	Source Source
	line   string   // file:line, where the source is the file
	Given  []string // values, not taken yet
}

var (
	_ cli.Flag   = (*Setting)(nil)
	_ flag.Value = (*Setting)(nil)
)

// Apply makes the flag known to the parser.
func (s *Setting) Apply(set *flag.FlagSet) error {
	for _, name := range s.Names() {
		set.Var(s, name, s.Usage)
	}
	return nil
}

// Names returns the flag's name, and the short form where there is one.
func (s *Setting) Names() []string {
	return slices.DeleteFunc([]string{s.Name, s.letter}, func(name string) bool { return name == "" })
}

// IsSet tells whether anything but the default gives the value.
func (s *Setting) IsSet() bool { return s.Source != ByDefault }

// Set notes what the command line says, for later: all sources are judged in one
// place, and in the same words.
func (s *Setting) Set(value string) error {
	if s.Source != ByFlag || !s.Repeats {
		s.Given = nil
	}
	s.Source, s.Given = ByFlag, append(s.Given, value)
	return nil
}

// String returns what was said last: the parser copies it from the flag's short
// form to its name.
func (s *Setting) String() string {
	if s.letter == "" || len(s.Given) == 0 {
		return ""
	}
	return s.Given[len(s.Given)-1]
}

// IsBoolFlag lets a switch stand without a value.
func (s *Setting) IsBoolFlag() bool { return s.Shape == "" }

// InHelp is the flag as --help shows it.
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

// Unbroken is a blank at which no line is broken.
const Unbroken = "\u00a0"

// DefaultText tells the default where the usage does not.
func (s *Setting) DefaultText() string {
	value := s.Show()
	if value == nil || s.Shape == "" || s.Repeats || value == "" {
		return ""
	}
	return fmt.Sprintf(" (default:"+Unbroken+"%v)", value)
}

// Under puts settings under a heading of --help.
func Under(category string, all ...*Setting) List {
	for _, s := range all {
		s.Category = category
	}
	return all
}

// Not keeps sources from giving the setting.
func (s *Setting) Not(barred ...Source) *Setting {
	s.barred = append(s.barred, barred...)
	return s
}

// Hide keeps the setting out of --help.
func (s *Setting) Hide() *Setting {
	s.Hidden = true
	return s
}

// Short gives the setting a letter, too.
func (s *Setting) Short(letter string) *Setting {
	s.letter = letter
	return s
}

// Variable is the name of the environment variable that gives the setting.
func (s *Setting) Variable() string {
	return "BRINGUPD_" + strings.ToUpper(strings.ReplaceAll(s.Name, "-", "_"))
}

// Offer gives the setting values from a source, unless it has a better one.
func (s *Setting) Offer(from Source, line string, values ...string) {
	if from > s.Source {
		s.Told = Told{from, line, values}
	}
}

// Settle takes what the best source said.
func (s *Setting) Settle() error {
	for _, value := range s.Given {
		if err := s.Take(value); err != nil {
			return Usagef("cannot use %s: %v", s.where(value), err)
		}
	}
	return nil
}

// where shows a value as it was given, on one line.
func (s *Setting) where(value string) string {
	if s.Source == ByFile {
		return fmt.Sprintf("%s (%s: %s)", s.line, s.Name, OneLine(value))
	}
	return s.Origin() + "=" + OneLine(value)
}

// Origin names what gave the value.
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

// List is the settings of one subcommand, in the order of --help.
type List []*Setting

// Find returns the setting of that name, nil where there is none.
func (all List) Find(name string) *Setting {
	if at := slices.IndexFunc(all, func(s *Setting) bool { return s.Name == name }); at >= 0 {
		return all[at]
	}
	return nil
}

// Only returns those to keep.
func (all List) Only(keep func(*Setting) bool) List {
	return slices.DeleteFunc(slices.Clone(all), func(s *Setting) bool { return !keep(s) })
}

// IsFor tells whether the setting has a meaning for a framework.
func (s *Setting) IsFor(framework string) bool {
	return s.Framework == "" || s.Framework == framework
}

// HasVariable tells whether an environment variable may give the setting.
func (s *Setting) HasVariable() bool { return !slices.Contains(s.barred, ByVariable) }

// IsMeant tells whether somebody gave the setting for this job: a variable may be set for all of a site.
func (s *Setting) IsMeant() bool { return s.Source == ByFlag || s.Source == ByFile }

// IsKey tells whether the configuration file may give the setting.
func (s *Setting) IsKey() bool { return !s.Hidden && !slices.Contains(s.barred, ByFile) }

// Gather settles every setting by its best source. It returns the driver that
// the configuration file names. The errors of read, which reads that file, are returned as they are.
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

// Flags are the settings as the parser of the command line wants them.
func (all List) Flags() (flags []cli.Flag) {
	for _, s := range all {
		flags = append(flags, s)
	}
	return flags
}

// OneLine keeps what is printed for people on one line.
func OneLine(text string) string { return strings.ReplaceAll(text, "\n", `\n`) }
