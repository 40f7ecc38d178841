package main

import (
	"flag"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// source tells what gave a setting its value. A higher one outranks a lower.
type source int

const (
	byDefault source = iota
	byFile
	byVariable
	byFlag
	byCommand // the subcommand itself leaves no choice
)

// setting is one thing that the user can tell: by a flag, mostly by a variable
// or a line of the configuration file as well.
type setting struct {
	name     string
	letter   string // the flag's short form; mostly there is none
	category string
	usage    string
	shape    string   // what stands for the value in --help; empty: a switch
	accepted []string // where only some words are, or come to mind
	// framework that it is for; empty: all
	framework string
	hidden    bool
	barred    []source // that may not give it
	repeats   bool

	// take takes one value; its error says what would be accepted.
	take func(value string) error
	// show returns the value as it is now, nil where there is none.
	show func() any
	told
}

// told is what a source says of a setting.
type told struct {
	source source
	line   string   // file:line, where the source is the file
	given  []string // values, not taken yet
}

var (
	_ cli.Flag   = (*setting)(nil)
	_ flag.Value = (*setting)(nil)
)

// Apply makes the flag known to the parser.
func (s *setting) Apply(set *flag.FlagSet) error {
	for _, name := range s.Names() {
		set.Var(s, name, s.usage)
	}
	return nil
}

// Names returns the flag's name, and the short form where there is one.
func (s *setting) Names() []string {
	return slices.DeleteFunc([]string{s.name, s.letter}, func(name string) bool { return name == "" })
}

// IsSet tells whether anything but the default gives the value.
func (s *setting) IsSet() bool { return s.source != byDefault }

// Set notes what the command line says, for later: all sources are judged in one
// place, and in the same words.
func (s *setting) Set(value string) error {
	if s.source != byFlag || !s.repeats {
		s.given = nil
	}
	s.source, s.given = byFlag, append(s.given, value)
	return nil
}

// String returns what was said last: the parser copies it from the flag's short
// form to its name.
func (s *setting) String() string {
	if s.letter == "" || len(s.given) == 0 {
		return ""
	}
	return s.given[len(s.given)-1]
}

// IsBoolFlag lets a switch stand without a value.
func (s *setting) IsBoolFlag() bool { return s.shape == "" }

// inHelp is the flag as --help shows it.
func (s *setting) inHelp() string {
	switch {
	case s.shape != "":
		return "--" + s.name + "=" + s.shape
	case s.letter != "":
		return "-" + s.letter + ", --" + s.name
	default:
		return "--" + s.name
	}
}

// under puts settings under a heading of --help.
func under(category string, all ...*setting) settings {
	for _, s := range all {
		s.category = category
	}
	return all
}

// not keeps sources from giving the setting.
func (s *setting) not(barred ...source) *setting {
	s.barred = append(s.barred, barred...)
	return s
}

// hide keeps the setting out of --help.
func (s *setting) hide() *setting {
	s.hidden = true
	return s
}

// short gives the setting a letter, too.
func (s *setting) short(letter string) *setting {
	s.letter = letter
	return s
}

// variable is the name of the environment variable that gives the setting.
func (s *setting) variable() string {
	return "BRINGUPD_" + strings.ToUpper(strings.ReplaceAll(s.name, "-", "_"))
}

// offer gives the setting values from a source, unless it has a better one.
func (s *setting) offer(from source, line string, values ...string) {
	if from > s.source {
		s.told = told{from, line, values}
	}
}

// settle takes what the best source said.
func (s *setting) settle() error {
	for _, value := range s.given {
		if err := s.take(value); err != nil {
			return usage("cannot use %s: %v", s.where(value), err)
		}
	}
	return nil
}

// where shows a value as it was given, on one line.
func (s *setting) where(value string) string {
	if s.source == byFile {
		return fmt.Sprintf("%s (%s: %s)", s.line, s.name, oneLine(value))
	}
	return s.origin() + "=" + oneLine(value)
}

// origin names what gave the value.
func (s *setting) origin() string {
	switch s.source {
	case byFile:
		return s.line
	case byVariable:
		return s.variable()
	case byFlag:
		return "--" + s.name
	case byCommand:
		return "bringupd local"
	default:
		return "default"
	}
}

// settings are those of one subcommand, in the order of --help.
type settings []*setting

func (all settings) find(name string) *setting {
	if at := slices.IndexFunc(all, func(s *setting) bool { return s.name == name }); at >= 0 {
		return all[at]
	}
	return nil
}

// only returns those to keep.
func (all settings) only(keep func(*setting) bool) settings {
	return slices.DeleteFunc(slices.Clone(all), func(s *setting) bool { return !keep(s) })
}

func (s *setting) isFor(framework string) bool {
	return s.framework == "" || s.framework == framework
}

// isKey tells whether the configuration file may give the setting.
func (s *setting) isKey() bool { return !s.hidden && !slices.Contains(s.barred, byFile) }

// gather settles every setting by its best source. It returns the driver that
// the configuration file names.
func (all settings) gather(lookup func(string) (string, bool)) (driver []string, err error) {
	for _, s := range all {
		value, _ := lookup(s.variable())
		values := []string{value}
		if s.repeats {
			values = strings.Split(strings.TrimSuffix(value, "\n"), "\n")
		}
		if value != "" && !slices.Contains(s.barred, byVariable) {
			s.offer(byVariable, "", values...)
		}
	}
	if config := all.find("config"); config != nil && len(config.given) > 0 && config.given[0] != "" {
		if driver, err = readConfig(config.given[0], all); err != nil {
			return nil, err
		}
	}
	for _, s := range all {
		if err := s.settle(); err != nil {
			return nil, err
		}
	}
	return driver, nil
}

// flags are the settings as the parser of the command line wants them.
func (all settings) flags() (flags []cli.Flag) {
	for _, s := range all {
		flags = append(flags, s)
	}
	return flags
}

// oneLine keeps what is printed for people on one line.
func oneLine(text string) string { return strings.ReplaceAll(text, "\n", `\n`) }
