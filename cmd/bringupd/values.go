package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/gate"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/metrics"
	"github.com/bringupd/bringupd/pkg/prose"
	"github.com/bringupd/bringupd/pkg/team"
)

// The constructors of settings, one for each type of value.

func text(name, shape string, to *string, usage string) *setting {
	return &setting{
		name: name, shape: shape, usage: usage,
		take: func(value string) error { *to = value; return nil },
		show: func() any { return *to },
	}
}

// choice takes one of some words.
func choice(name string, accepted []string, to *string, usage string) *setting {
	return &setting{
		name: name, shape: "WORD", usage: usage, accepted: accepted,
		take: func(value string) error {
			if !slices.Contains(accepted, value) {
				return fmt.Errorf("give one of %s%s", strings.Join(accepted, ", "), suggestion("", value, accepted))
			}
			*to = value
			return nil
		},
		show: func() any { return *to },
	}
}

// number takes a whole number. A default that is not accepted stands for none.
func number(name string, to *int, least, most int, usage string) *setting {
	return &setting{
		name: name, shape: "N", usage: usage,
		take: func(value string) error {
			n, err := strconv.Atoi(value)
			if err != nil || n < least || n > most {
				return fmt.Errorf("give a whole number of %d to %d", least, most)
			}
			*to = n
			return nil
		},
		show: func() any {
			if *to < least {
				return nil
			}
			return *to
		},
	}
}

func yes(name string, to *bool, usage string) *setting {
	return &setting{
		name: name, usage: usage,
		take: func(value string) error {
			parsed, err := strconv.ParseBool(value)
			if err != nil {
				return errors.New("give true or false")
			}
			*to = parsed
			return nil
		},
		show: func() any { return *to },
	}
}

// words takes a list: a repeated flag, the lines of a variable, or a list in
// the file.
func words(name, shape string, to *[]string, usage string) *setting {
	return &setting{
		name: name, shape: shape, usage: usage, repeats: true,
		take: func(value string) error { *to = append(*to, value); return nil },
		show: func() any { return *to },
	}
}

func wait(name string, to *time.Duration, usage string) *setting {
	return &setting{
		name: name, shape: "TIME", usage: usage,
		take: func(value string) error {
			parsed, err := time.ParseDuration(value)
			if err != nil {
				return noTime(value)
			}
			*to = parsed
			return nil
		},
		show: func() any { return prose.FlagTime(*to) },
	}
}

func noTime(value string) error {
	if _, err := strconv.ParseFloat(value, 64); err == nil {
		return errors.New("it has no unit: give one, as in 90s, 5m or 250ms")
	}
	return errors.New("give a number and its unit, as in 90s, 5m or 250ms")
}

// loopback takes an address that this machine alone can reach.
func loopback(name string, to *string, usage string) *setting {
	s := text(name, "ADDRESS:PORT", to, usage)
	take := s.take
	s.take = func(value string) error {
		if err := metrics.Loopback(value); err != nil && value != "" {
			return err
		}
		return take(value)
	}
	return s
}

// probe takes a probe; the empty string means none.
func probe(name string, to **health.Probe, usage string) *setting {
	return &setting{
		name: name, shape: "PROBE", usage: usage,
		take: func(value string) error {
			*to = nil
			if value == "" {
				return nil
			}
			p, err := health.ParseProbe(value)
			if err != nil {
				return err
			}
			*to = &p
			return nil
		},
		show: func() any {
			if *to == nil {
				return ""
			}
			return (*to).String()
		},
	}
}

// require takes how many sandboxes the gate needs.
func require(name string, to *gate.Require, usage string) *setting {
	return &setting{
		name: name, shape: "WHICH", usage: usage, accepted: []string{"all", "any", "head"},
		take: func(value string) error {
			r, err := gate.ParseRequire(value)
			if err != nil {
				return err
			}
			*to = r
			return nil
		},
		show: func() any { return to.String() },
	}
}

// bounds takes a number of nodes, or the least and the most of them.
func bounds(name string, to *team.Bounds, usage string) *setting {
	return &setting{
		name: name, shape: "MIN[:MAX]", usage: usage,
		take: func(value string) error {
			parsed, err := team.ParseBounds(value)
			if err != nil {
				return err
			}
			*to = parsed
			return nil
		},
		show: func() any {
			if to.Min == 0 {
				return nil
			}
			return to.String()
		},
	}
}

// short gives a switch a letter, too.
func short(letter string, s *setting) *setting {
	s.letter = letter
	return s
}
